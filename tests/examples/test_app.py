"""The application among the examples: what a user sees who copies it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.paths import ROOT
from vlmsearch.demo.scenes import make_scene


def ask(address: str) -> tuple[int, object]:
    answer = httpx.get(address, timeout=30)
    return answer.status_code, answer.json()


def test_it_indexes_a_folder_and_answers_searches(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(8):
        make_scene(number).draw(96).save(tmp_path / "photos" / f"{number}.png")
    command = [sys.executable, str(ROOT / "examples" / "app" / "search_app.py"), "photos", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as app:
        try:
            assert app.stdout
            said = app.stdout.readline()
            assert said.startswith("8 added; http://127.0.0.1:")
            address = said.split()[-1]
            status, matches = ask(f"{address}a+square&limit=3")
            assert status == 200
            assert isinstance(matches, list)
            assert 1 <= len(matches) <= 3
            assert [match["score"] for match in matches] == sorted((match["score"] for match in matches), reverse=True)
            assert {Path(match["id"]).suffix for match in matches} == {".png"}
            assert ask(f"{address}star&limit=many")[0] == 400
            assert ask(f"{address}star&limit=0")[0] in (400, 503)
            assert ask(address.replace("/search?q=", "/"))[0] == 404
        finally:
            app.send_signal(signal.SIGINT)
        assert app.wait(120) == 0
        assert app.stdout.read().splitlines() == ["stopped"]


@pytest.mark.parametrize(
    "name", ["app/search_app.py", "encoder-plugin/vlmsearch_colours.py", "haystack_app.py", "llama_index_app.py"]
)
def test_it_is_as_short_as_it_is_said_to_be(name: str) -> None:
    lines = [line for line in (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 55
