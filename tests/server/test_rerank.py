"""Re-ranking: Cohere's own client, and requests as clients of text-embeddings-inference and infinity send them."""

from __future__ import annotations

from collections.abc import Iterator

import cohere
import httpx
import pytest
from cohere.core.api_error import ApiError

from tests.support.service import RunningService, serving
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

QUERY = "blue car"
TEXTS = ["a red car", "", "a blue car", "a dog"]
RANKS = [(2, 0.98), (0, 0.5), (3, 0.02), (1, 0.0)]


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("rerank")
    tokens = TokenFile(folder / "tokens.json")
    secrets["reader"] = tokens.add("reader", role="read", indexes=["notes", "bare"])
    secrets["bare"] = tokens.add("bare", role="read", indexes=["bare"])
    settings = ServerSettings(
        indexes={
            "notes": IndexSettings("mock:", "mock:", "", "mock:"),
            "bare": IndexSettings("mock:", "mock:", ""),
            "hidden": IndexSettings("mock:", "mock:", "", "mock:"),
        },
        tokens=str(tokens.path),
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        yield running


def post(service: RunningService, secret: str, path: str, **body: object) -> httpx.Response:
    return service.http.post(path, json=body, headers={"Authorization": f"Bearer {secret}"})


def test_coheres_second_client(service: RunningService, secrets: dict[str, str]) -> None:
    client = cohere.ClientV2(secrets["reader"], base_url=service.url)
    found = client.rerank(model="notes", query=QUERY, documents=TEXTS)
    assert [(each.index, each.relevance_score) for each in found.results] == RANKS
    few = client.rerank(model="mock:", query=QUERY, documents=TEXTS, top_n=2)
    assert [each.index for each in few.results] == [2, 0]
    with pytest.raises(ApiError) as caught:
        client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS)
    assert caught.value.status_code == 404
    assert "there are those of notes" in caught.value.body["error"]["message"]


def test_coheres_first_client(service: RunningService, secrets: dict[str, str]) -> None:
    client = cohere.Client(secrets["reader"], base_url=service.url)
    found = client.rerank(query=QUERY, documents=[TEXTS[0], {"text": TEXTS[2]}], return_documents=True)
    assert [(each.index, each.document.text) for each in found.results if each.document] == [
        (1, TEXTS[2]),
        (0, TEXTS[0]),
    ]
    plain = client.rerank(model="notes", query=QUERY, documents=TEXTS, top_n=1)
    assert [(each.index, each.document) for each in plain.results] == [(2, None)]


def test_text_embeddings_inference(service: RunningService, secrets: dict[str, str]) -> None:
    found = post(service, secrets["reader"], "/rerank", query=QUERY, texts=TEXTS, truncate=True, return_text=True)
    assert found.json() == [{"index": place, "score": score, "text": TEXTS[place]} for place, score in RANKS]
    plain = post(service, secrets["reader"], "/rerank", query=QUERY, texts=TEXTS, raw_scores=False)
    assert plain.json()[0] == {"index": 2, "score": 0.98}


def test_infinity(service: RunningService, secrets: dict[str, str]) -> None:
    found = post(
        service, secrets["reader"], "/rerank", query=QUERY, documents=TEXTS, return_documents=True, top_n=1
    ).json()
    assert found["results"] == [{"relevance_score": 0.98, "index": 2, "document": "a blue car"}]
    assert (found["object"], found["model"]) == ("rerank", "notes")
    named = post(service, secrets["reader"], "/rerank", query=QUERY, documents=TEXTS, model="mock:").json()
    assert named["model"] == "mock:"
    assert named["results"][0] == {"relevance_score": 0.98, "index": 2}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": QUERY}, 422),
        ({"query": QUERY, "texts": []}, 422),
        ({"query": QUERY, "texts": ["a"] * 10_001}, 422),
        ({"query": QUERY, "texts": ["a"], "raw_scores": True}, 422),
        ({"query": QUERY, "documents": ["a"], "raw_scores": True}, 422),
        ({"query": QUERY, "documents": ["a"], "top_n": 0}, 422),
        ({"query": QUERY, "documents": ["a"], "model": "hidden"}, 404),
    ],
)
def test_what_cannot_be_ranked_is_said(
    service: RunningService, secrets: dict[str, str], body: dict[str, object], status: int
) -> None:
    assert post(service, secrets["reader"], "/rerank", **body).status_code == status


def test_no_reranker_is_said(service: RunningService, secrets: dict[str, str]) -> None:
    for path, documents in (("/rerank", {"texts": ["a"]}), ("/v2/rerank", {"documents": ["a"], "model": "notes"})):
        refused = post(service, secrets["bare"], path, query=QUERY, **documents)
        assert refused.status_code == 501


def test_several_rerankers_are_told_apart_by_name(tmp_path: object) -> None:
    back_ends = {name: IndexSettings("mock:", "mock:", "", url) for name, url in (("a", "mock:"), ("b", "mock:?"))}
    with serving(ServerSettings(indexes=back_ends, uploads=str(tmp_path))) as running:
        unnamed = running.http.post("/rerank", json={"query": QUERY, "texts": TEXTS})
        assert unnamed.status_code == 400
        assert "those of a, b" in unnamed.json()["error"]["message"]
        named = running.http.post("/v2/rerank", json={"query": QUERY, "documents": TEXTS, "model": "b"})
        assert named.status_code == 200
