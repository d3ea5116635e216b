"""The relevance of a bundle that an earlier version built is renewed, and nothing else of it."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.cli import ok
from vlmsearch import ConfigError
from vlmsearch.models.bundle import data_folder, open_bundle


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The demonstration's text model with a fit as it was before `near`."""
    folder = tmp_path / "demo-minilm"
    shutil.copytree(data_folder("engines") / "demo-minilm" / "bundle", folder)
    fit = {"bias": -19.0, "cosine": 22.6, "mean": 27.8, "deviation": 62.8, "usual_mean": 0.0, "usual_deviation": 0.1}
    describe(folder, relevance={"text": fit})
    return folder


def describe(folder: Path, **changes: object) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.slow
def test_an_earlier_fit_is_refused_with_the_command_that_renews_it(earlier: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fitted by an earlier version") as refused:
        open_bundle(earlier)
    models = {path.name: path.read_bytes() for path in earlier.glob("*.onnx")}
    _, *command = shlex.split(str(refused.value).split("`")[1])
    assert "demo-minilm is in" in ok(*command, cwd=tmp_path)
    renewed, shipped = open_bundle(earlier), open_bundle(data_folder("engines") / "demo-minilm" / "bundle")
    fit, same = renewed.relevance["text"], shipped.relevance["text"]
    assert vars(fit) == pytest.approx(vars(same), rel=0.05, abs=0.02)
    assert renewed.measured["checks"] == shipped.measured["checks"]
    assert {path.name: path.read_bytes() for path in earlier.glob("*.onnx")} == models
    assert [path.name for path in tmp_path.iterdir()] == ["demo-minilm"]


def test_a_bundle_without_its_recipe_is_left_as_it_is(earlier: Path, tmp_path: Path) -> None:
    from vlmsearch.building.refit import refit_bundle

    given = json.loads((earlier / "bundle.json").read_text())
    describe(earlier, name="another", fingerprint=given["fingerprint"].replace("demo-minilm", "another"))
    before = (earlier / "bundle.json").read_bytes()
    with pytest.raises(ConfigError, match=r"recipe of .* is not known: build it again"):
        refit_bundle(earlier)
    assert (earlier / "bundle.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["demo-minilm"]
