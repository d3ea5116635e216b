"""The gallery over chromadb, without a model and a file."""

import chromadb
import chromadb_app
import numpy as np
from chromadb import EmbeddingFunction
from fastapi.testclient import TestClient


class WordsEmbedding(EmbeddingFunction):
    def __init__(self):
        pass

    def __call__(self, input):
        rows = [np.bincount([hash(word) % 64 for word in text.split()], minlength=64) for text in input]
        return [row.astype(np.float32) for row in rows]

    @staticmethod
    def name():
        return "words"

    def get_config(self):
        return {}

    @staticmethod
    def build_from_config(config):
        return WordsEmbedding()


def test_add_search_delete():
    collection = chromadb_app.open_collection(chromadb.EphemeralClient(), WordsEmbedding())
    chromadb_app.app.state.collection = collection
    with TestClient(chromadb_app.app) as client:
        for id, year in (("old", 1999), ("new", 2024)):
            client.post("/notes", params={"id": id, "text": "a heron", "year": year})
        found = client.get("/search", params={"text": "a heron", "since": 2000}).json()
        assert [match["id"] for match in found] == ["new"]
        assert client.delete("/documents/new").status_code == 204
        assert client.delete("/documents/new").status_code == 404
