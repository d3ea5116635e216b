"""The store of PostgreSQL beside bare pgvector."""

import psycopg
from click.testing import CliRunner

from benchmarks.pgvector import main


def test_both_are_written_and_searched_and_the_figures_stand_beside_each_other(postgres_url: str) -> None:
    url = f"{postgres_url.rpartition('/')[0]}/bench_pgvector"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("CREATE DATABASE bench_pgvector")
    sizes = ["--documents", "2000", "--timed", "1000", "--dim", "32"]
    done = CliRunner().invoke(main, ["--url", url, *sizes], catch_exceptions=False)
    rows = {row[0]: row[1:] for row in (line.split("\t") for line in done.output.splitlines())}
    assert rows["figure"] == ["postgresql:", "bare pgvector", "ratio"]
    assert float(rows["search of 10, p50 ms"][2]) > 0
    assert float(rows["written a second"][2]) > 0
    assert all(float(recall) > 0.5 for recall in rows["recall"][:2])
    again = CliRunner().invoke(main, ["--url", url, *sizes])
    assert again.exit_code == 2
    assert "take an empty one" in again.output
