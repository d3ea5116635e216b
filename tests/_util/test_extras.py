"""The command that installs an extra works from where the package came from."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vlmsearch._util.extras import install_command


class Installed:
    def __init__(self, url: str | None) -> None:
        self.url = url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.url is None else json.dumps({"url": self.url})


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda url: monkeypatch.setattr(metadata, "distribution", lambda _: Installed(url))


def test_from_an_index(source: Any) -> None:
    source(None)
    assert install_command("pdf", "ocr") == "pip install 'vlmsearch[pdf,ocr]'"


def test_from_a_checkout(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my checkout"
    folder.mkdir()
    source(folder.as_uri())
    assert install_command("pdf") == "pip install 'vlmsearch[pdf]'", "the checkout is gone"
    (folder / "pyproject.toml").touch()
    assert install_command("pdf") == f"pip install '{folder}[pdf]'"
    monkeypatch.chdir(folder)
    assert install_command("pdf") == "pip install '.[pdf]'"


def test_from_a_wheel(source: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "vlmsearch-1-py3-none-any.whl"
    wheel.touch()
    source(wheel.as_uri())
    assert install_command("pdf") == f"pip install 'vlmsearch[pdf] @ {wheel.as_uri()}'"


def test_torch_comes_without_cuda(source: Any) -> None:
    source(None)
    assert install_command("build").endswith(" --extra-index-url https://download.pytorch.org/whl/cpu")
