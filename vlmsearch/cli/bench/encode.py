"""``vlmsearch bench encode``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import read_images, read_texts
from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.bench.encode import EncodeTask, EncodeTiming
    from vlmsearch.encoders.onnx import OnnxEncoder
    from vlmsearch.models.bundle import Bundle

TIMING_COLUMNS = ("task", "who", "items/s", "int8 is faster by")


@command("encode")
@click.argument("model")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--images", type=click.Path(path_type=Path), metavar="DIR", help="A folder of JPEG files.")
@option("--count", default=256, show_default=True, type=click.IntRange(1), help="How many images or texts at most.")
@option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Cores that everyone may use.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs.")
@json_option
def bench_encode(
    model: str, texts: Path | None, images: Path | None, count: int, threads: int, rounds: int, as_json: bool
) -> None:
    """Time MODEL in INT8 and in float32, in turns; the figures are medians.

    Without --texts and --images, MODEL encodes sentences and drawn scenes that come with the package. A model that
    reads long texts also encodes texts of 180 words, a quarter as many.
    """
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.encode import find_bundle, measure, open_encoders, ratios
    from vlmsearch.building.progress import steps

    timings: list[EncodeTiming] = []
    with steps(f"timing {model}") as report, ExitStack() as stack:
        bundle = find_bundle(model)
        encoders = open_encoders(bundle, threads, stack)
        try:
            for task in encode_tasks(bundle, encoders, texts, images, count):
                timings += measure(task, rounds=rounds, report=report)
        except KeyboardInterrupt:
            if not timings:
                raise
            click.echo("Interrupted: these are the tasks that were finished.", err=True)
    if as_json:
        rows = [
            {"task": t.task, "contender": t.contender, "items": t.items, "items_per_second": round(t.rate, 1)}
            for t in timings
        ]
        about = {"model": bundle.name, "machine": machine_name(), "threads": threads, "rounds": rounds}
        print_json({**about, "timings": rows, "ratios": ratios(timings)})
    else:
        title = f"{bundle.name}, {machine_name()}, {threads} threads, {rounds} rounds"
        print_table(TIMING_COLUMNS, timing_rows(timings), left=TIMING_COLUMNS[:2], title=title, header=False)


def encode_tasks(
    bundle: Bundle, encoders: Mapping[str, OnnxEncoder], texts: Path | None, images: Path | None, count: int
) -> Iterator[EncodeTask]:
    """Yield the tasks that a model can be timed at with the data that was given."""
    from vlmsearch.bench import encode
    from vlmsearch.errors import ConfigError

    preprocess = bundle.preprocess
    if images and preprocess is None:
        raise ConfigError(f"{bundle.name} encodes no images: leave out --images")
    if preprocess is not None and (images or not texts):
        files = read_images(images, count)
        yield encode.pixel_task(preprocess, encoders, files)
        yield encode.file_task(encoders, files)
    if texts:
        yield encode.text_task("texts", encoders, read_texts(texts, count))
    elif not images:
        yield encode.text_task("short texts", encoders, read_texts(None, count))
        if bundle.text.max_tokens >= encode.LONG_TOKENS:
            yield encode.text_task("long texts", encoders, encode.long_texts(max(1, count // 4)))


def timing_rows(timings: list[EncodeTiming]) -> list[tuple[str, str, str, str]]:
    """Return the rows of a table of what was measured, with the ratios."""
    from vlmsearch.bench.encode import INT8_NAME, ratios

    faster = ratios(timings)
    return [
        (t.task, t.contender, f"{t.rate:.1f}", str(faster.get(f"{t.task}: {INT8_NAME} / {t.contender}", "")))
        for t in timings
    ]
