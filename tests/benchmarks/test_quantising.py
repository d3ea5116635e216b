"""A bundle's INT8 file is compared with what another environment makes of its float32 file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.quantising import METHODS, main
from tests.support.checkpoints import make_clip, make_recipe
from tests.support.tables import table
from vlmsearch.building.bundle import build_bundle
from vlmsearch.errors import ConfigError
from vlmsearch.models.recipe import read_recipe


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("quantising")
    recipe = make_recipe(folder, make_clip(folder / "checkpoint"))
    return f"{build_bundle(read_recipe(recipe), out=folder / 'bundle', precisions=('fp32', 'qdq')).folder}/"


def make_python(path: Path, body: str) -> str:
    """Write a Python whose Model Optimizer is ``body``."""
    given = "given = dict(zip(sys.argv[3::2], sys.argv[4::2]))"
    path.write_text(f"#!{sys.executable}\nimport shutil, sys\n{given}\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_each_method_is_a_row_beside_the_bundle_of_the_same_images(tmp_path: Path, bundle: str) -> None:
    body = (
        "import numpy\n"
        "assert numpy.load(given['--calibration_data_path']).shape == (128, 32, 32, 3)\n"
        f"assert given['--calibration_method'] in {METHODS}\n"
        "shutil.copy(given['--onnx_path'], given['--output_path'])"
    )
    rows = table(main, bundle, "--python", make_python(tmp_path / "python", body))
    assert [row["who"] for row in rows] == ["vlmsearch", *(f"Model Optimizer, {method}" for method in METHODS)]
    assert 0.9 < float(rows[0]["mean cosine"]) < 1
    for row in rows[1:]:  # the float32 file itself
        assert [row[name] for name in ("mean cosine", "least cosine", "overlap@10")] == ["1.00000", "1.00000", "1.000"]


def test_what_the_other_environment_says_is_told(tmp_path: Path, bundle: str) -> None:
    python = make_python(tmp_path / "python", "sys.exit('No module named modelopt')")
    with pytest.raises(ConfigError, match=r"did not quantise \(No module named modelopt\): install nvidia-modelopt"):
        table(main, bundle, "--python", python)


def test_a_model_without_the_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"demo-minilm has no image tower in qdq: `vlmsearch build NAME"):
        table(main, "demo-minilm", "--python", sys.executable)
