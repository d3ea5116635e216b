"""The store of PostgreSQL beside what a user would write with pgvector and full text search."""

from pathlib import Path

import psycopg
from click.testing import CliRunner

import vlmsearch
from benchmarks.pgvector import main

ALL = ["postgresql:", str(Path(vlmsearch.__file__).parents[1]), "pgvector, hnsw", "pgvector, bits", "tsvector"]


def test_builds_and_bare_tables_stand_beside_each_other(postgres_url: str) -> None:
    url = f"{postgres_url.rpartition('/')[0]}/bench_pgvector"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("CREATE DATABASE bench_pgvector")
    sizes = ["--documents", "2000", "--timed", "500", "--dim", "64", "--calls", "2"]
    done = CliRunner().invoke(main, ["--url", url, "--against", ALL[1], *sizes], catch_exceptions=False)
    _, names, *lines = (line.split("\t") for line in done.output.splitlines())
    assert names == ["figure", *ALL, "ratio"]
    rows = {name: dict(zip(names[1:], cells)) for name, *cells in lines}
    for name in (
        "written, ms a document",
        "words, 2 usual, 1 %",
        "nearest, 0.1 %, equality",
        "Pipeline.search, 2 usual",
    ):
        costs = {who: list(map(float, cell.split(" + "))) for who, cell in rows[name].items() if " + " in cell}
        assert all(server > 0 and client > 0 for server, client in costs.values())
        asked = {"written": ALL, "words": [*ALL[:2], "tsvector"], "nearest": ALL[:4]}.get(name.split(",")[0], ALL[:2])
        assert list(costs) == asked
        assert (float(rows[name]["ratio"] or 0) > 0) is not name.startswith("written")
    assert int(rows["Pipeline.search, 2 usual, waits for the server"][ALL[0]]) > 3
    filters = [name.removeprefix("recall, ") for name in rows if name.startswith("recall")]
    assert filters == ["all", *(f"{share} %, {kind}" for kind in ("equality", "range") for share in
                                ("0.1", "1", "10", "50", "100"))]  # fmt: skip
    for of in filters:
        assert rows[f"recall, {of}"][ALL[0]] == "1.000; 100.0%", "few documents are compared exactly"
        assert float(rows[f"recall, {of}"]["pgvector, hnsw"][:5]) > 0.5
    again = CliRunner().invoke(main, ["--url", url, *sizes])
    assert again.exit_code == 2
    assert "take an empty one" in again.output
