"""``vlmsearch bench servers``."""

from __future__ import annotations

import click

from vlmsearch.cli.common import command, json_option, option, print_json
from vlmsearch.errors import MissingDependencyError


@command("servers")
@option("--mongo", default="localhost:27017", show_default=True, metavar="HOST:PORT", help="Where MongoDB is.")
@option("--chroma", default="localhost:8000", show_default=True, metavar="HOST:PORT", help="Where a Chroma server is.")
@option("--documents", default=100_000, show_default=True, type=click.IntRange(1000), help="How many documents.")
@option("--dim", default=512, show_default=True, type=click.IntRange(2), help="How long their vectors are.")
@option("--queries", default=200, show_default=True, type=click.IntRange(3), help="How many searches are timed.")
@json_option
def bench_servers(mongo: str, chroma: str, documents: int, dim: int, queries: int, as_json: bool) -> None:
    """Time mongodb+chroma: and mongodb: beside the bare drivers, in turns; searches are medians.

    What it writes is in a database vlmsearch-bench, and removed at the end.
    """
    try:
        from benchmarks.servers import measure, parse_servers
    except ModuleNotFoundError as exc:
        raise MissingDependencyError(
            f"bench servers needs {exc.name}, which is not installed: pip install 'vlmsearch[chroma,mongodb]'"
        ) from exc
    from vlmsearch.export.inputs import machine

    figures = []
    for figure in measure(parse_servers(mongo, chroma), documents=documents, dim=dim, queries=queries):
        figures.append(figure)
        if not as_json:
            click.echo(f"{figure.name}\t{figure.ours:.1f}\t{figure.bare:.1f} {figure.unit}\tratio {figure.ratio:.2f}")
    if as_json:
        listed = [{"name": f.name, "ours": f.ours, "bare": f.bare, "unit": f.unit, "ratio": f.ratio} for f in figures]
        print_json({"machine": machine(), "documents": documents, "dim": dim, "queries": queries, "figures": listed})
