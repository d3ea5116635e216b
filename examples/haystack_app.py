"""Fill an index with a Haystack pipeline, and search it with another one, by a text and by an image.

python haystack_app.py photos "a dog in the snow" --encoder onnx:default
python haystack_app.py photos --like photos/1.jpg
"""

import argparse
from pathlib import Path

from haystack import Document, Pipeline
from haystack.components.converters.image import ImageFileToDocument
from haystack.components.writers import DocumentWriter
from haystack.document_stores.types import DuplicatePolicy

from vlmsearch.integrations.haystack import VlmsearchDocumentStore, VlmsearchImageRetriever, VlmsearchTextRetriever


def fill(store: VlmsearchDocumentStore, folder: Path) -> int:
    pipeline = Pipeline()
    pipeline.add_component("read", ImageFileToDocument(store_full_path=True))
    pipeline.add_component("write", DocumentWriter(store, policy=DuplicatePolicy.SKIP))
    pipeline.connect("read", "write")
    files = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))
    meta = [{"folder": folder.name, "bytes": path.stat().st_size} for path in files]
    return int(pipeline.run({"read": {"sources": files, "meta": meta}})["write"]["documents_written"])


def search(store: VlmsearchDocumentStore, text: str | None, image: str | None, limit: int) -> list[Document]:
    pipeline = Pipeline()
    if image is None:
        pipeline.add_component("find", VlmsearchTextRetriever(store, top_k=limit))
        data = {"query": text}
    else:
        pipeline.add_component("find", VlmsearchImageRetriever(store, top_k=limit))
        data = {"query": text, "image": image}
    found: list[Document] = pipeline.run({"find": data})["find"]["documents"]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Search a folder of images with Haystack.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", nargs="?")
    parser.add_argument("--like", help="the path of an image")
    parser.add_argument("--encoder", default="onnx:demo")
    parser.add_argument("--store", default="sqlite:./haystack-index")
    given = parser.parse_args()
    store = VlmsearchDocumentStore(given.store, encoder=given.encoder)
    print(f"{fill(store, given.folder)} new, {store.count_documents()} in the index")
    for each in search(store, given.text, given.like, 5):
        print(f"{each.score:.3f}  {each.meta['file_path']}")
    store.close()
