"""``vlmsearch bench``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import read_images, read_texts
from vlmsearch.cli.bench.gpu import bench_gpu
from vlmsearch.cli.bench.llm import bench_llm
from vlmsearch.cli.bench.serve import bench_serve
from vlmsearch.cli.bench.triton import bench_triton
from vlmsearch.cli.common import Group, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.bench.encode import EncodeTiming, Setting


@click.group(cls=Group)
def bench() -> None:
    """Measure models, an index, a service, a GPU, or a Triton or LLM server."""


bench.add_command(bench_triton)
bench.add_command(bench_llm)
bench.add_command(bench_gpu)
bench.add_command(bench_serve)


@bench.command()
@click.argument("model")
@option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR", help="The original checkpoint.")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--images", type=click.Path(path_type=Path), metavar="DIR", help="A folder of JPEG files.")
@option("--count", default=256, show_default=True, type=click.IntRange(1), help="Maximum number of images or texts.")
@option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Cores for each contender.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Runs of each contender.")
@json_option
def encode(
    model: str,
    checkpoint: Path | None,
    texts: Path | None,
    images: Path | None,
    count: int,
    threads: int,
    rounds: int,
    as_json: bool,
) -> None:
    """Compare the speed of MODEL with transformers and sentence-transformers. They run in turns; figures are medians.

    Without --texts and --images, MODEL encodes sentences and drawn scenes that come with the package. A model that
    reads long texts also encodes texts of 180 words, a quarter as many.
    """
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.encode import open_setting, ratios
    from vlmsearch.build.progress import steps

    timings: list[EncodeTiming] = []
    with steps(f"timing {model}") as report:
        setting = open_setting(model, checkpoint, threads=threads, rounds=rounds, report=report)
        try:
            for task in _tasks(setting, texts, images, count):
                timings += task()
        except KeyboardInterrupt:
            if not timings:
                raise
            click.echo("Interrupted: these are the finished tasks.", err=True)
    result = {
        "model": setting.bundle.name,
        "machine": machine_name(),
        "threads": threads,
        "rounds": rounds,
        "timings": [
            {"task": t.task, "contender": t.contender, "items": t.items, "items_per_second": round(t.rate, 1)}
            for t in timings
        ],
        "ratios": ratios(timings),
    }
    if as_json:
        print_json(result)
    else:
        _print(timings, ratios(timings), f"{setting.bundle.name}, {machine_name()}, {threads} threads, {rounds} rounds")


def _tasks(
    setting: Setting, texts: Path | None, images: Path | None, count: int
) -> list[Callable[[], list[EncodeTiming]]]:
    """Return the tasks that a model and the given data allow."""
    from vlmsearch.bench.encode import LONG_TOKENS, long_texts, time_files, time_pixels, time_texts
    from vlmsearch.errors import ConfigError

    if images and not setting.bundle.preprocess:
        raise ConfigError(f"{setting.bundle.name} encodes no images: leave out --images")
    tasks: list[Callable[[], list[EncodeTiming]]] = []
    if setting.bundle.preprocess and (images or not texts):
        files = read_images(images, count)
        tasks += [partial(time_pixels, setting, files), partial(time_files, setting, files)]
    if texts:
        tasks.append(partial(time_texts, setting, read_texts(texts, count)))
    elif not images:
        tasks.append(partial(time_texts, setting, read_texts(None, count), "short texts"))
        if setting.bundle.text.max_tokens >= LONG_TOKENS:
            tasks.append(partial(time_texts, setting, long_texts(max(1, count // 4)), "long texts"))
    return tasks


@bench.command()
@click.argument("model")
@option("--count", default=1000, show_default=True, type=click.IntRange(20), help="Number of scenes.")
@json_option
def scenes(model: str, count: int, as_json: bool) -> None:
    """Measure how well MODEL finds drawn scenes that no training used: recall@1 and recall@10, in fp32 and int8.

    A re-ranker reads the first 50 matches of demo-minilm and words. The figures say how often the first caption is
    the right one, and how often it fits the query, before and after.
    """
    from vlmsearch.build.retrieval import reranked_recall, scene_recall
    from vlmsearch.encoders.onnx import OnnxEncoder
    from vlmsearch.models.bundle import RERANKER, recipe_names
    from vlmsearch.models.reranker import PRECISIONS
    from vlmsearch.rerankers.onnx import OnnxReranker

    figures: dict[str, dict[str, float]] = {}
    for precision in PRECISIONS:
        if model in recipe_names(RERANKER):
            with OnnxReranker(model, precision=precision) as reranker:
                figures[precision] = reranked_recall(reranker, count)
        else:
            with OnnxEncoder(model, precision=precision) as encoder:
                figures[precision] = scene_recall(encoder, count)
    if as_json:
        print_json({"model": model, "scenes": count, **figures})
        return
    rows = [
        (precision, name, f"{share:.3f}") for precision, shares in figures.items() for name, share in shares.items()
    ]
    print_table(("precision", "figure", "share"), rows, left=("precision", "figure"), header=False)


@bench.command("index")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Runs of both.")
@json_option
def index_speed(folder: Path, encoder: str, rounds: int, as_json: bool) -> None:
    """Compare the speed of indexing the image files in FOLDER with the speed of the encoder alone."""
    from vlmsearch.bench.index import measure_index

    speed = measure_index(folder, encoder=encoder, rounds=rounds)
    alone, indexed = statistics.median(speed.encoder), statistics.median(speed.index)
    if as_json:
        print_json({"images": speed.images, "encoder": alone, "index": indexed, "ratio": speed.ratio})
        return
    click.echo(f"{speed.images} images: {alone:.0f}/s encoded, {indexed:.0f}/s indexed, ratio {speed.ratio:.2f}")


def _print(timings: list[EncodeTiming], ratios: dict[str, float], title: str) -> None:
    from vlmsearch.bench.encode import OURS

    rows = []
    for timing in timings:
        ratio = ratios.get(f"{timing.task}: {OURS} / {timing.contender}")
        rows.append((timing.task, timing.contender, f"{timing.rate:.1f}", "" if ratio is None else f"{ratio:.2f}"))
    names = ("task", "who", "items/s", "int8 is faster by")
    print_table(names, rows, left=names[:2], title=title, header=False)
