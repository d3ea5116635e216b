"""Search with `AsyncPipeline` beside `Pipeline`, one search after the other."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

import click

from benchmarks.common import print_figures, rounds_option
from vlmsearch import AsyncPipeline, Document, Pipeline
from vlmsearch.cli.bench.data import read_texts


@click.command()
@click.option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="What makes the vectors.")
@click.option("--store", default="mock:", show_default=True, metavar="URL", help="A store with an index of it.")
@click.option("--count", default=200, show_default=True, type=click.IntRange(3), help="How many searches at most.")
@rounds_option
def main(encoder: str, store: str, count: int, rounds: int) -> None:
    """Time searches by both, in turns; the figures are medians. A store that is empty gets texts as documents."""
    pipeline = Pipeline.open(encoder=encoder, store=store, generator=None)
    if not len(pipeline.store):
        pipeline.add(Document(str(number), text=text) for number, text in enumerate(read_texts(None, 10 * count)))
    plain, awaited = asyncio.run(measure_async(pipeline, read_texts(None, count), rounds))
    row = (f"{plain:.3f}", f"{awaited:.3f}", f"{awaited / plain:.3f}")
    print_figures(f"{encoder}, {store}", ("Pipeline ms", "AsyncPipeline ms", "ratio"), [row], left=0)


async def measure_async(pipeline: Pipeline, texts: Sequence[str], rounds: int) -> tuple[float, float]:
    """Return the medians of both in milliseconds; the pipeline is closed afterwards."""
    times: tuple[list[float], list[float]] = ([], [])
    async with AsyncPipeline(pipeline) as awaited:
        for number, text in enumerate(list(texts) * rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                started = time.perf_counter()
                if which:
                    await awaited.search(text)
                else:
                    pipeline.search(text)
                times[which].append(time.perf_counter() - started)
    plain, others = (1000 * statistics.median(each[2:]) for each in times)
    return plain, others


if __name__ == "__main__":
    main()
