"""`vlmsearch bench pdf` times the pages of files, and says what it timed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.pdf_files import write_pdf
from vlmsearch import InvalidInputError
from vlmsearch.cli import cli


def test_the_command_times_the_pages_of_each_file(tmp_path: Path) -> None:
    files = [write_pdf(tmp_path / f"{count}.pdf", ["text " * 10] * count) for count in (3, 8)]
    result = CliRunner().invoke(cli, ["bench", "pdf", *map(str, files), "--count", "5", "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["files"]
    assert [(row["file"], row["pages"]) for row in rows] == [("3.pdf", 3), ("8.pdf", 5)]
    for row in rows:
        assert row["pypdfium2_per_second"] > 0
        assert row["ratio"] == pytest.approx(row["vlmsearch_per_second"] / row["pypdfium2_per_second"], rel=0.5)
    shown = CliRunner().invoke(cli, ["bench", "pdf", str(files[0]), "--rounds", "1"])
    assert shown.stdout.splitlines()[1].split("\t")[:2] == ["3.pdf", "3"]


def test_what_is_not_a_pdf_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"no")
    result = CliRunner().invoke(cli, ["bench", "pdf", str(tmp_path / "a.pdf")])
    assert isinstance(result.exception, InvalidInputError)
    assert "is not a PDF" in str(result.exception)
