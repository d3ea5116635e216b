"""A gallery over vlmsearch: ``python vlmsearch_app.py`` indexes it, ``uvicorn vlmsearch_app:app`` answers."""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from vlmsearch import AsyncPipeline, Document, Pipeline

PARTS = {"encoder": "onnx:demo", "store": os.environ.get("GALLERY_STORE", "sqlite:./index")}


@asynccontextmanager
async def lifespan(app):
    async with await AsyncPipeline.open(**PARTS) as app.state.pipeline:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/notes", status_code=201)
async def add(id: str, text: str, year: int):
    await app.state.pipeline.add(Document(id, text=text, metadata={"year": year}))


@app.get("/search")
async def search(text: str, since: int = 0):
    matches = await app.state.pipeline.search(text, where={"year": {"$gte": since}})
    return [{"id": match.document.id, "score": match.score} for match in matches]


@app.delete("/documents/{id:path}", status_code=204)
async def delete(id: str):
    if not await app.state.pipeline.delete(id):
        raise HTTPException(404)


if __name__ == "__main__":
    with Pipeline.open(**PARTS) as pipeline:
        pipeline.index("gallery.jsonl")
        print(pipeline.search("a grey heron in the reeds", limit=1)[0].document.id)
