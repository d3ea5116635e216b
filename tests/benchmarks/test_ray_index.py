"""`vlmsearch bench ray` times encoders beside each other, and compares an index with its rows after kills."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.cli import assert_one_line, run, run_process
from vlmsearch import Document, Pipeline


def test_encoders_are_timed_in_turns() -> None:
    result = run_process(
        "bench", "ray", "--workers", "1,2", "--documents", "700", "--rounds", "1", "--encoder", "mock:", "--json"
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    one, two = found["workers"]
    assert (one["workers"], two["workers"], found["documents"], found["encoder"]) == (1, 2, 700, "mock:")
    assert one["ratio"] == 1
    assert two["ratio"] == pytest.approx(two["documents_per_second"] / one["documents_per_second"], rel=0.1, abs=0.01)


def test_an_index_is_compared_with_its_rows_after_kills() -> None:
    with TemporaryDirectory(dir="/tmp") as place:  # Ray's sockets are in it, whose names may be 107 bytes long
        result = run_process("bench", "ray", "--rows", "1500", "--kill-every", "3", "--json", TMPDIR=place)
        left = list(Path(place).glob("vlmsearch-*"))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert sum(found["kills"].values()) > 0
    assert found["added"] + found["unchanged"] == 1500
    assert (found["missing"], found["doubled"], found["foreign"], found["clean"]) == (0, 0, 0, True)
    assert 0 < found["caller"]["least"] < found["memory"]["least"] <= found["memory"]["median"]
    assert found["rate"] > 1500 / found["seconds"]
    assert not left


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    alone = run("bench", "ray", "--kill-every", "3")
    assert (alone.returncode, "--kill-every and --store are for --rows" in alone.stderr) == (2, True)
    both = run("bench", "ray", "--rows", "9", "--workers", "1,2")
    assert (both.returncode, "leave out --workers, --documents and --rounds" in both.stderr) == (2, True)
    store = f"sqlite:{tmp_path}/index"
    with Pipeline.open(encoder="mock:", store=store) as pipeline:
        pipeline.add(Document("a", text="a dog"))
    assert_one_line(run("bench", "ray", "--rows", "9", "--store", store), "has documents: give an index that is new")
