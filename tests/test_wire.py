"""The JSON forms of the public types: what is written is read back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vlmsearch import Document, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.search.explanation import Explanation
from vlmsearch.stores.base import CheckReport
from vlmsearch.types import Answer, Citation, Duplicates, IndexReport, Match, Matches, Passage, Reject, RemoteImage
from vlmsearch.wire import Origin, from_json, to_json

ORIGIN = Origin("http://127.0.0.1:1", "photos")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    opened = Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}")
    texts = {"a": "a dog in the snow", "b": "a dog in the rain", "c": "blue cars"}
    opened.add(Document(id, text=text, metadata={"n": n, "ok": n > 0}) for n, (id, text) in enumerate(texts.items()))
    picture = make_scene(1).draw(128)
    for name, size in (("large", 128), ("small", 64)):
        picture.resize((size, size)).save(tmp_path / f"{name}.png")
    opened.index([tmp_path / "large.png", tmp_path / "small.png"])
    return opened


def sent(form: object) -> dict[str, object]:
    """A form as it comes over a connection."""
    read: dict[str, object] = json.loads(json.dumps(form))
    return read


@pytest.mark.parametrize("image", [None, Path("/photos/a.jpg")])
@pytest.mark.parametrize("text", [None, "a dog \u2603"])
def test_documents_are_read_back(text: str | None, image: Path | None) -> None:
    document = Document("a/b", text, image, {"n": 1, "x": 1.5, "ok": True, "s": "\ud800"})
    there = None if image is None else RemoteImage("http://127.0.0.1:1", "photos", "a/b", "/photos/a.jpg")
    read = from_json(Document, sent(to_json(document)), ORIGIN)
    assert read == replace(document, image=there)
    assert to_json(read) == to_json(document)


def test_matches_are_read_back(pipeline: Pipeline) -> None:
    with pipeline:
        found = pipeline.search("dog", limit=1, count=True, facets=["n", "ok"])
    read = from_json(Matches, sent(to_json(found)), ORIGIN)
    assert (read.cursor, read.total, read.threshold) == (found.cursor, found.total, found.threshold)
    assert {key: dict(values) for key, values in read.facets.items()} == {
        key: dict(values) for key, values in found.facets.items()
    }
    assert [match.document for match in read] == [match.document for match in found]
    assert read[0].score == pytest.approx(found[0].score, abs=1e-6)
    for name, field in found[0].fields.items():
        assert read[0].fields[name].rank == field.rank
        assert read[0].fields[name].score == pytest.approx(field.score, abs=1e-6)


def test_matches_without_a_count_have_none() -> None:
    read = from_json(Matches, sent(to_json(Matches(threshold=0.3))), ORIGIN)
    assert (list(read), read.total, dict(read.facets), read.threshold) == ([], None, {}, 0.3)


def test_the_passage_of_a_match_is_read_back() -> None:
    passage = Passage(2, 120, 146, "Keys", "The safe has the code 4471")
    match = Match(Document("a", text="..."), 0.5, {}, {"a#passage=1": 0.25}, passage)
    form = sent(to_json(match))
    assert form["passage"] == {
        "number": 2, "start": 120, "end": 146, "heading": "Keys", "text": "The safe has the code 4471"
    }  # fmt: skip
    assert from_json(Match, form, ORIGIN) == match
    assert from_json(Match, form | {"passage": None}, ORIGIN).passage is None


def test_answers_are_read_back() -> None:
    matches = (Match(Document("a"), 0.5, {}), Match(Document("b", text="x"), 0.25, {}))
    answer = Answer("Yes [1].", (Citation(1, "a"),), matches, matches[1:], (3, 4))
    assert from_json(Answer, sent(to_json(answer)), ORIGIN) == answer


@pytest.mark.parametrize("id", ["a", "c", "nowhere", "large"])
def test_explanations_are_read_back(pipeline: Pipeline, tmp_path: Path, id: str) -> None:
    id = str(tmp_path / "large.png") if id == "large" else id
    with pipeline:
        found = pipeline.explain("dog -rain", id, where={"n": {"$lt": 2}}, parts=True)
    document = found.document
    if document is not None and document.image is not None:
        found = replace(found, document=replace(document, image=RemoteImage(ORIGIN.server, ORIGIN.index, id, id)))
    assert from_json(Explanation, sent(to_json(found)), ORIGIN) == found


def test_reports_are_read_back() -> None:
    report = IndexReport(1, 2, 3, 4, (Reject("a", "corrupt", "it is damaged"),), 1.25, 5)
    assert from_json(IndexReport, sent(to_json(report)), ORIGIN) == report


def test_duplicates_are_read_back(pipeline: Pipeline) -> None:
    with pipeline:
        found = pipeline.duplicates(threshold=0)
    read = from_json(Duplicates, sent(to_json(found)), ORIGIN)
    assert (read.compared, read.unread) == (found.compared, found.unread)
    [[one], [other]] = read.groups, found.groups
    assert [(f.id, str(f.path), f.width, f.bytes) for f in one.files] == [
        (f.id, str(f.path), f.width, f.bytes) for f in other.files
    ]
    assert one.files[0].modified == other.files[0].modified


def test_checks_are_read_back(pipeline: Pipeline) -> None:
    with pipeline:
        report = pipeline.check()
    assert from_json(CheckReport, sent(to_json(report)), ORIGIN) == report


MATCHES = to_json(Matches((Match(Document("a", text="x"), 0.5, {}),), facets={"n": {1: 2}}))


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"threshold": "high"}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"total": True}, "total"),
        ({"facets": {"n": [[1]]}}, "facets: 2 values"),
        ({"facets": []}, "facets"),
        ({"matches": {}}, "matches"),
        ({"matches": [{"id": "a"}]}, "matches: 'score' is missing"),
        ({"matches": [{"id": "a", "score": 1, "fields": {}, "image": {"server": "http://elsewhere"}}]}, "image"),
        ({"matches": [{"id": 1, "score": 1, "fields": {}, "image": "/etc/passwd"}]}, "id: .* not 1"),
    ],
)
def test_what_is_read_has_the_types_of_the_fields(wrong: dict[str, object], place: str) -> None:
    assert from_json(Matches, sent(MATCHES), ORIGIN)
    with pytest.raises(ValueError, match=place):
        from_json(Matches, sent({**MATCHES, **wrong}), ORIGIN)


def test_what_is_no_field_is_ignored() -> None:
    assert from_json(Matches, sent({**MATCHES, "new": 1}), ORIGIN) == from_json(Matches, sent(MATCHES), ORIGIN)
