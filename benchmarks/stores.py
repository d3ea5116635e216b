"""Embedded stores beside bare LanceDB: writing, searching, filters, words, and new processes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.common import in_turns, print_figures
from benchmarks.contenders import Contender, open_contender, place_of
from benchmarks.corpus import LIMIT, Condition, Corpus, ExactNearest
from benchmarks.first_answer import FIGURES, first_answer
from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report
from vlmsearch.cli.common import names_of
from vlmsearch.errors import ConfigError
from vlmsearch.types import Vectors

PARTS = ("write", "search", "filters", "words", "process")
SHARES = (0.5, 0.01, 0.0001)
"""The shares of the documents that the filters keep."""
_DEEP = 100
_ROUNDS = 3
"""New processes for each figure."""


@dataclass(frozen=True)
class StoreSetting:
    """The collection to measure; a collection that is in the folder already is not written again."""

    names: Sequence[str]
    corpus: Corpus
    queries: int
    parts: Sequence[str]
    folder: Path


class StoreFigure(NamedTuple):
    """One measured figure of each contender."""

    name: str
    unit: str
    values: Mapping[str, float]


@click.command()
@click.option("--stores", default="sqlite", show_default=True, metavar="LIST",
              help="Embedded stores, lancedb (no indexes) and lancedb-ivf (its indexes).")  # fmt: skip
@click.option("--documents", default=100_000, show_default=True, type=click.IntRange(100), help="How many documents.")
@click.option("--dim", default=512, show_default=True, type=click.IntRange(2), help="How long their vectors are.")
@click.option("--queries", default=200, show_default=True, type=click.IntRange(5), help="How many searches are timed.")
@click.option("--random", is_flag=True, help="Independent vectors, the hardest case, in place of clusters.")
@click.option("--parts", type=names_of(PARTS), default=",".join(PARTS), show_default=True, metavar="LIST",
              help="What is measured.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Keep the collections in DIR; those that are there are measured and not written again.  "
              "[default: a temporary folder]")  # fmt: skip
def main(
    stores: str, documents: int, dim: int, queries: int, random: bool, parts: list[str], folder: Path | None
) -> None:
    """Time embedded stores beside LanceDB, in turns; searches are medians.

    Captions, metadata and vectors are made up, and the same in each run. Recall is against exact float32.
    """
    names = stores.split(",")
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as place, steps("stores") as report:
        setting = StoreSetting(names, Corpus(documents, dim, random), queries, parts, folder or Path(place))
        figures = list(measure_stores(setting, report))
    rows = [(f.name, f.unit, *(_number(f.values.get(name)) for name in names)) for f in figures]
    print_figures(f"{documents:,} x {dim}", ("what", "unit", *names), rows, left=2)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def measure_stores(setting: StoreSetting, report: Report) -> Iterator[StoreFigure]:
    """Fill a collection of each contender and measure them in turns."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    questions = _Questions(setting)
    yield from _fill(setting, questions.exact, report)
    with ExitStack() as stack:
        opened = {name: _open(stack, setting, name) for name in setting.names}
        for part, measured in (("search", _search), ("filters", _filters), ("words", _words)):
            if part in setting.parts:
                report(part, 0, 0)
                yield from measured(opened, questions)
    if "process" in setting.parts:
        report("process", 0, 0)
        yield from _processes(setting)


class _Questions:
    """The queries and filters that all contenders get, and the exact answers."""

    def __init__(self, setting: StoreSetting) -> None:
        corpus, count = setting.corpus, setting.queries
        few = max(5, count // 5) if "filters" in setting.parts else 0
        drawn = corpus.queries(count + 2 * len(SHARES) * few)
        self.plain = range(count)
        conditions: list[Condition | None] = [None] * count
        self.first: dict[float, range] = {}
        self.again: dict[float, range] = {}
        for share in SHARES if few else ():
            self.first[share] = range(len(conditions), len(conditions) + few)
            conditions += corpus.conditions(share, few)
            self.again[share] = range(len(conditions), len(conditions) + few)
            conditions += corpus.conditions(share, few)[-1:] * few
        self.vectors: Vectors = drawn
        self.conditions = conditions
        self.exact = ExactNearest(drawn, conditions)
        self.words = corpus.word_queries(count)


def _fill(setting: StoreSetting, exact: ExactNearest, report: Report) -> Iterator[StoreFigure]:
    """Write what is not there yet, block by block in turns, and find the exact answers on the way."""
    missing = [name for name in setting.names if not place_of(name, setting.folder).exists()]
    total = setting.corpus.documents
    with ExitStack() as stack:
        seconds = dict.fromkeys(missing, 0.0)
        opened = {name: _open(stack, setting, name) for name in missing}
        for number in setting.corpus.blocks:
            block = setting.corpus.block(number)
            exact.add(block)
            for name, contender in opened.items():
                seconds[name] += _time(partial(contender.add, block))
            report("writing" if missing else "exact answers", number * len(block.ids), total)
        after = {name: _time(contender.finish) for name, contender in opened.items()}
    for name in setting.names:
        _check_count(setting, name)
    if missing and "write" in setting.parts:
        rates = {name: total / spent for name, spent in seconds.items()}
        whole = {name: total / (seconds[name] + after[name]) for name in missing}
        yield StoreFigure("write", "documents/s", rates)
        yield StoreFigure("write, with closing or building indexes", "documents/s", whole)
        yield StoreFigure("on disk", "MiB", {name: _size(place_of(name, setting.folder)) for name in missing})


def _open(stack: ExitStack, setting: StoreSetting, name: str) -> Contender:
    contender = open_contender(name, setting.folder, setting.corpus.dim)
    stack.callback(contender.close)
    return contender


def _check_count(setting: StoreSetting, name: str) -> None:
    with ExitStack() as stack:
        have = _open(stack, setting, name).count()
    if have != setting.corpus.documents:
        place = place_of(name, setting.folder)
        raise ConfigError(
            f"{place} holds {have:,} documents, not {setting.corpus.documents:,}: remove it or give another folder"
        )


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _search(opened: Mapping[str, Contender], questions: _Questions) -> Iterator[StoreFigure]:
    seconds, answers = in_turns(_askers(opened, questions), questions.plain)
    yield StoreFigure("search, p50", "ms", _medians(seconds))
    yield StoreFigure("search, recall@10", "", _recalls(answers, questions.plain, questions))
    few = questions.plain[: max(3, len(questions.plain) // 4)]
    deep, _ = in_turns(_askers(opened, questions, _DEEP), few)
    yield StoreFigure(f"search for {_DEEP}, p50", "ms", _medians(deep))


def _filters(opened: Mapping[str, Contender], questions: _Questions) -> Iterator[StoreFigure]:
    for share in SHARES:
        kept = f"filter that keeps {100 * share:g} %"
        for when, places in (("first time", questions.first[share]), ("again", questions.again[share])):
            seconds, answers = in_turns(_askers(opened, questions), places)
            yield StoreFigure(f"{kept}, {when}, p50", "ms", _medians(seconds))
            yield StoreFigure(f"{kept}, {when}, recall@10", "", _recalls(answers, places, questions))


def _words(opened: Mapping[str, Contender], questions: _Questions) -> Iterator[StoreFigure]:
    first = questions.words[0]
    ranking = {name: each.search_words for name, each in opened.items() if each.search_words(first) is not None}
    if ranking:
        yield StoreFigure("words, p50", "ms", _medians(in_turns(ranking, questions.words)[0]))


def _askers(
    opened: Mapping[str, Contender], questions: _Questions, limit: int = LIMIT
) -> dict[str, Callable[[int], list[str]]]:
    def ask(contender: Contender, place: int) -> list[str]:
        return contender.search(questions.vectors[place], questions.conditions[place], limit=limit)

    return {name: partial(ask, contender) for name, contender in opened.items()}


def _processes(setting: StoreSetting) -> Iterator[StoreFigure]:
    rounds = [
        {name: first_answer(name, setting.folder, setting.corpus) for name in setting.names} for _ in range(_ROUNDS)
    ]
    for what, unit in FIGURES.items():
        values = {name: statistics.median(each[name][what] for each in rounds) for name in setting.names}
        yield StoreFigure(f"new process: {what}", unit, values)


def _medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: 1000 * statistics.median(times) for name, times in seconds.items()}


def _recalls(
    answers: Mapping[str, Sequence[list[str]]], places: Sequence[int], questions: _Questions
) -> dict[str, float]:
    """Return the share of the exact answers that was found."""
    exact = [set(questions.exact.best(place)) for place in places]
    return {
        name: statistics.mean(len(best & {*ids}) / len(best) for best, ids in zip(exact, pages) if best)
        for name, pages in answers.items()
    }


def _time(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
