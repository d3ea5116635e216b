"""``vlmsearch bench llm``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import Levels
from vlmsearch.cli.common import command, json_option, option, print_json, print_table
from vlmsearch.cli.progress import progress

if TYPE_CHECKING:
    from vlmsearch.bench.llm import Level
    from vlmsearch.generators.base import GenerationOptions


@dataclass
class _Contender:
    """One generator: its URL, what it is called, how its tokens are counted, and what was measured."""

    url: str
    label: str
    counted_by: str = ""
    levels: list[Level] = field(default_factory=list)


@command("llm")
@option("--url", "urls", multiple=True, required=True, metavar="URL", help="A generator; may be given several times.")
@option("--dataset", type=click.Path(path_type=Path), required=True, metavar="FILE",
        help="JSON or JSONL with instruction, input or both in each row.")  # fmt: skip
@option("--model", "models", multiple=True, metavar="NAME", help="A model at the URL; two are compared.")
@option("--requests", type=click.IntRange(1), metavar="N", help="How many requests.  [default: one a row]")
@option("--concurrency", type=Levels(), default="1,2,4,8", show_default=True, help="Requests at a time.")
@option("--max-tokens", default=128, show_default=True, type=click.IntRange(1), help="The most tokens of an answer.")
@option("--tokenizer", type=click.Path(path_type=Path), metavar="FILE", help="A tokenizer.json to count tokens with.")
@json_option
def bench_llm(
    urls: tuple[str, ...],
    dataset: Path,
    models: tuple[str, ...],
    requests: int | None,
    concurrency: list[int],
    max_tokens: int,
    tokenizer: Path | None,
    as_json: bool,
) -> None:
    """Put load on generators: tokens a second, time to first token and latencies; two are compared.

    Ctrl-C ends it and prints what was measured.
    """
    from vlmsearch.bench.llm import read_prompts
    from vlmsearch.generators.base import GenerationOptions

    prompts = read_prompts(dataset)
    contenders = _contenders(urls, models)
    load = _Load(prompts, requests or len(prompts), GenerationOptions(max_tokens=max_tokens), tokenizer)
    total = load.requests * len(concurrency) * len(contenders)
    with progress(total, quiet=as_json, what="generating") as advance:
        is_whole = load.measure(contenders, concurrency, advance)
    if as_json:
        print_json(_result(contenders, dataset, load))
    else:
        _print(contenders)
    if not is_whole:
        raise KeyboardInterrupt


@dataclass
class _Load:
    """What every contender gets."""

    prompts: list[str]
    requests: int
    options: GenerationOptions
    tokenizer: Path | None

    def measure(
        self, contenders: list[_Contender], concurrency: list[int], advance: Callable[[int], None] | None
    ) -> bool:
        """Return every contender in turn at each level, after one request that is not counted; False after Ctrl-C."""
        from vlmsearch.bench.llm import counter, run
        from vlmsearch.registry import open_generator

        done = itertools.count(1)
        with ExitStack() as stack:
            ready = []
            for contender in contenders:
                generator = stack.enter_context(open_generator(contender.url))
                count, contender.counted_by = counter(generator, self.tokenizer)
                generator.generate(self.prompts[0], self.options)
                ready.append((contender, generator, count))
            for number in concurrency:
                for contender, generator, count in ready:
                    level = run(
                        generator, self.prompts, self.options, concurrency=number, requests=self.requests, count=count,
                        on_request=(lambda: advance(next(done))) if advance else None,
                    )  # fmt: skip
                    contender.levels.append(level)
                    if level.is_interrupted:
                        return False
        return True


def _contenders(urls: tuple[str, ...], models: tuple[str, ...]) -> list[_Contender]:
    from vlmsearch.bench.llm import with_model

    if not models:
        return [_Contender(url, url.partition("?")[0]) for url in urls]
    if len(urls) == 1:
        return [_Contender(with_model(urls[0], model), model) for model in models]
    return [
        _Contender(with_model(url, model), f"{model} at {url.partition('?')[0]}") for url in urls for model in models
    ]


def _speed_ups(contenders: list[_Contender]) -> list[tuple[int, dict[str, float]]]:
    """Return of two contenders, by the number of concurrent requests: how many times as fast the first is."""
    from vlmsearch.bench.llm import speed_up

    if len(contenders) != 2:
        return []
    first, second = contenders
    return [(a.concurrency, speed_up(a, b)) for a, b in zip(first.levels, second.levels)]


def _result(contenders: list[_Contender], dataset: Path, load: _Load) -> dict[str, object]:
    from vlmsearch._util.machine import machine_name

    result: dict[str, object] = {
        "machine": machine_name(),
        "dataset": str(dataset),
        "requests": load.requests,
        "max_tokens": load.options.max_tokens,
        "contenders": [
            {
                "url": contender.url,
                "name": contender.label,
                "tokens_counted_by": contender.counted_by,
                "levels": [level.to_json() for level in contender.levels],
            }
            for contender in contenders
        ],
    }
    if speed_ups := _speed_ups(contenders):
        result["speed_up"] = {
            "of": contenders[0].label,
            "over": contenders[1].label,
            "levels": [{"concurrency": number, **figures} for number, figures in speed_ups],
        }
    return result


def _print(contenders: list[_Contender]) -> None:
    names = ["model", "concurrency", "requests", "tokens/s", "requests/s", "first token ms", "inter-token ms",
             "latency ms", "total s", "errors"]  # fmt: skip
    speed_ups = dict(_speed_ups(contenders))
    rows = []
    for place, contender in enumerate(contenders):
        for level in contender.levels:
            times = ("/".join(f"{1000 * t:.1f}" for t in (p.p50, p.p95, p.p99))
                     for p in (level.first_token, level.inter_token, level.latency))  # fmt: skip
            faster = speed_ups.get(level.concurrency) if place == 0 else None
            rows.append([
                contender.label, str(level.concurrency), str(level.requests), f"{level.tokens_per_second:.1f}",
                f"{level.requests_per_second:.2f}", *times, f"{level.seconds:.2f}", str(level.failed),
                *([f"{faster['tokens_per_second']:.2f}" if faster else ""] if speed_ups else []),
            ])  # fmt: skip
    print_table([*names, *(["times as fast"] if speed_ups else [])], rows, left=("model",))
    for contender in contenders:
        click.echo(f"{contender.label}: tokens counted by {contender.counted_by}; times are p50/p95/p99", err=True)
        for level in contender.levels:
            for message, times_seen in level.errors:
                click.echo(f"{contender.label}: {times_seen} times at {level.concurrency}: {message}", err=True)
