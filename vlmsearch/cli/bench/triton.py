"""``vlmsearch bench triton``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import numbers, print_errors
from vlmsearch.cli.common import SECONDS, command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.bench.triton import TritonLevel, TritonLoad, Workload


@command("triton")
@click.argument("url", default="triton://127.0.0.1:8001/vlm", metavar="[URL]")
@option("--images", type=click.Path(path_type=Path), metavar="DIR", help="A folder of JPEGs.  [default: drawn scenes]")
@option("--texts", "as_texts", is_flag=True, help="Send texts, not images.")
@option("--count", default=256, show_default=True, type=click.IntRange(1), help="Number of different items.")
@option("--items", default=1, show_default=True, type=click.IntRange(1), help="Items of a request.")
@option(
    "--concurrency", type=numbers, metavar="N,M", default="1,2,4,8,16", show_default=True, help="Concurrency levels."
)
@option("--seconds", default=5.0, show_default=True, type=SECONDS, help="Seconds of each level in a round.")
@option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="Number of rounds.")
@option("--compare", metavar="URL", help="An encoder in this process to compare with, such as onnx:default.")
@json_option
def bench_triton(
    url: str,
    images: Path | None,
    as_texts: bool,
    count: int,
    items: int,
    concurrency: list[int],
    seconds: float,
    rounds: int,
    compare: str | None,
    as_json: bool,
) -> None:
    """Put load on the ensemble at URL: throughput and latencies for each number of concurrent requests."""
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.triton import TritonLoad
    from vlmsearch.cli.bench.data import read_images, read_texts

    kind: Workload = "texts" if as_texts else "images"
    data = [text.encode() for text in read_texts(None, count)] if as_texts else read_images(images, count)
    with TritonLoad(url.removeprefix("triton:"), kind, data, items=items) as load:
        levels, alone = _measure(load, kind, data, concurrency, seconds=seconds, rounds=rounds, compare=compare)
    result: dict[str, object] = {
        "url": url,
        "machine": machine_name(),
        "kind": kind,
        "items_per_request": items,
        "levels": [level.to_json() for level in levels],
        "last_to_first": round(levels[-1].items_per_second / max(levels[0].items_per_second, 1e-9), 3),
    }
    if alone:
        share = max(level.items_per_second for level in levels) / alone
        figures = {"items_per_second": round(alone, 2), "served_share": round(share, 3)}
        result["in_process"] = {"encoder": compare, **figures}
    if as_json:
        print_json(result)
    else:
        _print(levels, result)


def _measure(
    load: TritonLoad,
    kind: Workload,
    data: list[bytes],
    concurrency: list[int],
    *,
    seconds: float,
    rounds: int,
    compare: str | None,
) -> tuple[list[TritonLevel], float]:
    """Measure levels and the encoder to compare with, in turns.

    Returns:
        The median of each level, and the median items a second of the encoder, 0 without one.
    """
    import statistics

    from vlmsearch.bench.triton import in_process, median_level
    from vlmsearch.registry import open_encoder

    measured: dict[int, list[TritonLevel]] = {number: [] for number in concurrency}
    alone = []
    encoder = open_encoder(compare) if compare else None
    load.run(concurrency[-1], 1.0)
    for _ in range(rounds):
        if encoder:
            in_process(encoder, kind, data[:32], 0.5)
            alone.append(in_process(encoder, kind, data, seconds))
        for number in concurrency:
            measured[number].append(load.run(number, seconds))
    if encoder:
        encoder.close()
    return [median_level(measured[number]) for number in concurrency], statistics.median(alone) if alone else 0.0


def _print(levels: list[TritonLevel], result: dict[str, object]) -> None:
    rows = [
        (
            str(level.concurrency),
            f"{level.items_per_second:.1f}",
            *(f"{1000 * t:.1f}" for t in (level.p50, level.p95, level.p99)),
            str(level.failed),
        )
        for level in levels
    ]
    names = ("concurrency", "items/s", "p50 ms", "p95 ms", "p99 ms", "errors")
    print_table(names, rows)
    print_errors(levels)
    rest = {name: value for name, value in result.items() if name in ("machine", "last_to_first", "in_process")}
    click.echo(json.dumps(rest))
