"""Installing the wheel's Triton: what comes over the network is what was tested."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from vlmsearch.errors import ModelUnavailableError
from vlmsearch.triton.server.install import install, installed


def test_another_triton_than_was_tested_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    described = {
        "METADATA": "Metadata-Version: 2.1\nName: nvidia-pytriton\nVersion: 0.7.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(links / "nvidia_pytriton-0.7.0-py3-none-any.whl", "w") as wheel:
        for name, content in described.items():
            wheel.writestr(f"nvidia_pytriton-0.7.0.dist-info/{name}", content)
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(links), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    steps: list[str] = []
    with pytest.raises(ModelUnavailableError, match=r"Expected sha256 [0-9a-f]{64}.* Got "):
        install(report=steps.append)
    assert installed() is None
    assert not any(tmp_path.glob("cache/triton/*"))
