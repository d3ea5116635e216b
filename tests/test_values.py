"""The values that vlmsearch takes and gives, elsewhere: pickled, copied, as dicts, as JSON, and answered by FastAPI."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import PIL.Image
import pytest
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.testclient import TestClient

import vlmsearch
from vlmsearch import (
    Answer,
    Batch,
    BatchingStats,
    BatchSizes,
    CheckReport,
    Comparison,
    DescribeReport,
    DiskUse,
    Document,
    Domain,
    Duplicates,
    EncodedPassage,
    Explanation,
    Field,
    FilterGroup,
    GenerationOptions,
    Hit,
    ImageLimits,
    IndexReport,
    JudgedQuery,
    Manifest,
    Matches,
    MetadataChange,
    Part,
    Passage,
    PassageEvidence,
    Picture,
    PictureOptions,
    Pipeline,
    Query,
    Record,
    Regions,
    RelevanceFit,
    RemoteImage,
    SearchOptions,
    SourceOptions,
    Stamp,
    WordHits,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.wire import Origin, from_json, to_json

KINDS = [value for name in vlmsearch.__all__ if dataclasses.is_dataclass(value := getattr(vlmsearch, name))]
WITH_VECTORS = {Record, EncodedPassage, MetadataChange}
"""Values of stores, whose vectors have fields as keys: `asdict` would make a dict of a key, and JSON has no arrays."""
VECTORS = {Field("tiny", "text"): np.array([0.6, 0.8], np.float32)}
PASSAGE = Passage(1, 0, 5, "", "a dog")
OTHERS = [
    Batch("query", 3, 2, 0.1),
    BatchingStats(3, 2, 1, 0, 0, 0),
    BatchSizes(8, 4),
    Comparison("year", "$gte", 2020),
    DescribeReport(described=3),
    DiskUse(1, 2, None),
    Domain("dots", "dot-finder", np.eye(3)[:, :2]),
    EncodedPassage(PASSAGE, VECTORS),
    Field("clip", "image"),
    FilterGroup("$and", (Comparison("year", "$gte", 2020),)),
    GenerationOptions(stop=("\n",)),
    Hit("a", 0.3),
    ImageLimits(pixels=10),
    JudgedQuery("1", {"a": 2}, "a dog"),
    MetadataChange(Document("a", "a dog"), Stamp("1a2b"), {"year": 2021}, "3c", vectors=VECTORS),
    Part("a.pdf", page=3),
    PASSAGE,
    PassageEvidence(0, 10, 1.5),
    Picture(PIL.Image.new("RGB", (4, 3))),
    PictureOptions(),
    Query("a beach", image=Path("a.png"), without=[Query("people")]),
    Record(Document("a", text="a dog"), VECTORS, passages=(EncodedPassage(PASSAGE, VECTORS),)),
    Regions(((0.1, None), (0.0, 0.2))),
    RelevanceFit(-7.0, 20.0, 0.0, 0.0, 0.5, 0.05, 0.1),
    RemoteImage("http://h", "i", "a", "/srv/a.jpg"),
    SearchOptions(limit=5, where={"year": {"$gte": 2020}}, facets=["year"]),
    SourceOptions(),
    WordHits([Hit("a", 2.5)], 10.0),
]
"""Values that no verb gives, and those that take a model or a server."""


def parts(value: object) -> Iterator[Any]:
    """A value and the dataclasses in it."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from parts(pair)
    elif isinstance(value, Collection) and not isinstance(value, (str, bytes)):
        for entry in value:
            yield from parts(entry)


def content(value: object) -> object:
    """All that a value holds, in a form that can be compared."""
    if dataclasses.is_dataclass(value):
        return type(value), {field.name: content(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return type(value), [(content(name), content(part)) for name, part in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), list(map(content, value))
    if isinstance(value, (set, frozenset)):  # whose order a copy need not keep
        return type(value), sorted(map(repr, value))
    if isinstance(value, PIL.Image.Image):
        return value.mode, value.size, value.tobytes()
    return repr(value)


def ordered(value: Any) -> Any:
    """JSON whose lists of names, which may have been sets, are in order."""
    if isinstance(value, dict):
        return {key: ordered(part) for key, part in value.items()}
    if isinstance(value, list):
        inner = list(map(ordered, value))
        return sorted(inner) if all(isinstance(part, str) for part in inner) else inner
    return value


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[type, Any]:
    """A value of each dataclass that the verbs of a pipeline give."""
    folder = tmp_path_factory.mktemp("values")
    for name, number in {"0.png": 0, "again.png": 0, "1.png": 1}.items():
        make_scene(number).draw(96).save(folder / name)
    (folder / "bad.png").write_bytes(b"no image")
    (folder / "other.xyz").write_bytes(b"no text")
    with Pipeline.open(encoder="mock:", store="mock:", generator="mock:") as pipeline:
        added = Document("1", text="a red car", metadata={"year": 2020, "tags": ["a", "b"]})
        given: list[Any] = [pipeline.index(folder), pipeline.add([added, Document("2", text="a red bicycle " * 9)])]
        matches = pipeline.search("red car", min_score=0, facets=["year"], count=True)
        given += [matches, pipeline.explain("red car", "1"), pipeline.ask("Which car?"), pipeline.duplicates()]
        given += [*pipeline.label(["car"]), pipeline.check(), pipeline.store.manifest(), pipeline.rejects()]
        given += [pipeline.search("car", min_score=0, without="bicycle"), pipeline.info(), *pipeline.get(["1"])]
        given += [pipeline.explain("red car", "2", parts=True)]
    return {type(part): part for value in reversed(given) for part in parts(value)}


@pytest.fixture(scope="module")
def values(answers: dict[type, Any]) -> list[Any]:
    """A value of each exported dataclass, and what a client reads of those that a service sends."""
    origin = Origin("http://127.0.0.1:8080", "photos")
    sent = (Matches, Answer, Explanation, IndexReport, Duplicates, CheckReport)
    return [*answers.values(), *(from_json(kind, to_json(answers[kind]), origin) for kind in sent), *OTHERS]


def test_all_that_is_exported_is_tested(values: list[Any]) -> None:
    assert {kind for kind in KINDS if inspect.isclass(kind)} <= {type(value) for value in values}
    assert len(KINDS) > 40


ROUND_TRIPS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "pickle-2": lambda value: pickle.loads(pickle.dumps(value, 2)),
}


@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_every_value_survives(trip: str, values: list[Any]) -> None:
    for value in values:
        arrived = ROUND_TRIPS[trip](value)
        assert content(arrived) == content(value)


def test_every_value_is_a_dict_where_that_is_asked_for(values: list[Any]) -> None:
    for value in values:
        if type(value) not in WITH_VECTORS:
            given = dataclasses.asdict(value)
            assert given.keys() == {field.name for field in dataclasses.fields(value)}
            assert json.loads(json.dumps(given, default=str)).keys() == given.keys()


def test_reports_that_are_dicts_survive() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document("1", text="a red car"))
        for report in (pipeline.info(), pipeline.evaluate([JudgedQuery("1", {"1": 1}, "car")])):
            for trip in ROUND_TRIPS.values():
                assert content(trip(report)) == content(report)
            assert json.loads(json.dumps(jsonable_encoder(report), allow_nan=False))


def test_texts_that_are_no_unicode_are_answers_of_typed_routes() -> None:
    """JSON may hold half of a surrogate pair, as an escape, and what comes of it is in the index."""
    app, half = FastAPI(), Document("a", text="a red star \ud800", metadata={"k\udc00": "v\ud800", "l": ["\ud800"]})
    with Pipeline.open(encoder="mock:", store="mock:", generator="extractive:") as pipeline:
        pipeline.add(half)
        results: list[Any] = [
            pipeline.get("a")[0],
            pipeline.search("red star", min_score=0),
            pipeline.explain("star", "a"),
        ]
        for value in [*results, pipeline.ask("Where is the red star?", min_score=0)]:
            app.get(f"/{type(value).__name__}", response_model=type(value))(lambda value=value: value)
    with TestClient(app) as client:
        for kind in (Document, Matches, Explanation, Answer):
            assert "a red star \ufffd" in client.get(f"/{kind.__name__}").text, kind


def test_every_answer_is_json(answers: dict[type, Any]) -> None:
    for value in answers.values():
        assert json.loads(json.dumps(to_json(value), allow_nan=False))


def test_every_value_is_json_for_fastapi(values: list[Any]) -> None:
    for value in values:
        if type(value) not in {*WITH_VECTORS, Domain, Picture}:
            assert json.dumps(jsonable_encoder(value))


def test_fastapi_answers_with_every_answer(answers: dict[type, Any]) -> None:
    """Its routes name the class, so that it is in the description of the interface."""
    app = FastAPI()
    for kind, value in answers.items():
        app.get(f"/typed/{kind.__name__}", response_model=kind)(lambda value=value: value)
        app.get(f"/{kind.__name__}")(lambda value=value: value)
    with TestClient(app) as client:
        for kind, value in answers.items():
            typed, plain = client.get(f"/typed/{kind.__name__}"), client.get(f"/{kind.__name__}")
            assert (typed.status_code, plain.status_code) == (200, 200)
            given = json.loads(json.dumps(jsonable_encoder(value)))
            assert ordered(typed.json()) == ordered(plain.json()) == ordered(given)
        assert client.get("/openapi.json").status_code == 200
    assert {Matches, IndexReport, Document, Manifest} <= answers.keys()


def test_fastapi_reads_no_document() -> None:
    """The image of one could be any file of the server."""
    app = FastAPI()

    @app.post("/")
    def add(document: Document) -> None:
        raise AssertionError(document)

    with TestClient(app) as client:
        assert client.post("/", json={"id": "a", "image": "/etc/hostname"}).status_code == 422


@pytest.mark.parametrize("image", [b"\xff\xd8", Path("a.png"), PIL.Image.new("RGB", (4, 3))])
@pytest.mark.parametrize("metadata", [None, {}, MappingProxyType({"a": 1}), Counter("aab"), OrderedDict(a=1)])
def test_a_document_survives_with_what_it_was_made_of(image: Any, metadata: Any) -> None:
    document = Document("a", image=image, metadata=metadata)
    for trip in ROUND_TRIPS.values():
        assert trip(document) == document
    assert dataclasses.asdict(document)["metadata"] == dict(metadata or {})


@pytest.mark.parametrize("trip", ROUND_TRIPS)
@pytest.mark.parametrize("mapping", [IndexReport().unread, Matches().facets, Document("a").metadata])
def test_what_is_read_only_stays_so(mapping: Any, trip: str) -> None:
    arrived = ROUND_TRIPS[trip](mapping)
    changes: dict[str, tuple[object, ...]] = {
        "update": ({"a": 1},),
        "setdefault": ("a", 1),
        "__setitem__": ("a", 1),
        "__delitem__": ("a",),
        "__ior__": ({"a": 1},),
        "pop": ("a", None),
        "popitem": (),
        "clear": (),
    }
    for name, arguments in changes.items():
        with pytest.raises(TypeError, match="this mapping cannot be changed: change a copy of it"):
            getattr(arrived, name)(*arguments)
    assert arrived == {}
    assert dict(arrived) | {"a": 1} == {"a": 1}
