"""Values of metadata by every way in: what one keeps all keep, and what none keeps is said and costs nothing else."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import haystack
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from langchain_core.documents import Document as LangchainDocument
from llama_index.core.schema import TextNode

from tests.support.service import serving
from tests.support.shards import write_tar
from vlmsearch import Document, Pipeline
from vlmsearch.integrations.haystack import VlmsearchDocumentStore
from vlmsearch.integrations.langchain import VlmsearchVectorStore
from vlmsearch.integrations.llama_index import VlmsearchNodeStore
from vlmsearch.server.settings import IndexSettings, ServerSettings

UNREAD, MISSING = object(), object()
Metadata: TypeAlias = Mapping[str, Mapping[str, Any]]
Door: TypeAlias = Callable[[Metadata, Pipeline, Path], Metadata]
CASES: dict[str, tuple[Any, Any]] = {
    "word": ("a", "a"),
    "whole": (7, 7),
    "number": (0.5, 0.5),
    "bool": (True, True),
    "time": (dt.time(12, 30), "12:30:00"),
    "date": (dt.date(2024, 5, 1), "2024-05-01"),
    "moment": (dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc), "2024-05-01T12:00:00+00:00"),
    "decimal": (Decimal("1.50"), 1.5),
    "whole decimal": (Decimal(2**53 + 1), 2**53 + 1),
    "duration": (dt.timedelta(minutes=1.5), 90.0),
    "numpy duration": (np.timedelta64(1_500_000_000, "ns"), 1.5),
    "pandas duration": (pd.Timedelta(seconds=1.5), 1.5),
    "nanoseconds": (pd.Timestamp("2024-05-01T12:00:00.000001002"), "2024-05-01T12:00:00.000001"),
    "uuid": (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "enum": (Enum("Season", {"WINTER": "winter"}).WINTER, "winter"),  # type: ignore[attr-defined]
    "path": (Path("a/b"), "a/b"),
    "half": (np.float16(1.5), 1.5),
    "none": (None, MISSING),
    "nan": (math.nan, MISSING),
    "nat": (pd.NaT, MISSING),
    "empty list": ([], MISSING),
    "infinity": (math.inf, UNREAD),
    "large": (2**63, UNREAD),
    "large decimal": (Decimal(10**30), UNREAD),
    "bytes": (b"x", UNREAD),
    "numbers": ([1, 2], UNREAD),
    "fields": ({"a": 1}, UNREAD),
    "set": ({1, 2}, UNREAD),
    "array": (np.zeros(2), UNREAD),
    "interval": (pd.Interval(0, 1), UNREAD),
    "object": (object(), UNREAD),
    "months": (np.timedelta64(1, "M"), UNREAD),
    "year 12024": (np.datetime64("12024-01-01"), UNREAD),
    "$price": (7, UNREAD),
    "k" * 129: (7, UNREAD),
    "two, keys": ([1, 2], UNREAD),
}
KEPT_AS_JSON = {
    "none",
    "nan",
    "empty list",
    "numbers",
    "fields",
    "infinity",
    "large",
    "large decimal",
    "$price",
    "k" * 129,
    "two, keys",
}
"""What LangChain, Haystack and LlamaIndex get back as they gave it, though no filter sees it."""


def expected(key: str, plain: Any) -> dict[str, Any]:
    if plain is UNREAD:
        return {"unread": f"1 {key[:40].replace(',', ' ')} value", "unread_count": 1}
    return {} if plain is MISSING else {key: plain}


def stored(pipeline: Pipeline) -> Metadata:
    return {document.id: document.metadata for document in pipeline.get(sorted(pipeline.store.ids()))}


def is_json(value: object) -> bool:
    try:
        return bool(json.dumps(value))
    except TypeError:
        return False


def is_arrow(value: object) -> bool:
    try:
        pa.array([value])
    except (pa.ArrowException, OverflowError, ValueError):
        return False
    return True


def of_file(pipeline: Pipeline, path: Path) -> Metadata:
    report = pipeline.index(path)
    assert not report.rejects
    return {id.removeprefix(f"{path}/"): metadata for id, metadata in stored(pipeline).items()}


def by_dicts(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    pipeline.add([{"id": id, "text": id, **fields} for id, fields in rows.items()])
    return stored(pipeline)


def by_documents(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    pipeline.add([Document(id, text=id, metadata=fields) for id, fields in rows.items()])
    return stored(pipeline)


def by_pandas(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    for id, fields in rows.items():
        columns = {key: pd.Series([value], dtype=object) for key, value in fields.items()}
        pipeline.add(pd.DataFrame({"id": [id], "text": [id], **columns}))
    return stored(pipeline)


def by_arrow(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    for id, fields in rows.items():
        pipeline.add(pa.Table.from_pylist([{"id": id, "text": id, **fields}]))
    return stored(pipeline)


def by_parquet(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    keys = [key for fields in rows.values() for key in fields]
    columns = {key: [fields.get(key) for fields in rows.values()] for key in keys}
    pq.write_table(pa.table({"id": list(rows), "text": list(rows), **columns}), folder / "t.parquet")
    return of_file(pipeline, folder / "t.parquet")


def by_jsonl(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    lines = [json.dumps({"id": id, "text": id, **fields}) for id, fields in rows.items()]
    (folder / "t.jsonl").write_text("\n".join(lines))
    return of_file(pipeline, folder / "t.jsonl")


def by_tar(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    members = {f"{id}.json": {"text": id, **fields} for id, fields in rows.items()}
    return of_file(pipeline, write_tar(folder / "t.tar", members))


def by_http(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    settings = ServerSettings(indexes={"default": IndexSettings(f"sqlite:{folder / 'served'}", "mock:")})
    forms = [{"id": id, "text": id, "metadata": fields} for id, fields in rows.items()]
    with serving(settings) as service:
        content = json.dumps({"documents": forms})
        answer = service.http.post(
            "/api/v1/indexes/default/documents", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        report = answer.json()
        assert report["partly_read"] == sum(report["unread"].values()) > 0
        found = service.http.get("/api/v1/indexes/default/documents", params={"limit": 100}).json()["documents"]
    return {document["id"]: document["metadata"] for document in found}


def by_langchain(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    store = VlmsearchVectorStore(pipeline)
    store.add_documents([LangchainDocument(id, id=id, metadata=dict(fields)) for id, fields in rows.items()])
    return {document.id or "": document.metadata for document in store.get_by_ids(list(rows))}


def by_haystack(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    store = VlmsearchDocumentStore(f"sqlite:{folder / 'haystack'}", encoder="mock:")
    store.write_documents([haystack.Document(id=id, content=id, meta=dict(fields)) for id, fields in rows.items()])
    with closing(store):
        return {document.id: document.meta for document in store.filter_documents()}


def by_llama_index(rows: Metadata, pipeline: Pipeline, folder: Path) -> Metadata:
    store = VlmsearchNodeStore(f"sqlite:{folder / 'llama'}", encoder="mock:")
    store.add([TextNode(id_=id, text=id, metadata=dict(fields)) for id, fields in rows.items()])
    with closing(store):
        return {node.node_id: node.metadata for node in store.get_nodes(list(rows))}


FRAMEWORKS: tuple[Door, ...] = (by_langchain, by_haystack, by_llama_index)
CARRIED: dict[Door, Callable[[object], bool]] = {
    by_arrow: is_arrow,
    by_parquet: is_arrow,
    by_jsonl: is_json,
    by_tar: is_json,
    by_http: is_json,
}
"""Which values the others can carry; Python's own carry all."""


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store="mock:") as opened:
        yield opened


@pytest.mark.parametrize("door", [by_dicts, by_documents, by_pandas, *CARRIED, *FRAMEWORKS])
def test_a_value_is_kept_alike_by_every_way_in_and_costs_itself_at_most(
    door: Door, pipeline: Pipeline, tmp_path: Path
) -> None:
    is_carried: Callable[[object], bool] = CARRIED.get(door, lambda _: True)
    rows = {f"{place:02}": {key: CASES[key][0]} for place, key in enumerate(CASES) if is_carried(CASES[key][0])}
    made = door(rows, pipeline, tmp_path)
    for id, fields in rows.items():
        ((key, value),) = fields.items()
        if door in FRAMEWORKS and (key in KEPT_AS_JSON or CASES[key][1] is MISSING):
            json_value = None if value is pd.NaT else int(value) if isinstance(value, Decimal) else value
            assert repr(made[id]) == repr({key: json_value})
        else:
            assert made[id] == expected(key, CASES[key][1])
            assert all(type(part) in (str, int, float, bool) for part in made[id].values())


@pytest.mark.parametrize("is_file", [True, False])
def test_a_column_of_arrow_costs_its_values_at_most_whatever_its_type(
    pipeline: Pipeline, tmp_path: Path, is_file: bool
) -> None:
    moment = 1_714_564_800_000_001_002
    kept: dict[str, tuple[pa.Array, Any]] = {
        "category": (pa.array(["x"]).dictionary_encode(), "x"),
        "large": (pa.array(["x"], pa.large_string()), "x"),
        "view": (pa.array(["x"], pa.string_view()), "x"),
        "nanoseconds": (pa.array([moment], pa.timestamp("ns", "Europe/Oslo")), "2024-05-01T14:00:00.000001+02:00"),
        "time": (pa.array([moment % 10**9], pa.time64("ns")), "00:00:00.000001"),
        "duration": (pa.array([1_500_000_002], pa.duration("ns")), 1.5),
        "decimal": (pa.array([Decimal("1.50")], pa.decimal256(60, 2)), 1.5),
        "whole": (pa.array([Decimal(2**53 + 1)], pa.decimal128(18, 0)), 2**53 + 1),
        "uint64": (pa.array([5], pa.uint64()), 5),
        "half": (pa.array([1.5], pa.float16()), 1.5),
        "uuid": (pa.array([UUID(int=5).bytes], pa.uuid()), str(UUID(int=5))),
    }
    unread: dict[str, pa.Array] = {
        "embedding": pa.array([[0.5] * 768], pa.list_(pa.float32(), 768)),
        "tokens": pa.array([[[1], [2]]], pa.large_list(pa.list_(pa.int8()))),
        "places": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "fields": pa.array([{"a": 1}]),
        "bytes": pa.array([b"x"], pa.large_binary()),
        "uint": pa.array([2**63], pa.uint64()),
        "year": pa.array([400_000_000_000], pa.timestamp("s")),
        "day": pa.array([40_000_000], pa.date32()),
        "age": pa.array([2**62], pa.duration("s")),
        "zone": pa.array([1], pa.timestamp("us", "No/Where")),
        "word": pa.array([b"\xff"]).view(pa.string()),
    }
    missing = {"null": pa.nulls(1), "none": pa.array([[]], pa.list_(pa.int8()))}
    arrays = {key: array for key, (array, _) in kept.items()} | unread | missing
    table = pa.table({"id": pa.array([Decimal("1.50")]), "text": pa.array([7]), **arrays})
    if is_file:
        pq.write_table(table, tmp_path / "t.parquet")
        report = pipeline.index(tmp_path / "t.parquet")
    else:
        unread["months"] = pa.array([pa.MonthDayNano([1, 2, 3])])  # which Parquet does not have
        report = pipeline.add(table.append_column("months", unread["months"]))
    (document,) = pipeline.get(["1.50"])
    assert document.text == "7"
    assert (report.added, report.unread) == (1, {f"{key} value": 1 for key in sorted(unread)})
    values = {key: value for key, (_, value) in kept.items()}
    names = ", ".join(f"1 {key} value" for key in sorted(unread))
    assert document.metadata == {**values, "unread": names, "unread_count": len(unread)}


def test_an_id_of_any_type_is_its_text(pipeline: Pipeline, tmp_path: Path) -> None:
    ids = [UUID(int=5), dt.date(2024, 5, 1), Decimal("1.50"), Decimal(2**53 + 1), 7, np.int64(8), 0.5]
    texts = [str(UUID(int=5)), "2024-05-01", "1.50", "9007199254740993", "7", "8", "0.5"]
    pipeline.add([{"id": id, "text": text} for id, text in zip(ids, texts)])
    assert {document.id: document.text for document in pipeline.get(texts)} == {text: text for text in texts}
    for id, text in zip(ids[:-2], texts):
        pq.write_table(pa.table({"id": [id], "text": [text]}), tmp_path / "t.parquet")
        assert pipeline.index(tmp_path / "t.parquet").updated == 1
