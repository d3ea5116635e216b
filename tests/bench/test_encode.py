"""`vlmsearch bench encode` times everyone alike, and says what it timed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from vlmsearch.bench.encode import INT8_NAME, EncodeTiming, long_texts, ratios
from vlmsearch.cli import cli
from vlmsearch.errors import VlmsearchError


def test_rates_are_medians_and_ratios_compare_within_a_task() -> None:
    timings = [
        EncodeTiming("a", INT8_NAME, 10, (1.0, 100.0, 2.0)),
        EncodeTiming("a", "peer", 10, (4.0, 4.0, 5.0)),
        EncodeTiming("b", INT8_NAME, 10, (1.0,)),
        EncodeTiming("b", "peer", 10, (3.0,)),
    ]
    assert timings[0].rate == 5
    assert ratios(timings) == {f"a: {INT8_NAME} / peer": 2.0, f"b: {INT8_NAME} / peer": 3.0}


def test_texts_are_timed_in_both_precisions(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a red star","a blue ring",4.5\n"two hearts, small","x",1\n' * 8)
    arguments = ["bench", "encode", "demo-minilm", "--texts", str(tmp_path / "t.csv"), "--rounds", "1", "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    rows = {row["contender"]: row for row in data["timings"]}
    assert set(rows) == {"vlmsearch int8", "vlmsearch fp32"}
    assert all(row["items"] == 24 and row["items_per_second"] > 0 for row in rows.values())
    assert data["ratios"]["texts: vlmsearch int8 / vlmsearch fp32"] > 0
    assert data["threads"] == 2
    assert data["machine"]


def test_long_texts_are_as_long_as_abstracts_and_differ() -> None:
    texts = long_texts(40)
    assert {len(text.split()) for text in texts} == {180}
    assert len(set(texts)) == 40


def test_a_run_says_where_it_is_and_an_interrupted_one_keeps_what_it_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vlmsearch.bench.encode.file_task", interrupted)
    result = CliRunner().invoke(cli, ["bench", "encode", "demo-clip", "--count", "4", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    rows = [line.split("\t")[:2] for line in result.stdout.splitlines()]
    assert rows == [["pixels to vectors", "vlmsearch int8"], ["pixels to vectors", "vlmsearch fp32"]]
    assert "timing demo-clip: pixels to vectors" in result.stderr
    assert "Interrupted" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["encode", "demo"], "demo is several models; name one of demo-clip, demo-minilm"),
        (["encode", "demo-clip", "--texts", "/nowhere.txt"], "cannot be read"),
        (["encode", "demo-clip", "--texts", "long.csv"], "long.csv cannot be read as text: field larger than"),
        (["encode", "demo-clip", "--images", "/nowhere"], "holds no JPEG files"),
        (["encode", "demo-clip", "--images", "bad"], "'bad/cut.jpg' is in no format"),
        (["encode", "demo-minilm", "--images", "bad"], "demo-minilm encodes no images: leave out --images"),
    ],
)
def test_data_that_cannot_be_used_are_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    csv.field_size_limit(131_072)  # what Python begins with; reading tables raises it for the whole process
    for name, text in (("long.csv", "x y" * 60_000), ("bad/cut.jpg", "no image")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(cli, ["bench", *arguments])
    assert isinstance(result.exception, VlmsearchError)
    assert message in str(result.exception)
