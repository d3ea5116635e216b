"""The wheel works from outside the checkout, with everything it needs inside."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path


def test_data_and_types_are_in_it_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "vlmsearch/py.typed",
        "vlmsearch_mocks/py.typed",
        "vlmsearch/_data/engines/demo-clip/bundle/bundle.json",
        "vlmsearch/_data/engines/demo-minilm/bundle/text.int8.onnx",
        "vlmsearch/_data/engines/clip-vit-base-patch32/recipe.toml",
        "vlmsearch/_data/engines/pairs.jsonl",
        "vlmsearch/_data/engines/unanswered.txt",
    ):
        assert name in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vlmsearch", "vlmsearch_mocks"}
    data = {name.rpartition("/")[2] for name in names if name.startswith("vlmsearch/_data/engines/")}
    assert not [name for name in data if name.endswith(".py") or name.startswith(("bench-", "report-"))]
    assert not [name for name in names if "__pycache__" in name or "/build/" in name.partition("_data/")[2]]


def test_it_searches_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed), "VLMSEARCH_CACHE": str(tmp_path / "cache")}

    def run(*arguments: str) -> str:
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(sys.executable, "-c", "import vlmsearch, vlmsearch_mocks; print(vlmsearch.__file__)")
    assert where.startswith(str(installed))
    found = json.loads(run(sys.executable, "-m", "vlmsearch", "demo", "--scenes", "12", "--json"))
    assert found["added"] == 12
    assert all(Path(match["image"]).is_relative_to(tmp_path) for match in found["queries"][0]["matches"])
    assert "onnx:demo" in run(sys.executable, "-m", "vlmsearch", "doctor")
