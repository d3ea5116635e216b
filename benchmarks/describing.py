"""What descriptions add to a search of pictures without captions, and how many pictures a second they take.

Scenes are drawn with their neighbours and indexed as pictures alone: see `benchmarks.reranking_pictures`. Queries ask
for counts and places. They are searched before and after `Pipeline.describe`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.common import print_figures
from benchmarks.reranking_pictures import PictureCollection, counted_scenes, draw, quality
from vlmsearch.pipeline import Pipeline
from vlmsearch.types import DescribeReport


@click.command()
@click.argument("generator")
@click.option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@click.option("--scenes", default=200, show_default=True, type=click.IntRange(1), help="Scenes, without neighbours.")
@click.option("--queries", default=100, show_default=True, type=click.IntRange(1), help="Queries at most.")
def main(generator: str, encoder: str, scenes: int, queries: int) -> None:
    """Measure a search before and after GENERATOR described the pictures."""
    before, after, report = measure(generator, encoder, scenes, queries)
    rate = report.described / report.seconds if report.seconds else 0.0
    rows = [(name, *(f"{mean:.3f}" for mean in means)) for name, means in (("before", before), ("after", after))]
    print_figures(f"{report.described} pictures described, {rate:.1f}/s", ("search", "nDCG@10", "recall@1"), rows)


def measure(
    generator: str, encoder: str, scenes: int, queries: int
) -> tuple[tuple[float, float], tuple[float, float], DescribeReport]:
    """Return the mean nDCG@10 and recall@1 before and after, and the report of the descriptions."""
    collection = counted_scenes(scenes, queries)
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        store = f"sqlite:{folder}/index"
        with Pipeline.open(encoder=encoder, store=store, generator=generator) as pipeline:
            pipeline.add(draw(collection.scenes, Path(folder)))
            before = _quality(pipeline, collection)
            report = pipeline.describe()
            return before, _quality(pipeline, collection), report


def _quality(pipeline: Pipeline, collection: PictureCollection) -> tuple[float, float]:
    rankings = {
        id: [match.document.id for match in pipeline.search(query, limit=10, min_score=0)]
        for id, query in collection.queries.items()
    }
    return quality(rankings, collection)


if __name__ == "__main__":
    main()
