"""Measure many clients of one encoder, and searches that are awaited."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vlmsearch.cli.bench.data import Levels, read_texts
from vlmsearch.cli.common import SECONDS, command, json_option, option, print_json, print_table

_TEXTS = 512


@command("batching")
@click.argument("encoder")
@option("--clients", type=Levels(), default="1,16,64", show_default=True, help="How many threads ask at once.")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--seconds", default=2.0, show_default=True, type=SECONDS, help="How long each figure is measured in a round.")
@option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often everyone has a turn.")
@json_option
def bench_batching(
    encoder: str, clients: list[int], texts: Path | None, seconds: float, rounds: int, as_json: bool
) -> None:
    """Time ENCODER, a URL, in batches of one thread and behind what merges the requests of many clients."""
    from benchmarks.batching import measure_batching
    from vlmsearch.export.inputs import machine
    from vlmsearch.registry import open_encoder

    figures = measure_batching(
        open_encoder(encoder), read_texts(texts, _TEXTS), clients=clients, seconds=seconds, rounds=rounds
    )
    if as_json:
        print_json({"encoder": encoder, "machine": machine(), "figures": [asdict(figure) for figure in figures]})
        return
    alone = figures[0].p50_ms
    names = ("what", "texts/s", "p50 ms", "p99 ms", "p99 / alone", "batch")
    rows = [
        (f.name, f"{f.rate:.0f}", f"{f.p50_ms:.2f}", f"{f.p99_ms:.2f}", f"{f.p99_ms / alone:.1f}", f"{f.batch:.1f}")
        for f in figures
    ]
    print_table(names, rows, left=names[:1], title=f"{encoder}, {machine()}")


@command("async")
@option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="What makes the vectors.")
@option("--store", default="mock:", show_default=True, metavar="URL", help="A store with an index of it.")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--count", default=200, show_default=True, type=click.IntRange(3), help="How many searches at most.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often each is made.")
@json_option
def bench_async(encoder: str, store: str, texts: Path | None, count: int, rounds: int, as_json: bool) -> None:
    """Time searches by AsyncPipeline beside those by Pipeline, in turns; the figures are medians.

    A store that is empty gets the texts themselves as documents.
    """
    from benchmarks.batching import measure_async
    from vlmsearch import Document, Pipeline
    from vlmsearch.export.inputs import machine

    queries = read_texts(texts, count)
    pipeline = Pipeline.open(encoder=encoder, store=store, generator=None)
    if not len(pipeline.store):
        pipeline.add(Document(str(number), text=text) for number, text in enumerate(read_texts(texts, 10 * count)))
    plain, awaited = measure_async(pipeline, queries, rounds=rounds)
    if as_json:
        figures = {"pipeline_ms": plain, "async_pipeline_ms": awaited, "ratio": awaited / plain}
        print_json({"encoder": encoder, "store": store, "machine": machine(), **figures})
        return
    click.echo(f"Pipeline {plain:.3f} ms, AsyncPipeline {awaited:.3f} ms, ratio {awaited / plain:.3f}")
