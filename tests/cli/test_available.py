"""``vlmsearch models --available``: what there is to choose from."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.checkpoints import edit_json
from tests.support.cli import ok, run
from tests.support.paths import ENGINES
from tests.support.terminal import on_a_terminal
from vlmsearch.models.bundle import recipe_names


def test_every_recipe_is_there_with_the_source_of_each_figure(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in json.loads(ok("models", "--available", "--json"))["available"]}
    assert set(rows) >= set(recipe_names())
    one = rows["siglip2-base-patch16-224"]
    assert one["modalities"] == ["image", "text"]
    assert one["megabytes"] == pytest.approx(one["parameters"] * 4 / 1e6, abs=0.1)
    assert one["measured"] is None
    assert {figure["benchmark"] for figure in one["quality"]} > {"ImageNet zero-shot top-1"}
    assert all(figure["source"].startswith("https://") for row in rows.values() for figure in row["quality"])
    built = rows["demo-minilm"]["measured"]
    assert built["precision"] == "int8"
    assert built["texts_per_second"] > 0
    assert built["images_per_second"] is None


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_every_name_whole(columns: int) -> None:
    shown = on_a_terminal("models", "--available", environment={"COLUMNS": str(columns)}).decode()
    for name in recipe_names():
        assert name in shown
    assert ("licence" in shown) == (columns == 120)
    assert "64.4 Mr. TyDi" in shown


def test_a_model_of_an_own_recipe_is_listed_by_what_its_bundle_says(tmp_path: Path) -> None:
    folder = tmp_path / "bundles" / "own"
    shutil.copytree(ENGINES / "demo-clip/bundle", folder)
    edit_json(folder / "bundle.json", name="own", fingerprint="own:ac869800fb4a")
    (folder / "recipe.toml").write_text('name = "own"\nlicence = "MIT"\nspace = "clip"\ncheckpoint = "."\n')
    done = run("models", "--available", "--json", VLMSEARCH_CACHE=str(tmp_path))
    rows = json.loads(done.stdout)["available"]
    assert [row["name"] for row in rows[:2]] == ["own", "demo-clip"], "with the models of images"
    assert [rows[0][name] for name in ("modalities", "dim", "parameters", "megabytes")] == [
        ["image", "text"], 64, None, None
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_what_is_built_is_readable(columns: int) -> None:
    shown = on_a_terminal("models", environment={"COLUMNS": str(columns)}).decode()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    (built,) = (line.split() for line in lines if line.startswith("demo-minilm") and "int8" in line)
    assert len(built) == (7 if columns == 80 else 11), "no figure is split; the folder is there where it has room"
    assert max(map(len, lines)) <= columns
    assert not any(line.startswith("all-minilm-l6-v2") for line in lines), "what is not built takes no lines"
    assert "all-minilm-l6-v2, " in " ".join(lines)


def test_a_pipe_gets_a_line_a_model() -> None:
    lines = ok("models", "--available").splitlines()
    assert [line.split("\t")[0] for line in lines[:2]] == ["demo-clip", "tinyclip-vit-8m-16"]
    assert {len(line.split("\t")) for line in lines} == {9}
