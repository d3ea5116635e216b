"""The gallery over vlmsearch, without a model and a file."""

import vlmsearch_app
from fastapi.testclient import TestClient


def test_add_search_delete(monkeypatch):
    monkeypatch.setattr(vlmsearch_app, "PARTS", {"encoder": "mock:", "store": "mock:"})
    with TestClient(vlmsearch_app.app) as client:
        for id, year in (("old", 1999), ("new", 2024)):
            client.post("/notes", params={"id": id, "text": "a heron", "year": year})
        found = client.get("/search", params={"text": "a heron", "since": 2000}).json()
        assert [match["id"] for match in found] == ["new"]
        assert client.delete("/documents/new").status_code == 204
        assert client.delete("/documents/new").status_code == 404
