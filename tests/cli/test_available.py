"""``vlmsearch models --available``: what there is to choose from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import ok
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


def test_a_pipe_gets_a_line_a_model() -> None:
    lines = ok("models", "--available").splitlines()
    assert [line.split("\t")[0] for line in lines[:2]] == ["demo-clip", "tinyclip-vit-8m-16"]
    assert {len(line.split("\t")) for line in lines} == {9}
