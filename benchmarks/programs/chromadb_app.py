"""A gallery over chromadb: ``python chromadb_app.py`` indexes it, ``uvicorn chromadb_app:app`` answers."""

import json
import os
from pathlib import Path

import chromadb
import numpy as np
from chromadb_embedding import DemoEmbedding
from fastapi import FastAPI, HTTPException
from PIL import Image, ImageOps

FOLDER = os.environ.get("GALLERY_STORE", "./index")
BATCH = 500

app = FastAPI()


def open_collection(client=None, embedding=None):
    client = client or chromadb.PersistentClient(FOLDER)
    return client.get_or_create_collection(
        "gallery", embedding_function=embedding or DemoEmbedding(), configuration={"hnsw": {"space": "cosine"}}
    )


def get_collection():
    if not hasattr(app.state, "collection"):
        app.state.collection = open_collection()
    return app.state.collection


@app.post("/notes", status_code=201)
def add(id: str, text: str, year: int):
    get_collection().upsert(ids=[id], documents=[text], metadatas=[{"year": year}])


@app.get("/search")
def search(text: str, since: int = 0):
    result = get_collection().query(query_texts=[text], where={"year": {"$gte": since}}, n_results=10)
    return [{"id": id, "score": 1 - distance} for id, distance in zip(result["ids"][0], result["distances"][0])]


@app.delete("/documents/{id:path}", status_code=204)
def delete(id: str):
    if not get_collection().get(ids=[id])["ids"]:
        raise HTTPException(404)
    get_collection().delete(ids=[id])


def read_picture(path):
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB").resize((64, 64), Image.Resampling.BICUBIC))


def index(path):
    collection = open_collection()
    with Path(path).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    texts, pictures = ([row for row in rows if row.get(kind)] for kind in ("text", "image"))
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        collection.upsert(
            ids=[row["id"] for row in some],
            documents=[row["text"] for row in some],
            metadatas=[{"year": row["year"]} for row in some],
        )
    for start in range(0, len(pictures), BATCH):
        some, images = [], []
        for row in pictures[start : start + BATCH]:
            try:
                images.append(read_picture(row["image"]))
                some.append(row)
            except OSError as exc:
                print(f"{row['image']} cannot be read: {exc}")
        collection.upsert(
            ids=[row["id"] for row in some],
            images=images,
            metadatas=[{"year": row["year"], "path": row["image"]} for row in some],
        )
    return collection


if __name__ == "__main__":
    print(index("gallery.jsonl").query(query_texts=["a grey heron in the reeds"], n_results=1)["ids"][0][0])
