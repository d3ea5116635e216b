"""``vlmsearch bench search``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from vlmsearch.cli.bench.data import numbers
from vlmsearch.cli.common import command, json_option, option, print_json, print_table
from vlmsearch.cli.progress import progress

_KINDS = ("frequent", "usual", "rare")


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if not all(kind in _KINDS for kind in kinds):
        raise click.BadParameter(f"{', '.join(_KINDS)} with a comma between them, not {text}")
    return kinds


@command("search")
@option("--documents", default=100_000, show_default=True, type=click.IntRange(1), help="Number of drawn documents.")
@option("--store", metavar="URL", help="The index of drawn documents: made if it is not there, and kept.")
@option("--encoder", default="onnx:demo-minilm", show_default=True, metavar="URL", help="The encoder of the queries.")
@option("--dim", default=512, show_default=True, type=click.IntRange(8), help="Numbers of a vector.")
@option("--words", type=_kinds, default="usual,frequent,rare", show_default=True, metavar="KIND,...", help="Words.")
@option("--lengths", type=numbers, default="2,4,8", show_default=True, metavar="N,...", help="Words of a query.")
@option("--calls", default=100, show_default=True, type=click.IntRange(1), help="Calls that are timed for each figure.")
@option("--clients", default=8, show_default=True, type=click.IntRange(1), help="Threads that search at once.")
@json_option
def bench_search(
    documents: int,
    store: str | None,
    encoder: str,
    dim: int,
    words: list[str],
    lengths: list[int],
    calls: int,
    clients: int,
    as_json: bool,
) -> None:
    """Measure searches among drawn documents, with words of each frequency, filters, counts and facets.

    A frequent word is in 4 of 10 documents, a usual one in a tenth, a rare one in one of 10,000. With --store, the
    index stays, and the next call measures it without writing it again. HTTP needs the extra `serve`.
    """
    from vlmsearch import Pipeline
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.search import WidenedEncoder, fill, measure_http, measure_searches
    from vlmsearch.registry import open_encoder, open_store

    with ExitStack() as stack:
        if store is None:
            store = f"sqlite:{Path(stack.enter_context(tempfile.TemporaryDirectory())) / 'index'}"
        model = stack.enter_context(WidenedEncoder(open_encoder(encoder), dim))
        rate = None
        with open_store(store) as filled:
            if not len(filled):
                with progress(documents, quiet=as_json, what="writing") as report:
                    rate = fill(filled, model, documents, report)
        pipeline = Pipeline(model, stack.enter_context(open_store(store)))
        figures = list(measure_searches(pipeline, words, lengths, calls=calls, clients=clients))
        memory = None
        if find_spec("uvicorn") is not None:
            of_http, memory = measure_http(encoder, dim, store, words[0], lengths[0], calls=calls, clients=clients)
            figures += of_http
        held = len(pipeline.store)
    if as_json:
        about = {"documents": held, "dim": dim, "encoder": encoder, "machine": machine_name()}
        about |= {"written_per_second": rate, "memory": None if memory is None else asdict(memory)}
        print_json({**about, "figures": [asdict(figure) for figure in figures]})
        return
    names = ("call", "words", "p50 ms", "p99 ms", "CPU ms", "calls/s")
    rows = [
        (
            f.what,
            f.words,
            *("" if n is None else f"{n:.2f}" for n in (f.p50_ms, f.p99_ms, f.cpu_ms)),
            f"{f.rate:.0f}",
        )
        for f in figures
    ]
    title = f"{held:,} documents, {machine_name()}" + (f", {rate:,.0f} written a second" if rate else "")
    if memory is not None:
        title += f"; the service has {memory.own >> 20:,} MiB of its own and {memory.mapped >> 20:,} MiB of files"
    print_table(names, rows, left=names[:2], title=title)
