"""Rooms reach none above them by a string either, where the contracts of imports cannot see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT
from vlmsearch._util.tables import read_table

PROJECT: Any = read_table(ROOT / "pyproject.toml")
LAYERS = [layer.split(" | ") for layer in PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]]


def layer_of(module: str) -> int:
    """Return the number of the layer of a module, the highest first; below all for one of no layer."""
    depths = {
        name: depth for depth, layer in enumerate(LAYERS) for name in layer if f"{module}.".startswith(f"{name}.")
    }
    return depths[max(depths, key=len)] if depths else len(LAYERS)


def named_modules(source: str) -> Iterator[tuple[int, str]]:
    """Yield the modules of the package that strings name, each with its line; the strings of an f-string too."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(str(text)) if name := re.match(r"vlmsearch(\.\w+)+", text):
                parts = name[0].split(".")
                for end in range(len(parts), 1, -1):
                    path = ROOT.joinpath(*parts[:end])
                    if path.is_dir() or path.with_suffix(".py").is_file():
                        yield node.lineno, ".".join(parts[:end])
                        break


def strings_above(module: str, source: str) -> list[str]:
    return [f"{module}:{line}: {name}" for line, name in named_modules(source) if layer_of(name) < layer_of(module)]


def test_no_string_names_a_room_above() -> None:
    reached = []
    for path in sorted((ROOT / "vlmsearch").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module != "vlmsearch":
            reached += strings_above(module, path.read_text(encoding="utf-8"))
    assert reached == []


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("vlmsearch._util.markup", 'import_module("vlmsearch.notebook").to_html(value)', 1),
        ("vlmsearch.media.images", 'import_module(f"vlmsearch.cli.{name}")', 1),
        ("vlmsearch.triton.client.batches", 'import_module("vlmsearch.triton.repository.writer:write")', 1),
        ("vlmsearch._util.gpu", 'import_module("vlmsearch._util.ort")', 0),
        ("vlmsearch.cli", 'import_module(f"vlmsearch.cli.{name}")', 0),
        ("vlmsearch.models.bundle", 'entry_points(group="vlmsearch.builders")', 0),
        ("vlmsearch.search.engine", 'note("vlmsearch.count", 1)', 0),
    ],
)
def test_the_rule(module: str, source: str, count: int) -> None:
    assert len(strings_above(module, source)) == count
