"""``vlmsearch bench store``."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import Names
from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from benchmarks.stores import StoreFigure

_PARTS = ("write", "search", "filters", "words", "process", "readers", "command")


@command("store")
@option("--stores", default="sqlite,chroma", show_default=True, metavar="LIST",
        help="Embedded stores, with options if need be (chroma?hnsw_ef_search=100), lancedb (no indexes) and "
        "lancedb-ivf (its indexes). The first is compared with the others.")  # fmt: skip
@option("--documents", default=100_000, show_default=True, type=click.IntRange(100), help="How many documents.")
@option("--dim", default=512, show_default=True, type=click.IntRange(2), help="How long their vectors are.")
@option("--queries", default=200, show_default=True, type=click.IntRange(5), help="How many searches are timed.")
@option("--random", "as_random", is_flag=True, help="Independent vectors, the hardest case, in place of clusters.")
@option("--parts", type=Names(_PARTS), default=",".join(_PARTS), show_default=True, metavar="LIST",
        help="What is measured.")  # fmt: skip
@option("--folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        help="Keep the collections in DIR; those that are there are measured and not written again.  "
        "[default: a temporary folder]")  # fmt: skip
@option("--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write all figures as JSON too.")  # fmt: skip
@json_option
def bench_store(
    stores: str, documents: int, dim: int, queries: int, as_random: bool, parts: list[str], folder: Path | None,
    report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Time embedded stores beside each other and beside LanceDB, in turns; searches are medians.

    Captions, metadata and vectors are made up, and the same in each run. Recall is against exact float32. A ratio above
    1 means that the first store is better.
    """
    from benchmarks.corpus import Corpus
    from benchmarks.stores import StoreSetting, measure_stores
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps

    names = [name.strip() for name in stores.split(",")]
    corpus = Corpus(documents, dim, as_random)
    figures: list[StoreFigure] = []
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vlmsearch-bench-")))
        setting = StoreSetting(names, corpus, queries, parts, place)  # type: ignore[arg-type]
        progress = stack.enter_context(steps("bench store"))
        try:
            figures.extend(measure_stores(setting, progress))
        except KeyboardInterrupt:
            if not figures:
                raise
            click.echo("Interrupted: these are the figures that were finished.", err=True)
    result = {
        "machine": machine(),
        "documents": documents,
        "dim": dim,
        "stores": names,
        "vectors": "random" if as_random else "clusters",
        "queries": queries,
        "figures": [figure.to_json(names[0]) for figure in figures],
    }
    if report:
        report.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(result)
    else:
        _print(figures, names, f"{documents:,} x {dim}, {machine()}")


def _print(figures: list[StoreFigure], names: list[str], title: str) -> None:
    first, *others = names
    columns = ("what", "unit", first, *(part for other in others for part in (other, "ratio")))
    rows = []
    for figure in figures:
        cells = [_number(figure.values.get(first))]
        for other in others:
            ratio = figure.ratios(first).get(other)
            cells += [_number(figure.values.get(other)), "" if ratio is None else f"{ratio:.2f}"]
        rows.append((figure.name, figure.unit, *cells))
    print_table(columns, rows, left=columns[:2], title=title)
    for figure in figures:
        if figure.note:
            click.echo(f"{figure.name}: {figure.note}", err=True)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
