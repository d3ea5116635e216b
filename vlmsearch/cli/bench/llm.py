"""``vlmsearch bench llm``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import numbers, print_errors
from vlmsearch.cli.common import command, json_option, option, print_json, print_table
from vlmsearch.cli.progress import progress

if TYPE_CHECKING:
    from vlmsearch.bench.llm import Level


@dataclass
class _Contender:
    """A generator with its name, the way its tokens are counted, and its measurements."""

    url: str
    label: str
    counted_by: str = ""
    levels: list[Level] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the form that --json prints."""
        return {
            "url": self.url,
            "name": self.label,
            "tokens_counted_by": self.counted_by,
            "levels": [level.to_json() for level in self.levels],
        }


@command("llm")
@option("--url", "urls", multiple=True, required=True, metavar="URL", help="A generator. May be given several times.")
@option("--dataset", type=click.Path(path_type=Path), required=True, metavar="FILE",
        help="JSON or JSONL with instruction, input or both in each row.")  # fmt: skip
@option("--model", "models", multiple=True, metavar="NAME", help="A model at the URL. Two are compared.")
@option("--requests", type=click.IntRange(1), metavar="N", help="Number of requests.  [default: one for each row]")
@option("--concurrency", type=numbers, metavar="N,M", default="1,2,4,8", show_default=True, help="Concurrent requests.")
@option("--max-tokens", default=128, show_default=True, type=click.IntRange(1), help="Maximum tokens of an answer.")
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
    """Load-test generators: tokens a second, time to first token and latencies. Two generators are compared.

    Ctrl-C stops and prints the figures so far.
    """
    from vlmsearch._util.machine import machine_name
    from vlmsearch.bench.llm import read_prompts, speed_up

    prompts = read_prompts(dataset)
    contenders, requests = _contenders(urls, models), requests or len(prompts)
    with progress(requests * len(concurrency) * len(contenders), quiet=as_json, what="generating") as advance:
        is_whole = _measure(contenders, prompts, requests, concurrency, max_tokens, tokenizer, advance)
    ratios: dict[int, dict[str, float]] = {}
    if len(contenders) == 2:
        pairs = zip(contenders[0].levels, contenders[1].levels)
        ratios = {first.concurrency: speed_up(first, second) for first, second in pairs}
    if as_json:
        result: dict[str, object] = {
            "machine": machine_name(),
            "dataset": str(dataset),
            "requests": requests,
            "max_tokens": max_tokens,
            "contenders": [contender.to_json() for contender in contenders],
        }
        if ratios:
            levels = [{"concurrency": number, **figures} for number, figures in ratios.items()]
            result["speed_up"] = {"of": contenders[0].label, "over": contenders[1].label, "levels": levels}
        print_json(result)
    else:
        _print(contenders, ratios)
    if not is_whole:
        raise KeyboardInterrupt


def _measure(
    contenders: list[_Contender],
    prompts: list[str],
    requests: int,
    concurrency: list[int],
    max_tokens: int,
    tokenizer: Path | None,
    advance: Callable[[int], None] | None,
) -> bool:
    """Measure every contender in turn at each level. Return False after Ctrl-C."""
    from vlmsearch.bench.llm import counter, run
    from vlmsearch.generators.base import GenerationOptions
    from vlmsearch.registry import open_generator

    options, done = GenerationOptions(max_tokens=max_tokens), itertools.count(1)
    with ExitStack() as stack:
        ready = []
        for contender in contenders:
            generator = stack.enter_context(open_generator(contender.url))
            count, contender.counted_by = counter(generator, tokenizer)
            "".join(generator.stream(prompts[0], options))  # not counted, since models load at the first request
            ready.append((contender, generator, count))
        for number, (contender, generator, count) in itertools.product(concurrency, ready):
            level = run(
                generator, prompts, options, concurrency=number, requests=requests, count=count,
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
    return [
        _Contender(with_model(url, model), model if len(urls) == 1 else f"{model} at {url.partition('?')[0]}")
        for url in urls
        for model in models
    ]


def _print(contenders: list[_Contender], ratios: dict[int, dict[str, float]]) -> None:
    names = ("model", "concurrency", "requests", "tokens/s", "requests/s", "first token ms", "inter-token ms",
             "latency ms", "total s", "errors")  # fmt: skip
    rows = []
    for contender in contenders:
        for level in contender.levels:
            times = ("/".join(f"{1000 * t:.1f}" for t in (p.p50, p.p95, p.p99))
                     for p in (level.first_token, level.inter_token, level.latency))  # fmt: skip
            rows.append([
                contender.label, str(level.concurrency), str(level.requests), f"{level.tokens_per_second:.1f}",
                f"{level.requests_per_second:.2f}", *times, f"{level.seconds:.2f}", str(level.failed),
            ])  # fmt: skip
    print_table(names, rows, left=("model",))
    for number, figures in ratios.items():
        ratio = figures["tokens_per_second"]
        click.echo(f"{contenders[0].label} is {ratio:.2f} times as fast at {number} concurrent requests", err=True)
    for contender in contenders:
        click.echo(f"{contender.label}: tokens counted by {contender.counted_by}; times are p50/p95/p99", err=True)
        print_errors(contender.levels, f"{contender.label}: ")
