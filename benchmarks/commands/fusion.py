"""``vlmsearch bench fusion``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from benchmarks.fusion import FusionFigures
    from benchmarks.labelled import LabelledCollection

_SHAPE = "star"


@command("fusion")
@option("--cisi", type=click.Path(path_type=Path), metavar="DIR",
        help="A folder with CISI.ALL, CISI.QRY and CISI.REL, or others in their format.")  # fmt: skip
@option("--sts", type=click.Path(path_type=Path), metavar="FILE",
        help="Pairs of sentences of an STS benchmark: CSV rows of two sentences and a score.")  # fmt: skip
@option("--captions", type=click.Path(path_type=Path), metavar="FILE",
        help='Captions of photographs: JSON lines of {"file", "captions"}.')  # fmt: skip
@option("--scenes", default=1000, show_default=True, type=click.IntRange(0),
        help="How many scenes to draw, half of them with captions; 0 for none.")  # fmt: skip
@option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL",
        help="What makes the vectors of CISI, STS and captions.")  # fmt: skip
@option("--scenes-encoder", default="onnx:demo", show_default=True, metavar="URL",
        help="What makes the vectors of drawn scenes.")  # fmt: skip
@option("--bins", is_flag=True, help="Print the calibration curves as tables, too.")
@option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the calibration curves as an SVG.")
@json_option
def bench_fusion(
    cisi: Path | None, sts: Path | None, captions: Path | None, scenes: int, encoder: str, scenes_encoder: str,
    bins: bool, plot: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare ways to make one ranking of images, texts and words: which finds most, and what its scores mean.

    Collections that are not named are left out. CISI and the captions get 120 questions that nothing in them answers;
    scenes are drawn without stars, and half of the queries ask for one.
    """
    from benchmarks.fusion import CUT, measure_fusions
    from benchmarks.labelled import drawn_scenes, read_captions, read_cisi, read_sts
    from vlmsearch.export.data import unanswered
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps
    from vlmsearch.registry import open_encoder, open_store

    parts: dict[str, tuple[str, Callable[[], LabelledCollection]]] = {}
    if cisi:
        parts["CISI"] = encoder, lambda: read_cisi(cisi).with_unanswered(unanswered())
    if sts:
        parts["STS"] = encoder, lambda: read_sts(sts)
    if captions:
        parts["captions"] = encoder, lambda: read_captions(captions).with_unanswered(unanswered())
    if scenes:
        parts["scenes"] = scenes_encoder, lambda: drawn_scenes(scenes, queries=scenes // 2, absent=("shape", _SHAPE))
    if not parts:
        raise click.UsageError("name at least one collection: --cisi, --sts, --captions or --scenes")
    results: list[dict[str, object]] = []
    measured: dict[str, list[FusionFigures]] = {}
    for name, (url, read) in parts.items():
        with steps(f"bench fusion: {name}") as progress, tempfile.TemporaryDirectory(prefix="vlmsearch-") as place:
            collection = read()
            with open_encoder(url) as model, open_store(f"sqlite:{place}/index") as store:
                measured[name] = measure_fusions(collection, model, store, progress=progress)
        counts = {"documents": len(collection.documents), "answered": len(collection.answered),
                  "unanswered": len(collection.unanswered)}  # fmt: skip
        results.append({"collection": name, "encoder": url, **counts, "ways": [asdict(one) for one in measured[name]]})
        if not as_json:
            title = (
                f"{name}: {counts['documents']:,} documents, {counts['answered']} queries with an answer, "
                f"{counts['unanswered']} without"
            )
            _print(measured[name], title, bins=bins)
    if plot:
        _draw(plot, measured, f"{machine()}; the first {CUT} documents of each query")
    if as_json:
        print_json({"machine": machine(), "collections": results})


def _print(figures: list[FusionFigures], title: str, *, bins: bool) -> None:
    from benchmarks.fusion import OURS

    columns = ("way", "nDCG@10", "calibration error", "precision of shown", "answered", "precision of no match",
               "recall of no match")  # fmt: skip
    rows = []
    for one in figures:
        nothing = (one.nothing_precision, one.nothing_recall)
        values = (one.ndcg, one.calibration_error, one.precision, one.answered, *nothing)
        rows.append((one.way, *("" if value is None else f"{value:.3f}" for value in values)))
    click.echo(title)
    print_table(columns, rows, left=columns[:1])
    if bins:
        ours = next(one for one in figures if one.way == OURS)
        names = ("mean relevance", "share that answers", "documents")
        print_table(names, [(f"{one.relevance:.3f}", f"{one.share:.3f}", str(one.documents)) for one in ours.bins])


def _draw(path: Path, measured: dict[str, list[FusionFigures]], caption: str) -> None:
    from benchmarks.fusion import OURS
    from vlmsearch.bench.plot import Axis, Panel, write_plot

    panels = []
    for name, figures in measured.items():
        ours = next(one for one in figures if one.way == OURS)
        points = [(one.relevance, one.share) for one in ours.bins]
        title = f"{name}: calibration error {ours.calibration_error:.3f}"
        panels.append(Panel(title, "share that answers", [("measured", points), ("ideal", [(0.0, 0.0), (1.0, 1.0)])]))
    write_plot(path, Axis("relevance", (0, 0.2, 0.4, 0.6, 0.8, 1)), panels, caption)
