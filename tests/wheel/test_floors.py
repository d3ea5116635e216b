"""The oldest versions of what the service needs: it starts with them, and finds."""

import json
import subprocess
import time
import venv
from contextlib import suppress
from importlib.metadata import Distribution
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from tests.support.servers import free_port, running
from vlmsearch import Document, Pipeline
from vlmsearch.demo.scenes import make_scene

NAMES = ("star", "heart")


def oldest(installed: Path, extra: str) -> list[str]:
    """What the package and an extra need here, each at the first version that is allowed."""
    (metadata,) = installed.glob("*.dist-info")
    needed = map(Requirement, Distribution.at(metadata).requires or ())
    here = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    floors = [f"{each.name}=={spec.version}" for each in here for spec in each.specifier if spec.operator == ">="]
    assert len(floors) == len(here)
    return floors


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_service_finds_with_the_oldest_versions_that_are_allowed(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    for seed, name in enumerate(NAMES):
        make_scene(seed).draw(64).save(tmp_path / f"{name}.png")
    store = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(encoder="onnx:demo", store=store) as pipeline:
        pipeline.add(Document(name, text=f"a red {name}", image=tmp_path / f"{name}.png") for name in NAMES)
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *oldest(installed, "serve"), str(wheel)], check=True)
    doctor = subprocess.run([python, "-m", "vlmsearch", "doctor"], cwd=tmp_path, capture_output=True, text=True)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "ok  onnxruntime" in doctor.stdout
    port, log = free_port(), tmp_path / "log"
    serve = [python, "-m", "vlmsearch", "serve", "--store", store, "--port", str(port)]
    address = f"http://127.0.0.1:{port}/api/v1/indexes/default"
    with running(serve, log) as service, httpx.Client(base_url=address, timeout=60) as http:
        while True:
            assert service.poll() is None, log.read_text()
            with suppress(httpx.ConnectError):
                by_text = http.post("search", json={"text": "a red heart"})
                break
            time.sleep(0.1)
        image = {"image": ("star.png", (tmp_path / "star.png").read_bytes(), "image/png")}
        by_image = http.post("search", data={"request": json.dumps({"limit": 1})}, files=image)
    for answer, best in ((by_text, "heart"), (by_image, "star")):
        assert answer.status_code == 200, answer.text
        assert answer.json()["matches"][0]["id"] == best
