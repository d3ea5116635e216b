"""`vlmsearch bench video` times films, and says what it timed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.films import FPS, film
from vlmsearch import InvalidInputError
from vlmsearch.cli import cli


def test_the_command_times_all_frames_of_each_film(tmp_path: Path) -> None:
    files = [film(tmp_path / f"{seconds}.mp4", [seconds]) for seconds in (1, 2)]
    result = CliRunner().invoke(cli, ["bench", "video", *map(str, files), "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["files"]
    assert [(row["file"], row["frames"]) for row in rows] == [("1.mp4", FPS), ("2.mp4", 2 * FPS)]
    for row in rows:
        assert row["pyav_per_second"] == pytest.approx(row["frames"] / row["pyav_cpu_seconds"], rel=0.1)
        assert row["ratio"] == pytest.approx(row["vlmsearch_per_second"] / row["pyav_per_second"], rel=0.5)
    shown = CliRunner().invoke(cli, ["bench", "video", str(files[0]), "--rounds", "1"])
    assert shown.stdout.splitlines()[1].split("\t")[:2] == ["1.mp4", str(FPS)]


def test_what_is_not_a_film_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no")
    result = CliRunner().invoke(cli, ["bench", "video", str(tmp_path / "a.mp4")])
    assert isinstance(result.exception, InvalidInputError)
    assert "is not a film" in str(result.exception)
