"""What the page on upgrading says of formats and of files that stay, against the sources."""

from __future__ import annotations

import re

from tests.support.paths import ROOT
from vlmsearch.indexing import parquet
from vlmsearch.models import bundle
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.sqlite.schema import VERSION
from vlmsearch.stores.sqlite.upgrade import EARLIER
from vlmsearch.tensorrt.engine import plans

PAGE = (ROOT / "docs" / "howto" / "upgrading.md").read_text(encoding="utf-8")
HINTS = "noted"
"""What the command line keeps in the cache of its hints."""


def rows(first: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this title."""
    table = PAGE.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_formats_of_indexes_are_those_of_the_sources() -> None:
    shown = {name.strip("`"): (int(number), opened) for name, number, opened, _ in rows("index")}
    stores = (PostgresStore, MongoStore, ChromaStore, MongoChromaStore)
    assert shown.pop("sqlite:") == (VERSION, f"{min(EARLIER)} to {VERSION}")
    assert shown.pop("Parquet of `vlmsearch export") == (parquet._VERSION, " to ".join(map(str, parquet._READ)))
    assert shown == {f"{store.kind}:": (store.format, str(store.format)) for store in stores}


def test_the_formats_of_models_are_those_of_the_sources() -> None:
    numbers = [int(number) for _, number, _ in rows("what") if number]
    assert numbers == [bundle.FORMAT, plans._FORMAT]


def test_every_place_in_the_cache_is_named() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "vlmsearch").rglob("*.py"))
    written = set(re.findall(r"cache_folder\(\)\)? / \"(\w+)\"", text))
    places = [place.strip("`") for place, _, _ in rows("place")]
    named = {place.rpartition("/")[2] for place in places if place.startswith("~/.cache/vlmsearch/")}
    assert {"bundles", "plans", "triton"} < written
    assert written - {HINTS} == named - {HINTS}
    assert HINTS in named
