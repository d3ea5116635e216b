"""``vlmsearch bench ask``."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import click

from vlmsearch.cli.common import command, json_option, option, print_json, print_table
from vlmsearch.cli.progress import progress


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [-1]
    if min(counts) < 0:
        raise click.BadParameter(f"whole numbers from 0 with a comma between them, not {text}")
    return counts


@command("ask")
@option("--generator", default="onnx:demo-vlm", show_default=True, metavar="URL", help="The generator.")
@option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@option("--pictures", type=_counts, default="0,1,3", show_default=True, metavar="N,...", help="Pictures of a prompt.")
@option("--questions", default=20, show_default=True, type=click.IntRange(1), help="Questions for each number.")
@option("--max-tokens", default=64, show_default=True, type=click.IntRange(1), help="Maximum tokens of an answer.")
@json_option
def bench_ask(
    generator: str, encoder: str, pictures: list[int], questions: int, max_tokens: int, as_json: bool
) -> None:
    """Measure the time to the first word of an answer about drawn scenes, by the number of pictures that are seen."""
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.ask import measure_answers

    done = itertools.count(1)
    with progress((questions + 1) * len(pictures), quiet=as_json, what="asking") as advance:
        figures = list(
            measure_answers(
                generator,
                encoder,
                pictures,
                questions=questions,
                max_tokens=max_tokens,
                on_question=(lambda: advance(next(done))) if advance else None,
            )
        )
    if as_json:
        print_json(
            {
                "machine": machine_name(),
                "generator": generator,
                "encoder": encoder,
                "figures": [asdict(figure) for figure in figures],
            }
        )
        return
    names = ("pictures", "seen", "first word ms", "whole ms", "words", "prompt tokens")
    rows = [
        (
            str(figure.pictures),
            f"{figure.seen:.1f}",
            f"{figure.first_ms:.0f}",
            f"{figure.whole_ms:.0f}",
            f"{figure.words:.0f}",
            "" if figure.prompt_tokens is None else f"{figure.prompt_tokens:.0f}",
        )
        for figure in figures
    ]
    print_table(names, rows)
