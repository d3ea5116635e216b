"""``vlmsearch bench ray``."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.bench.data import Levels
from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from benchmarks.ray_index import KilledRun, MemoryOverTime, WorkersTiming

_WORKERS, _DOCUMENTS, _ROUNDS = [1, 2], 10_000, 3


@command("ray")
@option("--workers", type=Levels(), metavar="LIST", help="Numbers of encoders.  [default: 1,2]")
@option("--documents", type=click.IntRange(1), help=f"How many texts each run indexes.  [default: {_DOCUMENTS}]")
@option("--rounds", type=click.IntRange(1), help=f"How often each number runs.  [default: {_ROUNDS}]")
@option("--rows", type=click.IntRange(1), help="Index so many rows once, count them and watch the memory instead.")
@option("--kill-every", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
        help="Kill one of the processes that read, encode and store at this interval, with --rows.")  # fmt: skip
@option("--store", metavar="URL", help="Where --rows go: an empty index, which is kept.  [default: sqlite:, removed]")
@option("--encoder", metavar="URL", help="What makes the vectors.  [default: onnx:demo?threads=1; with --rows, mock:]")
@json_option
def bench_ray(
    workers: list[int] | None, documents: int | None, rounds: int | None, rows: int | None, kill_every: float | None,
    store: str | None, encoder: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Time indexing on a Ray cluster of this machine with one encoder and with more, in turns; rates are medians.

    Each encoder has a node of its own, and texts so long that it is the limit. Rates count from the first to the last
    documents that are done, without the start.

    With --rows, exits 1 where afterwards a row is missing, an id is there twice, or the store is not in order.
    """
    from benchmarks.ray_index import index_while_killing, time_workers
    from vlmsearch.export.progress import steps

    if rows is None and (kill_every is not None or store is not None):
        raise click.UsageError("--kill-every and --store are for --rows")
    if rows is not None and (workers or documents or rounds):
        raise click.UsageError("--rows are indexed once: leave out --workers, --documents and --rounds")
    with tempfile.TemporaryDirectory(prefix="vlmsearch-bench-") as place, steps("bench ray") as report:
        folder = Path(place)
        if rows is None:
            url = encoder or "onnx:demo?threads=1"
            timings = time_workers(
                workers or _WORKERS,
                documents=documents or _DOCUMENTS,
                encoder=url,
                rounds=rounds or _ROUNDS,
                folder=folder,
                report=report,
            )
        else:
            url, target = encoder or "mock:", store or f"sqlite:{folder}/index"
            run = index_while_killing(
                rows, kill_every=kill_every, encoder=url, store=target, folder=folder, report=report
            )
    if rows is None:
        _print_timings(timings, documents or _DOCUMENTS, url, as_json=as_json)
        return
    _print_run(run, kill_every, url, as_json=as_json)
    if not run.complete:
        sys.exit(1)


def _print_timings(timings: list[WorkersTiming], documents: int, encoder: str, *, as_json: bool) -> None:
    from vlmsearch.export.inputs import machine

    first = timings[0]
    found: list[dict[str, object]] = [
        {
            "workers": timing.workers,
            "documents_per_second": round(timing.rate, 1),
            "ratio": round(timing.rate / first.rate, 3),
            "rounds": [round(rate, 1) for rate in timing.rates],
        }
        for timing in timings
    ]
    if as_json:
        print_json({"machine": machine(), "encoder": encoder, "documents": documents, "workers": found})
        return
    names = ("workers", "documents/s", f"as many times as {first.workers}")
    title = f"{encoder}, {documents:,} texts, {machine()}, {len(first.rates)} rounds"
    print_table(names, [tuple(map(str, row.values()))[:3] for row in found], title=title)


def _print_run(run: KilledRun, kill_every: float | None, encoder: str, *, as_json: bool) -> None:
    from vlmsearch.export.inputs import machine

    if as_json:
        print_json({"machine": machine(), "encoder": encoder, "kill_every": kill_every, **_rounded(asdict(run))})
        return
    click.echo(f"indexed     {run.rows:,} rows in {run.seconds:.0f} s, {run.rate:.0f}/s from the first to the last")
    kills = ", ".join(f"{count} {stage}" for stage, count in run.kills.items())
    click.echo(f"killed      {sum(run.kills.values())} processes{f': {kills}' if kills else ''}")
    click.echo(f"memory      {_described(run.memory)}")
    click.echo(f"the caller  {_described(run.caller)}")
    click.echo(f"reported    {run.added} added, {run.unchanged} unchanged")
    click.echo(f"index       {run.missing} missing, {run.doubled} doubled, {run.foreign} foreign")
    click.echo(f"check       {'clean' if run.clean else 'not in order'}")


def _described(memory: MemoryOverTime) -> str:
    return (
        f"{memory.median:.0f} MiB, from {memory.least:.0f} to {memory.most:.0f}; "
        f"first quarter {memory.first_quarter:.0f}, last {memory.last_quarter:.0f}"
    )


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """The same with numbers to one place."""
    return {
        name: _rounded(value) if isinstance(value, dict) else round(value, 1) if isinstance(value, float) else value
        for name, value in values.items()
    }
