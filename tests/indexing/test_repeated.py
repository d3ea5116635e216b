"""Inputs of one run with the same id: the last one counts, and the report says how many were replaced."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from vlmsearch import Document, Pipeline
from vlmsearch.indexing.seen import SeenIds


def table(path: Path, count: int) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((n, f"{path.stem} {n}") for n in range(count))])


@pytest.mark.parametrize("count", [100, 1500])
def test_rows_of_two_tables_with_the_same_ids_are_counted(tmp_path: Path, count: int) -> None:
    """Also where the first table was stored before the second was read."""
    for name in ("a.csv", "b.csv"):
        table(tmp_path / name, count)
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        report = pipeline.index([tmp_path / "a.csv", tmp_path / "b.csv"])
        assert (len(pipeline), report.repeated, report.counts()["repeated"]) == (count, count, count)
        assert {document.text for document in pipeline.documents()} == {f"b {n}" for n in range(count)}
        assert pipeline.index(tmp_path / "b.csv").repeated == 0


def test_documents_with_the_same_id_are_counted_and_rejects_are_not() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        report = pipeline.add([Document("a", text="x"), Document("b", text="x"), Document("a", text="y")])
        assert (report.added, report.repeated) == (2, 1)
        assert pipeline.get(["a"])[0].text == "y"
        assert pipeline.add([Document("a", text="z")]).repeated == 0


def test_the_command_line_says_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,kind,text\nx,cat,one\ny,cat,two\nz,dog,three\n")
    said = run(
        "index", "a.csv", "--columns", "id=kind", "--store", "sqlite:i", cwd=tmp_path, VLMSEARCH_ENCODER="onnx:demo"
    )
    assert said.stdout.startswith("2 added, 0 updated")
    assert "1 had the id of an earlier one of this run and replaced it: in tables, `--columns id=COLUMN`" in said.stderr
    assert '"repeated": 1' in ok(
        "index", "a.csv", "--columns", "id=kind", "--store", "sqlite:j", "--json", cwd=tmp_path,
        VLMSEARCH_ENCODER="onnx:demo",
    )  # fmt: skip


def test_ids_are_known_however_many_came_before() -> None:
    seen, ids = SeenIds(), [f"id-{n}" for n in range(400_000)]
    for start in range(0, len(ids), 1000):
        assert seen.add(ids[start : start + 1000]) == 0
    assert seen.add([*ids[::7], "new", "new"]) == len(ids[::7]) + 1
    assert seen.add([]) == 0
