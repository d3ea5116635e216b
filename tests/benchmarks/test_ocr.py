"""`vlmsearch bench ocr` times pictures with text in them, and counts the words that are read."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.ocr import draw_sign
from tests.support.odd_images import textured
from vlmsearch.cli import cli


def test_words_over_pictures_are_counted_at_each_turn(tmp_path: Path) -> None:
    textured(224, 224).save(tmp_path / "a.jpg")
    result = CliRunner().invoke(
        cli, ["bench", "ocr", "--over", str(tmp_path), "--count", "1", "--rounds", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["files"]
    assert [row["file"] for row in rows] == [f"drawn, turned by {turn}" for turn in (0, 90, 180, 270)]
    for row in rows:
        assert (row["images"], row["words"]) == (1, 6)
        assert row["rapidocr_cpu_seconds"] > 0
        assert row["ratio"] > 0
        assert 0 <= row["rapidocr_found"] <= 6
        assert 0 <= row["vlmsearch_found"] <= 6
    assert sum(row["vlmsearch_found"] for row in rows) >= 20


def test_given_images_are_timed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "sign.png"
    draw_sign(textured(168, 168), 1)[0].resize((168, 168)).save(path)
    result = CliRunner().invoke(cli, ["bench", "ocr", str(path), "--rounds", "1"])
    assert result.exit_code == 0, result.output
    names, row = (line.split("\t") for line in result.stdout.splitlines())
    assert row[:2] == ["sign.png", "1"]
    assert "words" not in names


def test_pictures_are_given_or_drawn_over(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "ocr", "sign.png", "--over", str(tmp_path)])
    assert result.exit_code == 2
    assert "leave out IMAGES" in result.output
