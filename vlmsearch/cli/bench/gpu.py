"""``vlmsearch bench gpu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import numbers, read_images, read_texts
from vlmsearch.cli.common import SECONDS, command, json_option, names_of, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.bench.gpu import GpuSetting, GpuTiming, LeftOut, Towers
    from vlmsearch.models.bundle import Bundle

_PRECISIONS = ("int8", "fp16", "fp32", "auto")
_RUNTIMES = ("tensorrt", "onnx")


@command("gpu")
@click.argument("model")
@option("--precision", type=names_of(_PRECISIONS), default="fp16,int8", show_default=True, metavar="LIST",
        help="Precisions of the engines: some of int8, fp16, fp32, auto.")  # fmt: skip
@option("--runtimes", type=names_of(_RUNTIMES), default=",".join(_RUNTIMES), show_default=True, metavar="LIST",
        help="Runtimes to measure.")  # fmt: skip
@option("--batches", type=numbers, metavar="N,M", default="1,32,256", show_default=True, help="Batch sizes.")
@option("--device", default=0, show_default=True, type=click.IntRange(0), help="The number of the GPU.")
@option("--images", type=click.Path(path_type=Path), metavar="DIR", help="A folder of JPEGs.  [default: drawn scenes]")
@option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@option("--count", default=256, show_default=True, type=click.IntRange(1), help="Maximum number of JPEGs.")
@option("--seconds", default=1.0, show_default=True, type=SECONDS, help="Seconds to measure each figure.")
@json_option
def bench_gpu(
    model: str, precision: list[str], runtimes: list[str], batches: list[int], device: int, images: Path | None,
    texts: Path | None, count: int, seconds: float, as_json: bool,
) -> None:  # fmt: skip
    """Compare MODEL's TensorRT engines with ONNX Runtime on a GPU, and time the decoding of JPEGs.

    Times include the copies from and to host memory. Missing engines are built. Runtimes that are not installed are
    named and skipped.
    """
    from vlmsearch.bench.encode import find_bundle
    from vlmsearch.bench.gpu import GpuSetting, describe_gpu

    machine = describe_gpu(device)
    bundle = find_bundle(model)
    setting = GpuSetting(device, precision, runtimes, batches, seconds)  # type: ignore[arg-type]
    jpegs = read_images(images, count) if bundle.preprocess else []
    measure_and_print(bundle, jpegs, read_texts(texts, count), setting, machine, as_json=as_json)


def measure_and_print(
    bundle: Bundle,
    jpegs: Sequence[bytes],
    texts: Sequence[str],
    setting: GpuSetting,
    machine: Mapping[str, object],
    *,
    others: Mapping[str, Callable[[], Towers]] | None = None,
    as_json: bool = False,
) -> None:
    """Measure all contenders and print the figures; after Ctrl-C those that were finished.

    Standard error has each figure as soon as it is measured.
    """
    from vlmsearch.bench.gpu import GpuTiming, measure_gpu

    timings: list[GpuTiming] = []
    left_out: list[LeftOut] = []

    def say(what: str) -> None:
        click.echo(f"{bundle.name}: {what}", err=True)

    try:
        for result in measure_gpu(bundle, jpegs, texts, setting, say, others or {}):
            if isinstance(result, GpuTiming):
                timings.append(result)  # said at once too: a borrowed GPU may be taken back before the end
                figures = f"{result.median_ms:.3f} ms, {result.items_per_second:.0f} items/s"
                say(f"{result.task}, {result.contender}, {result.items} at once: {figures}")
            else:
                left_out.append(result)
                say(f"{result.contender} is left out: {result.reason}")
    except KeyboardInterrupt:
        if not timings:
            raise
        click.echo("Interrupted: these are the finished figures.", err=True)
    if as_json:
        print_json({
            "model": bundle.name,
            "machine": machine,
            "timings": [timing.to_json() for timing in timings],
            "left_out": {skipped.contender: skipped.reason for skipped in left_out},
        })  # fmt: skip
        return
    _print(timings, f"{bundle.name}, {machine['gpu']}")


def _print(timings: list[GpuTiming], title: str) -> None:
    names = ("task", "who", "items", "p50 ms", "p99 ms", "items/s", "mean cosine", "least cosine")
    rows = [
        (t.task, t.contender, str(t.items), f"{t.median_ms:.3f}", f"{t.p99_ms:.3f}", f"{t.items_per_second:.0f}",
         *("" if cosine is None else f"{cosine:.6f}" for cosine in (t.mean_cosine, t.min_cosine)))
        for t in timings
    ]  # fmt: skip
    print_table(names, rows, left=names[:2], title=title)
