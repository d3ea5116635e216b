"""Questions, labels, evaluations and explanations over HTTP."""

import json

import pytest

from tests.support.service import RunningService
from vlmsearch.search.explanation import Explanation
from vlmsearch.search.query import make_query
from vlmsearch.types import Answer
from vlmsearch.wire import Origin, from_json, to_json

NOTES = "/api/v1/indexes/notes"
ORIGIN = Origin("http://127.0.0.1:1", "notes")


def events(text: str) -> list[tuple[str, dict[str, object]]]:
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = (line.partition(": ")[2] for line in block.splitlines())
        found.append((name, json.loads(data)))
    return found


def test_a_question_is_answered_with_citations(running_service: RunningService) -> None:
    pipeline = running_service.service.indexes["notes"].pipeline
    found = running_service.http.post(f"{NOTES}/ask", json={"question": "Where is the dog?", "limit": 2})
    assert found.json() == to_json(pipeline.ask("Where is the dog?", limit=2))
    assert found.json()["citations"]
    assert to_json(from_json(Answer, found.json(), ORIGIN)) == found.json()


def test_a_streamed_answer_is_the_same_piece_by_piece(running_service: RunningService) -> None:
    request = {"question": "Where is the dog?", "limit": 2}
    whole = running_service.http.post(f"{NOTES}/ask", json=request).json()
    streamed = running_service.http.post(f"{NOTES}/ask", json=request | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    found = events(streamed.text)
    assert [name for name, _ in found if name != "token"] == ["matches", "answer"]
    assert found[0][1]["matches"] == whole["matches"]
    assert "".join(str(data["text"]) for name, data in found if name == "token") == whole["text"]
    assert found[-1][1] == whole


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("index", "request_", "status", "type"),
    [
        ("empty", {"question": "What?"}, 501, "not_available"),
        ("notes", {"question": "  "}, 400, "invalid_request"),
        ("notes", {"question": "What?", "template": "no places"}, 400, "invalid_request"),
        ("notes", {"question": "What?", "options": {"top_p": 2}}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_asked_is_an_error_before_anything_is_sent(
    running_service: RunningService, index: str, request_: dict[str, object], status: int, type: str, stream: bool
) -> None:
    found = running_service.http.post(f"/api/v1/indexes/{index}/ask", json=request_ | {"stream": stream})
    assert (found.status_code, found.json()["error"]["type"]) == (status, type)


def test_labels_are_those_of_the_pipeline(running_service: RunningService) -> None:
    found = running_service.http.post(f"{NOTES}/label", json={"labels": ["dog", "car"]}).json()
    assert found["labels"] == {"dog": 2, "car": 1}
    assert {each["id"]: list(each["labels"]) for each in found["documents"] if each["labels"]} == {
        "a": ["dog"], "b": ["car"], "c": ["dog"],
    }  # fmt: skip


def test_an_evaluation_measures_each_field(running_service: RunningService) -> None:
    judged = [
        {"query": "snow", "relevant": ["a"]},
        {"query": "blue", "relevant": {"b": 2}},
        {"query": "x", "relevant": []},
    ]
    found = running_service.http.post(f"{NOTES}/eval", json={"queries": judged, "rerank": True}).json()
    assert (found["queries"], found["without_answer"]) == (3, 1)
    assert found["fields"]["fused"]["measures"]["precision@1"]["value"] == 1.0
    twice = [{"id": "q", "query": "a", "relevant": []}] * 2
    assert running_service.http.post(f"{NOTES}/eval", json={"queries": twice}).status_code == 400


@pytest.mark.parametrize("id", ["a", "nowhere"])
def test_an_explanation_is_the_pipelines(running_service: RunningService, id: str) -> None:
    pipeline = running_service.service.indexes["notes"].pipeline
    request = {"text": "a dog -car", "id": id, "where": {"n": {"$lt": 1}}, "parts": True}
    found = running_service.http.post(f"{NOTES}/explain", json=request)
    explained = pipeline.explain("a dog -car", id, where={"n": {"$lt": 1}}, parts=True)
    assert found.json() == json.loads(json.dumps(to_json(explained)))
    assert from_json(Explanation, found.json(), ORIGIN) == explained


def test_several_queries_have_one_answer(running_service: RunningService) -> None:
    pipeline = running_service.service.indexes["notes"].pipeline
    queries = [{"text": "dog -snow"}, {"like": ["a"], "without": ["b"]}, {"text": "x", "without": {"image": "%%"}}]
    found = running_service.http.post(f"{NOTES}/search_many", json={"queries": queries[:2], "limit": 1})
    several = [make_query("dog -snow"), make_query(None, like="a", without=["b"])]
    assert found.json()["results"] == [to_json(each) for each in pipeline.search_many(several, limit=1)]
    assert found.json()["results"][0]["matches"][0]["id"] == "c"
    assert running_service.http.post(f"{NOTES}/search_many", json={"queries": queries}).status_code == 400
