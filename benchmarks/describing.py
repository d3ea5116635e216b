"""What descriptions add to a search of pictures without captions, and how many pictures a second they take.

Scenes are drawn and indexed as pictures alone. Queries are partial captions of some of them, and all scenes that fit a
query answer it. The same queries are searched before and after `Pipeline.describe`.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.common import print_figures
from benchmarks.labelled import LabelledCollection, drawn_scenes
from vlmsearch.pipeline import Pipeline
from vlmsearch.search.evaluation import ranking_values
from vlmsearch.types import DescribeReport, Document

SEED = 50_000_000
_CUT = 10
_MEASURE = f"nDCG@{_CUT}"


@click.command()
@click.argument("generator")
@click.option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@click.option("--scenes", default=200, show_default=True, type=click.IntRange(10), help="Number of pictures.")
@click.option("--queries", default=200, show_default=True, type=click.IntRange(1), help="Number of queries.")
def main(generator: str, encoder: str, scenes: int, queries: int) -> None:
    """Measure a search before and after GENERATOR described the pictures."""
    before, after, report = measure(generator, encoder, scenes, queries)
    rate = report.described / report.seconds if report.seconds else 0.0
    print_figures(
        f"{scenes} pictures without captions, {report.described} described, {rate:.1f}/s",
        (_MEASURE, "before", "after"),
        [(f"{queries} partial captions", f"{before:.3f}", f"{after:.3f}")],
    )


def measure(generator: str, encoder: str, scenes: int, queries: int) -> tuple[float, float, DescribeReport]:
    """Return the mean nDCG@10 before and after, and the report of the descriptions."""
    collection = drawn_scenes(scenes, queries=queries, style="partial", first=SEED)
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        pictures = list(_on_disk(collection, Path(folder)))
        store = f"sqlite:{folder}/index"
        with Pipeline.open(encoder=encoder, store=store, generator=generator) as pipeline:
            pipeline.add(pictures)
            before = _quality(pipeline, collection)
            report = pipeline.describe()
            return before, _quality(pipeline, collection), report


def _on_disk(collection: LabelledCollection, folder: Path) -> list[Document]:
    documents = []
    for document in collection.documents:
        path = folder / f"{document.id}.png"
        path.write_bytes(document.image if isinstance(document.image, bytes) else b"")
        documents.append(replace(document, text=None, image=path))
    return documents


def _quality(pipeline: Pipeline, collection: LabelledCollection) -> float:
    rankings = {
        id: [match.document.id for match in pipeline.search(query, limit=_CUT, min_score=0)]
        for id, query in collection.queries.items()
    }
    return statistics.mean(ranking_values(rankings, collection.relevance, _CUT)[_MEASURE].values())


if __name__ == "__main__":
    main()
