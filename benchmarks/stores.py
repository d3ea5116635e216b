"""Embedded stores beside each other and beside bare LanceDB: writing, searching, filters, words, processes."""

from __future__ import annotations

import shutil
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
import numpy as np

from benchmarks.common import print_figures
from benchmarks.contenders import Contender, open_contender, place_of, records, store_url
from benchmarks.corpus import Condition, Corpus, ExactNearest
from benchmarks.processes import Reading, first_answer, read_while_writing, run_search
from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report
from vlmsearch.cli.common import names_of
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.types import Vectors

PARTS = ("write", "search", "filters", "words", "process", "readers", "command")
SHARES = (0.5, 0.01, 0.0001)
"""The shares of the documents that the filters keep."""
_DEEP = 100
_ROUNDS = 3
"""New processes for each figure."""
_ADDED = 20_000
"""Documents that are written while others read."""
_ENCODER = "onnx:demo"
_COMMAND_DOCUMENTS = 10_000


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
@click.option("--stores", default="sqlite,chroma", show_default=True, metavar="LIST",
              help="Embedded stores, with options if need be (chroma?hnsw_ef_search=100), lancedb (no indexes) and "
              "lancedb-ivf (its indexes).")  # fmt: skip
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
    """Time embedded stores beside each other and beside LanceDB, in turns; searches are medians.

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
    for part, started in (("process", _processes), ("readers", _readers), ("command", _command)):
        if part in setting.parts:
            report(part, 0, 0)
            yield from started(setting)


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
    calls = {name: partial(_ask, contender, questions) for name, contender in opened.items()}
    turns = _in_turns(calls, questions.plain)
    yield from _percentiles("search", turns)
    yield StoreFigure("search, recall@10", "", _recalls(turns.found, questions))
    few = questions.plain[: max(3, len(questions.plain) // 4)]
    pages = {
        name: (lambda place, contender=contender: contender.page(questions.vectors[place]))
        for name, contender in opened.items()
    }
    yield StoreFigure("search and read 10 documents, p50", "ms", _medians(_in_turns(pages, few).wall))
    deep = {
        name: (lambda place, contender=contender: contender.search(questions.vectors[place], limit=_DEEP))
        for name, contender in opened.items()
    }
    yield StoreFigure(f"search for {_DEEP}, p50", "ms", _medians(_in_turns(deep, few).wall))


def _filters(opened: Mapping[str, Contender], questions: _Questions) -> Iterator[StoreFigure]:
    calls = {name: partial(_ask, contender, questions) for name, contender in opened.items()}
    for share in SHARES:
        kept = f"filter that keeps {100 * share:g} %"
        both: dict[str, list[tuple[int, list[str]]]] = {name: [] for name in opened}
        for when, places in (("first time", questions.first[share]), ("again", questions.again[share])):
            turns = _in_turns(calls, places)
            yield StoreFigure(f"{kept}, {when}, p50", "ms", _medians(turns.wall))
            for name, answers in turns.found.items():
                both[name] += answers
        yield StoreFigure(f"{kept}, recall@10", "", _recalls(both, questions))
        full = {
            name: statistics.mean(
                len(ids) / len(questions.exact.best(place)) for place, ids in answers if questions.exact.best(place)
            )
            for name, answers in both.items()
        }
        yield StoreFigure(f"{kept}, share of the page that is filled", "", full)


def _words(opened: Mapping[str, Contender], questions: _Questions) -> Iterator[StoreFigure]:
    ranking = {name: one for name, one in opened.items() if one.search_words(questions.words[0]) is not None}
    if ranking:
        calls = {
            name: (lambda place, contender=contender: contender.search_words(questions.words[place]) or [])
            for name, contender in ranking.items()
        }
        yield from _percentiles("words", _in_turns(calls, range(len(questions.words))))


def _ask(contender: Contender, questions: _Questions, place: int) -> list[str]:
    return contender.search(questions.vectors[place], questions.conditions[place])


def _processes(setting: StoreSetting) -> Iterator[StoreFigure]:
    rounds = [
        {name: first_answer(name, setting.folder, setting.corpus) for name in setting.names} for _ in range(_ROUNDS)
    ]
    for what, attribute, unit in (
        ("new process: from its start to the first answer", "wall", "s"),
        ("new process: opening and first answer, without imports", "answer", "s"),
        ("new process: CPU time to the first answer", "cpu", "s"),
        ("new process: peak memory", "peak", "MiB"),
        ("new process: search p50", "search", "ms"),
        ("new process: first search with a filter", "filtered", "ms"),
    ):
        values = {name: statistics.median(getattr(one[name], attribute) for one in rounds) for name in setting.names}
        yield StoreFigure(what, unit, values)


def _readers(setting: StoreSetting) -> Iterator[StoreFigure]:
    added = min(_ADDED, setting.corpus.documents)
    found: dict[str, Reading] = {}
    for name in setting.names:
        try:
            found[name] = read_while_writing(name, setting.folder, setting.corpus, added)
        except BackendError as exc:
            click.echo(f"{name}: {exc}", err=True)
    for what, attribute, unit in (
        ("4 readers: opening and first answer of the slowest", "start", "s"),
        ("4 readers beside a writer: its rate", "rate", "documents/s"),
        ("4 readers beside a writer: longest from commit to found", "lag", "s"),
        ("4 readers beside a writer: search p50", "search", "ms"),
        ("4 readers beside a writer: blocks never found", "unseen", ""),
        ("4 readers beside a writer: errors", "errors", ""),
    ):
        yield StoreFigure(what, unit, {name: float(getattr(one, attribute)) for name, one in found.items()})
    for name, one in found.items():
        if one.first_error:
            click.echo(f"{name}: {one.first_error}", err=True)


def _command(setting: StoreSetting) -> Iterator[StoreFigure]:
    """`vlmsearch search` with the demonstration model on an index with 10,000 documents and made-up vectors."""
    names = [name for name in setting.names if not name.startswith("lancedb")]
    folder = setting.folder / "command"
    shutil.rmtree(folder, ignore_errors=True)
    with open_encoder(_ENCODER) as encoder:
        fingerprint, spaces = encoder.fingerprint, encoder.spaces
    for name in names:
        place_of(name, folder).mkdir(parents=True)
        with open_store(store_url(name, folder)) as store:
            store.bind(fingerprint, spaces)
            (space,) = [space for space in spaces if space.modalities == {"text"}]
            corpus = Corpus(min(_COMMAND_DOCUMENTS, setting.corpus.documents), space.dim)
            for number in corpus.blocks:
                store.upsert(records(corpus.block(number), space.fields[0]))
    rounds = [
        {name: run_search(["a red star", "--store", store_url(name, folder)]) for name in names} for _ in range(_ROUNDS)
    ]
    for place, what in enumerate(("`vlmsearch search`", "`vlmsearch search`, CPU time")):
        yield StoreFigure(what, "s", {name: statistics.median(one[name][place] for one in rounds) for name in names})


@dataclass(frozen=True)
class _Turns:
    """Milliseconds of each contender's calls, those of all cores, and the answers with the numbers of the queries."""

    wall: dict[str, list[float]]
    cpu: dict[str, list[float]]
    found: dict[str, list[tuple[int, list[str]]]]


def _in_turns(calls: Mapping[str, Callable[[int], list[str]]], places: Sequence[int]) -> _Turns:
    """Ask all contenders query by query, after one call that is not counted."""
    turns = _Turns({name: [] for name in calls}, {name: [] for name in calls}, {name: [] for name in calls})
    for call in calls.values():
        call(places[-1])
    for place in places:
        for name, call in calls.items():
            started, before = time.perf_counter(), time.process_time()
            answer = call(place)
            turns.wall[name].append(1000 * (time.perf_counter() - started))
            turns.cpu[name].append(1000 * (time.process_time() - before))
            turns.found[name].append((place, answer))
    return turns


def _percentiles(what: str, turns: _Turns) -> Iterator[StoreFigure]:
    yield StoreFigure(f"{what}, p50", "ms", _medians(turns.wall))
    p95 = {name: float(np.percentile(times, 95)) for name, times in turns.wall.items()}
    yield StoreFigure(f"{what}, p95", "ms", p95)
    yield StoreFigure(f"{what}, CPU time", "ms", _medians(turns.cpu))


def _medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in times.items()}


def _recalls(found: Mapping[str, Sequence[tuple[int, list[str]]]], questions: _Questions) -> dict[str, float]:
    """Return the share of the exact answers that was found."""
    best = questions.exact.best
    return {
        name: statistics.mean(len({*ids} & {*best(place)}) / len(best(place)) for place, ids in answers if best(place))
        for name, answers in found.items()
    }


def _time(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
