"""``vlmsearch bench serve``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from vlmsearch.cli.bench.data import numbers, read_texts
from vlmsearch.cli.common import SECONDS, command, json_option, option, print_json, print_table

_TEXTS = 512


@command("serve")
@click.argument("url", default="http://127.0.0.1:8080", metavar="[URL]")
@option("--index", default="default", show_default=True, metavar="NAME", help="The index of the service at URL.")
@option("--verb", type=click.Choice(("search", "embed")), default="search", show_default=True, help="Verb to measure.")
@option("--encoder", metavar="URL", help="Encoder of --store.  [default: the one that built the index]")
@option("--store", metavar="URL", help="The store of the same index, to compare with a pipeline in this process.")
@option("--clients", type=numbers, metavar="N,M", default="1,16,64", show_default=True, help="Concurrent clients.")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--seconds", default=2.0, show_default=True, type=SECONDS, help="Seconds to measure each figure in a round.")
@option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Number of rounds.")
@json_option
def bench_serve(
    url: str,
    index: str,
    verb: Literal["search", "embed"],
    encoder: str | None,
    store: str | None,
    clients: list[int],
    texts: Path | None,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure requests to the service at URL, and calls of a pipeline beside it.

    The pipeline runs in this process if --store names its index.

    They run in turns; figures are medians. All clients share this process. VLMSEARCH_TOKEN holds the token.
    """
    from vlmsearch import Pipeline
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.service import ServiceClient, measure_service

    queries = read_texts(texts, _TEXTS)
    with ExitStack() as stack:
        pipeline = None
        if store is not None:
            pipeline = stack.enter_context(Pipeline.open(encoder=encoder, store=store, generator=None))
        client = stack.enter_context(ServiceClient(url, index))
        figures = measure_service(client, pipeline, queries, verb=verb, clients=clients, seconds=seconds, rounds=rounds)
    if as_json:
        model = encoder or (pipeline and pipeline.encoder.fingerprint)
        measured = {"verb": verb, "encoder": model if pipeline else None, "machine": machine_name()}
        print_json({"url": url, **measured, "figures": [asdict(figure) for figure in figures]})
        return
    names = ("clients", "who", "answers/s", "p50 ms", "p99 ms")
    rows = [(str(f.clients), f.who, f"{f.rate:.0f}", f"{f.p50_ms:.2f}", f"{f.p99_ms:.2f}") for f in figures]
    print_table(names, rows, left=names[1:2], title=f"{verb}, {url}, {machine_name()}")
