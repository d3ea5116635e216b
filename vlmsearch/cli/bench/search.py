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


@command("search")
@option("--documents", default=100_000, show_default=True, type=click.IntRange(1), help="Number of drawn documents.")
@option("--store", metavar="URL", help="The index of drawn documents: made if it is not there, and kept.")
@option("--encoder", default="onnx:demo-minilm", show_default=True, metavar="URL", help="The encoder of the queries.")
@option("--dim", type=click.IntRange(8), help="Draw documents of 50 words with vectors of N random numbers.")
@option("--calls", default=100, show_default=True, type=click.IntRange(1), help="Calls that are timed for each figure.")
@option("--clients", default=8, show_default=True, type=click.IntRange(1), help="Clients that ask at once.")
@option("--workers", type=numbers, default="1,2", show_default=True, metavar="N,...", help="Processes of the service.")
@json_option
def bench_search(
    documents: int,
    store: str | None,
    encoder: str,
    dim: int | None,
    calls: int,
    clients: int,
    workers: list[int],
    as_json: bool,
) -> None:
    """Measure searches among drawn captions: in a process, as a command, and over HTTP.

    Captions have everyday words, a number each, and the vectors of --encoder. With --dim, documents of 50 words are
    searched in this process alone: a frequent word is in 4 of 10, a usual one in a tenth, a rare one in one of 10,000.
    With --store, the index stays, and the next call measures it without writing it again. HTTP needs the extra `serve`.
    """
    from vlmsearch import Pipeline
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench import search
    from vlmsearch.registry import open_encoder, open_store

    with ExitStack() as stack:
        if store is None:
            store = f"sqlite:{Path(stack.enter_context(tempfile.TemporaryDirectory())) / 'index'}"
        model = stack.enter_context(open_encoder(encoder))
        draw, queries = search.draw_captions, search.caption_queries()
        if dim is not None:
            model = search.WidenedEncoder(model, dim)
            draw, queries = search.draw_documents, search.marked_queries()
        rate = None
        with open_store(store) as filled:
            if not len(filled):
                with progress(documents, quiet=as_json, what="writing") as report:
                    rate = search.fill(filled, model, draw(documents, model), report)
        with open_store(store) as opened:
            held = len(opened)
            figures = list(search.measure_searches(Pipeline(model, opened), queries, calls=calls, clients=clients))
        if dim is None:
            figures += search.measure_processes(encoder, store, queries[0], calls=-(-calls // 10))
            for number in workers if find_spec("uvicorn") else ():
                own = {"workers": number, "calls": calls, "clients": clients}
                figures += search.measure_http(encoder, store, queries[0], **own)
    if as_json:
        about = {"documents": held, "dim": dim, "encoder": encoder, "machine": machine_name()}
        print_json({**about, "written_per_cpu_second": rate, "figures": [asdict(figure) for figure in figures]})
        return
    names = ("call", "words", "p50 ms", "p99 ms", "CPU ms", "calls/s", "MiB")
    rows = [
        (
            f.what,
            f.words,
            *("" if n is None else f"{n:.2f}" for n in (f.p50_ms, f.p99_ms, f.cpu_ms)),
            f"{f.rate:.1f}",
            "" if f.memory is None else f"{f.memory >> 20:,}",
        )
        for f in figures
    ]
    title = f"{held:,} documents, {machine_name()}" + (f", {rate:,.0f} written in a CPU second" if rate else "")
    print_table(names, rows, left=names[:2], title=title)
