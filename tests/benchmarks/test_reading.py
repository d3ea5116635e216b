"""Pages, films and text in pictures are read beside the bare libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.reading import main
from tests.support.films import FPS, film
from tests.support.odd_images import textured
from tests.support.pdf_files import write_pdf
from tests.support.tables import table


def test_the_pages_of_each_file_are_timed(tmp_path: Path) -> None:
    files = [write_pdf(tmp_path / f"{count}.pdf", ["text " * 10] * count) for count in (3, 8)]
    rows = table(main, "pdf", *map(str, files), "--rounds", "2")
    assert [(row["file"], row["pages"]) for row in rows] == [("3.pdf", "3"), ("8.pdf", "8")]
    for row in rows:
        rates = float(row["vlmsearch/s"]) / float(row["pypdfium2/s"])
        assert float(row["ratio"]) == pytest.approx(rates, rel=0.5)


def test_all_frames_of_each_film_are_timed(tmp_path: Path) -> None:
    files = [film(tmp_path / f"{seconds}.mp4", [seconds]) for seconds in (1, 2)]
    rows = table(main, "video", *map(str, files), "--rounds", "1")
    assert [(row["file"], row["frames"]) for row in rows] == [("1.mp4", str(FPS)), ("2.mp4", str(2 * FPS))]
    assert all(float(row["ratio"]) > 0 for row in rows)


def test_words_over_pictures_are_counted_at_each_turn(tmp_path: Path) -> None:
    textured(224, 224).save(tmp_path / "a.jpg")
    rows = table(main, "ocr", "--over", str(tmp_path), "--count", "1", "--rounds", "1")
    assert [row["pictures"] for row in rows] == [f"turned by {turn}" for turn in (0, 90, 180, 270)]
    assert {(row["number"], row["words"]) for row in rows} == {("1", "6")}
    assert sum(int(row["vlmsearch found"]) for row in rows) >= 20
