"""Downloading a recipe's checkpoint, from a model hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkpoints import make_bert
from tests.support.hub import REVISION, SOURCE, Hub
from vlmsearch.models.bundle import data_folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = make_bert(tmp_path / "model")
    (folder / "weights.bin.backup").write_bytes(b"not needed")
    with serving(folder) as server:
        yield server


@contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    server = Hub(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def environment_for(endpoint: str, folder: Path) -> dict[str, str]:
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(folder / "hub"),
        "VLMSEARCH_CACHE": str(folder / "cache"),
        "HF_HUB_DISABLE_XET": "1",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | settings


def build(hub: Hub, folder: Path, *, revision: str = REVISION) -> subprocess.CompletedProcess[str]:
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'name = "tiny"\nsource = "{SOURCE}"\nrevision = "{revision}"\nlicence = "MIT"\nspace = "minilm"\n'
        "[shapes]\ntext_length = [2, 8, 32]\n[calibration]\ntexts = 48\nheld_out = 24\n"
        "[gates]\ntext = { overlap = 0.5 }\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "vlmsearch", "build", str(recipe)],
        capture_output=True, text=True, env=environment_for(hub.endpoint, folder), timeout=240, check=False,
    )  # fmt: skip


def test_the_pinned_revision_is_downloaded_once_and_built(hub: Hub, tmp_path: Path) -> None:
    first = build(hub, tmp_path)
    assert first.returncode == 0, first.stderr
    described = json.loads((tmp_path / "cache/bundles/tiny/bundle.json").read_text())
    assert (described["source"], described["revision"]) == (SOURCE, REVISION)
    assert f"/{SOURCE}/resolve/{REVISION}/model.safetensors" in hub.asked
    assert not any("backup" in path for path in hub.asked), "only what a model needs is downloaded"
    hub.asked.clear()
    again = build(hub, tmp_path)
    assert again.returncode == 0, again.stderr
    assert not any("/resolve/" in path for path in hub.asked), "what is in the hub's cache is not downloaded again"


def test_a_revision_that_is_not_there_is_one_clear_line(hub: Hub, tmp_path: Path) -> None:
    result = build(hub, tmp_path, revision="f" * 40)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {SOURCE} at {'f' * 12} cannot be downloaded")
    assert "vlmsearch build tiny --from DIR" in line
    assert not (tmp_path / "cache").exists()


GENERATE = """
import sys
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.registry import open_generator
for url in sys.argv[1:]:
    try:
        with open_generator(url) as generator:
            print(generator.generate("[1] a red star", GenerationOptions(max_tokens=8)))
    except ModelUnavailableError as exc:
        sys.exit(str(exc))
"""


def test_a_language_model_is_downloaded_once_and_needs_no_hub_then(tmp_path: Path) -> None:
    def generate(endpoint: str, *urls: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", GENERATE, *urls],
            capture_output=True, text=True, env=environment_for(endpoint, tmp_path), timeout=240, check=False,
        )  # fmt: skip

    nobody = "http://127.0.0.1:1"
    url = f"transformers:{SOURCE}?revision={REVISION}"
    missing = generate(nobody, url)
    assert missing.returncode == 1
    assert missing.stderr.splitlines()[-1].startswith(f"{SOURCE} is not on this machine and cannot be fetched")
    assert missing.stderr.count("is not on this machine") == 1
    with serving(data_folder("engines") / "demo-gpt2" / "bundle") as hub:
        first = generate(hub.endpoint, url, f"transformers:{SOURCE}-2")
        assert f"/{SOURCE}/resolve/{REVISION}/model.safetensors" in hub.asked, first.stderr
        assert "transformers:demo-gpt2 works offline" in first.stderr
        asked = [path for path in hub.asked if f"{SOURCE}-2" in path]
        assert asked == [f"/api/models/{SOURCE}-2"], "asked once, not for a minute"
    again = generate(nobody, url, "transformers:demo-gpt2")
    assert (again.returncode, again.stdout) == (0, first.stdout * 2)
    assert first.stdout
