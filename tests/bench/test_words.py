"""`vlmsearch bench words`: a small collection in CISI's format, and gains that were computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from vlmsearch.bench.words import gain, measure_words, read_collection
from vlmsearch.cli import cli
from vlmsearch.errors import ConfigError
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.types import Document

EVERY = """.I 1
.T
Dogs in the snow
.A
Nobody, N.
.W
Huskies pull a sledge
through the forest.
.X
2	5	1
.I 2
.T
Blue cars
.W
A parade of old cars.
.I 3
.A
An author and nothing else
.I 4
.W
Boats on a lake.
"""
QUERIES = ".I 1\n.W\na sledge and\nhuskies\n.I 2\n.T\na title\n.W\ncars of old\n.I 3\n.W\nnever judged\n"
RELEVANT = "     1      1\t0\t0.000000\n     2      2\t0\t0.000000\n     2      4\t0\t0.000000\n     9      4\t0\t0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "judged"
    place.mkdir()
    for name, text in (("CISI.ALL", EVERY), ("CISI.QRY", QUERIES), ("CISI.REL", RELEVANT)):
        (place / name).write_text(text)
    return place


def test_documents_queries_and_judgements_are_read(folder: Path) -> None:
    found = read_collection(folder)
    assert found.documents == (
        Document("1", text="Dogs in the snow\nHuskies pull a sledge\nthrough the forest."),
        Document("2", text="Blue cars\nA parade of old cars."),
        Document("4", text="Boats on a lake."),
    )
    assert found.queries == {"1": "a sledge and\nhuskies", "2": "cars of old"}
    assert found.relevant == {"1": {"1"}, "2": {"2", "4"}}


def test_a_gain_is_discounted_and_a_share_of_the_best() -> None:
    best = 1 + 1 / math.log2(3)
    assert gain(["a", "b"], {"a", "b"}) == pytest.approx(1)
    assert gain(["x", "a"], {"a"}) == pytest.approx(1 / math.log2(3))
    assert gain(["b", "x", "a"], {"a", "b"}) == pytest.approx((1 + 0.5) / best)
    assert gain([*"xxxxxxxxxx", "a"], {"a"}) == 0, "only ten count"
    assert gain([str(n) for n in range(10)], {str(n) for n in range(40)}) == pytest.approx(1)


def test_words_vectors_and_both_are_measured(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "words", str(folder), "--encoder", "mock:", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["documents"], found["queries"]) == (3, 2)
    assert found["ndcg@10"].keys() == {"words", "minilm/text", "search"}
    both = (1 + 1 / (1 + 1 / math.log2(3))) / 2
    assert found["ndcg@10"]["words"] == pytest.approx(both, abs=1e-4), "boats share no word with the query"
    assert all(both - 1e-4 <= value <= 1 for value in found["ndcg@10"].values())
    lines = CliRunner().invoke(cli, ["bench", "words", str(folder), "--encoder", "mock:"]).stdout.splitlines()
    assert lines[0].endswith(": 3 documents, 2 queries")
    assert lines[1] == f"words\t{both:.3f}"


def test_what_cannot_be_measured_is_named(folder: Path, tmp_path: Path) -> None:
    with open_encoder("mock:") as encoder, open_store("mock:") as store:
        measure_words(read_collection(folder), encoder, store)
        with pytest.raises(ConfigError, match="holds documents already: give an empty store"):
            measure_words(read_collection(folder), encoder, store)
    (folder / "CISI.QRY").write_text("who knows?")
    with pytest.raises(ConfigError, match="holds no query that was judged"):
        read_collection(folder)
    with pytest.raises(ConfigError, match=r"CISI\.ALL cannot be read: a folder needs CISI\.ALL, CISI\.QRY, CISI\.REL"):
        read_collection(tmp_path)
