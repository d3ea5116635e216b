"""Fill an index with nodes of LlamaIndex, images and notes, and search it by a text and by an image.

python llama_index_app.py photos "a dog in the snow" --encoder onnx:default
python llama_index_app.py photos --like photos/1.jpg
"""

import argparse
from pathlib import Path

from llama_index.core.schema import BaseNode, ImageNode, NodeWithScore, TextNode

from vlmsearch.integrations.llama_index import VlmsearchMultiModalRetriever, VlmsearchNodeStore


def read(folder: Path) -> list[BaseNode]:
    nodes: list[BaseNode] = []
    for path in sorted(folder.absolute().iterdir()):
        metadata = {"folder": folder.name, "bytes": path.stat().st_size}
        if path.suffix in (".jpg", ".png"):
            nodes.append(ImageNode(id_=str(path), image_path=str(path), metadata=metadata))
        elif path.suffix == ".txt":
            nodes.append(TextNode(id_=str(path), text=path.read_text(), metadata=metadata))
    return nodes


def search(retriever: VlmsearchMultiModalRetriever, text: str | None, image: str | None) -> list[NodeWithScore]:
    if image is None:
        return retriever.retrieve(text or "")  # texts and images
    return retriever.image_to_image_retrieve(image)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Search a folder of images and notes with LlamaIndex.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", nargs="?")
    parser.add_argument("--like", help="the path of an image")
    parser.add_argument("--encoder", default="onnx:demo")
    parser.add_argument("--store", default="sqlite:./llama-index-app")
    given = parser.parse_args()
    store = VlmsearchNodeStore(given.store, encoder=given.encoder)
    store.add(read(given.folder))
    print(f"{len(store.get_nodes())} in the index")
    for each in search(VlmsearchMultiModalRetriever(store, similarity_top_k=5), given.text, given.like):
        print(f"{each.score:.3f}  {each.node_id}")
    store.close()
