"""``vlmsearch bench serve``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from vlmsearch.cli.bench.data import numbers, read_texts
from vlmsearch.cli.common import SECONDS, command, json_option, option, print_json, print_table

_TEXTS = 512


@command("serve")
@click.argument("url", required=False)
@option("--index", default="default", show_default=True, metavar="NAME", help="The index of the service at URL.")
@option("--verb", type=click.Choice(("search", "embed")), default="search", show_default=True, help="Verb to measure.")
@option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@option("--store", metavar="URL", help="A store with an index.  [default: a temporary index of the texts]")
@option("--clients", type=numbers, metavar="N,M", default="1,16,64", show_default=True, help="Concurrent clients.")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--seconds", default=2.0, show_default=True, type=SECONDS, help="Seconds to measure each figure in a round.")
@option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Number of rounds.")
@json_option
def bench_serve(
    url: str | None,
    index: str,
    verb: Literal["search", "embed"],
    encoder: str,
    store: str | None,
    clients: list[int],
    texts: Path | None,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Compare requests over HTTP with calls of a pipeline in this process. They run in turns; figures are medians.

    Without URL, a service is started in another process. The service at URL is measured alone, unless --store and
    --encoder name a pipeline to compare it with. All clients share this process. VLMSEARCH_TOKEN holds the token.
    """
    from vlmsearch import Document, Pipeline
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.service import ServiceClient, measure_service, started_service

    queries = read_texts(texts, _TEXTS)
    with ExitStack() as stack:
        pipeline = None
        if url is None and store is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="vlmsearch-bench-"))
            store = f"sqlite:{Path(folder) / 'index'}"
        if store is not None:
            pipeline = stack.enter_context(Pipeline.open(encoder=encoder, store=store, generator=None))
            if not len(pipeline.store):
                pipeline.add(Document(str(number), text=text) for number, text in enumerate(queries))
        address = url or stack.enter_context(started_service(store or "", encoder))
        client = stack.enter_context(ServiceClient(address, index))
        figures = measure_service(client, pipeline, queries, verb=verb, clients=clients, seconds=seconds, rounds=rounds)
    if as_json:
        measured = {"verb": verb, "encoder": encoder if pipeline else None, "machine": machine_name()}
        print_json({"url": url, **measured, "figures": [asdict(figure) for figure in figures]})
        return
    names = ("clients", "who", "answers/s", "p50 ms", "p99 ms")
    rows = [(str(f.clients), f.who, f"{f.rate:.0f}", f"{f.p50_ms:.2f}", f"{f.p99_ms:.2f}") for f in figures]
    print_table(names, rows, left=names[1:2], title=f"{verb}, {url or encoder}, {machine_name()}")
