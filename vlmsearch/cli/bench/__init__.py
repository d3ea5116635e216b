"""``vlmsearch bench``."""

from __future__ import annotations

import statistics
from pathlib import Path

import click

from vlmsearch.cli.bench.ask import bench_ask
from vlmsearch.cli.bench.encode import bench_encode
from vlmsearch.cli.bench.gpu import bench_gpu
from vlmsearch.cli.bench.llm import bench_llm
from vlmsearch.cli.bench.search import bench_search
from vlmsearch.cli.bench.serve import bench_serve
from vlmsearch.cli.bench.triton import bench_triton
from vlmsearch.cli.common import Group, json_option, option, print_json, print_table


@click.group(cls=Group)
def bench() -> None:
    """Measure models, answers, an index, a service, a GPU, or a Triton or LLM server."""


bench.add_command(bench_ask)
bench.add_command(bench_encode)
bench.add_command(bench_triton)
bench.add_command(bench_llm)
bench.add_command(bench_gpu)
bench.add_command(bench_search)
bench.add_command(bench_serve)


@bench.command()
@click.argument("model")
@option("--count", default=1000, show_default=True, type=click.IntRange(20), help="Number of scenes.")
@json_option
def scenes(model: str, count: int, as_json: bool) -> None:
    """Measure how well MODEL finds drawn scenes that no training used: recall@1 and recall@10, in fp32 and int8.

    A re-ranker reads the first 50 matches of demo-minilm and words. The figures say how often the first caption is
    the right one, and how often it fits the query, before and after.
    """
    from vlmsearch.building.retrieval import reranked_recall, scene_recall
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
