"""``vlmsearch eval``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch._util.files import replace_file
from vlmsearch.cli.common import (
    ServerIndex,
    command,
    encoder_option,
    json_option,
    limit_option,
    open_index,
    option,
    print_json,
    print_table,
    reranker_of,
    server_option,
    short_path,
    store_option,
)
from vlmsearch.cli.progress import progress
from vlmsearch.errors import ConfigError
from vlmsearch.search import evaluation
from vlmsearch.search.evaluation import (
    FUSED,
    NO_MATCH_PRECISION,
    NO_MATCH_RECALL,
    SHOWN_F1,
    Difference,
    Measured,
    Tuning,
    Values,
)
from vlmsearch.search.judged import JudgedQuery, read_queries
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.search.report import evaluate, fields_of, tuning_of
from vlmsearch.stores.base import Tunable
from vlmsearch.types import MIN_SCORE

if TYPE_CHECKING:
    from vlmsearch.index import Index
    from vlmsearch.pipeline import Pipeline

_OPTIONS = "weights=FIELD:NUMBER,... min_score=NUMBER rerank=URL store=URL encoder=URL"


@dataclass(frozen=True)
class _Setting:
    """What a search is compared with: other options, or the values of an earlier report with its limit."""

    weights: Mapping[str, float] | None = None
    min_score: float | None = None
    store: str | None = None
    encoder: str | None = None
    rerank: str | bool = False
    report: tuple[int, Mapping[str, Values]] | None = None


class _Compare(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer releases of click
    name = "report or options"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> _Setting:
        try:
            return value if isinstance(value, _Setting) else _setting(str(value))
        except ConfigError as exc:
            self.fail(str(exc), param, ctx)


@command("eval")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@store_option
@encoder_option
@server_option
@limit_option
@option("--rerank", metavar="URL", help="What judges the first matches of all fields anew, such as onnx:NAME.")
@option(
    "--compare",
    type=_Compare(),
    metavar="SETTING",
    help=f"Compare with an earlier report or with other options: {_OPTIONS}",
)
@option("--tune", is_flag=True, help="Choose weights and threshold by cross-validation, and keep them in the index.")
@option("--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write all figures as JSON.")
@json_option
def eval(
    file: Path,
    store: str,
    encoder: str | None,
    server: ServerIndex | None,
    limit: int,
    rerank: str | None,
    compare: _Setting | None,
    tune: bool,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure how well an index answers queries whose answers are known: each field alone and all fused.

    FILE holds lines of JSON such as {"query": "a dog", "relevant": ["ID", ...]}, or {"ID": GRADE, ...} in place of the
    list, which is empty where nothing is an answer; "image" names a picture to search by. Or FILE is a folder of BEIR.
    An ID may be the path of a file, relative to FILE.

    With --compare, the exit status is 1 where nDCG or the F1 of what is shown is significantly lower than in the
    other setting (randomisation test, p below 0.05, corrected for two measures). The other setting is that of the
    index but for what is given, without a re-ranker unless one is given: "rerank=no" gives nothing else.
    """
    folder = file if file.is_dir() else file.parent
    if server is not None:
        if compare or tune or report:
            raise click.UsageError("--server measures and no more: leave out --compare, --tune and --report")
        found = _measured_there(server, read_queries(file), folder, limit, rerank, quiet=as_json)
        print_json(found) if as_json else _print(found, None, None)
        return
    evaluation.load_measures()
    queries = read_queries(file)
    with open_index(store, encoder) as pipeline, ExitStack() as stack:
        if tune and not isinstance(pipeline.store, Tunable):
            raise ConfigError(f"{pipeline.store.name} cannot keep what is tuned: leave out --tune")
        queries = _known(queries, pipeline, folder)
        fields = fields_of(pipeline, queries)
        present = tuning_of(pipeline)
        searches = len(queries) * (1 + (compare is not None and compare.report is None))
        searches += sum(map(len, fields.values()))
        searches += len(queries) * (1 + len(evaluation.lattice(list(fields)))) if tune else 0
        count = _counter(stack.enter_context(progress(searches, quiet=as_json, what="searching")))
        result, measured = evaluate(pipeline, queries, limit=limit, rerank=rerank or False, on_search=count)
        differences = None
        if compare is not None:
            before = _before(compare, pipeline, (store, encoder), queries, limit, count)
            after = measured[FUSED].values
            names = [name for name in after if after[name] or before.get(name)]
            differences = [evaluation.compare(name, before.get(name, {}), after[name]) for name in names]
        tuning = None
        if tune:
            tuning = evaluation.tune(pipeline, queries, fields, present=present, limit=limit, on_search=count)
            if tuning.values and isinstance(pipeline.store, Tunable):
                pipeline.store.tune(tuning.values)
    dropped = evaluation.drops(differences or [], (evaluation.order_measure(limit), SHOWN_F1))
    if differences is not None:
        result["compared"] = [asdict(each) for each in differences]
        result["dropped"] = [each.measure for each in dropped]
    if tuning is not None:
        result["tuning"] = asdict(tuning)
    if report is not None:
        whole = result | {"by_query": {name: _by_query(each, queries) for name, each in measured.items()}}
        replace_file(report, json.dumps(whole, indent=1).encode())
        click.echo(f"wrote {short_path(str(report.resolve()))}", err=True)
    if as_json:
        print_json(result)
    else:
        _print(result, differences, tuning)
    if dropped:
        lower = " and ".join(each.measure for each in dropped)
        click.echo(f"Significantly lower: {lower}", err=True)
        sys.exit(1)


def _setting(text: str) -> _Setting:
    path = Path(text)
    if path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return _Setting(report=(int(found["limit"]), _values(found["by_query"][FUSED])))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise ConfigError(f"{text} is not a report of `vlmsearch eval --report`: {exc!r}") from exc
    try:
        given = dict(part.split("=", 1) for part in shlex.split(text))
    except ValueError:
        given = {}
    if not given or given.keys() - {"weights", "min_score", "rerank", "store", "encoder"}:
        raise ConfigError(f"{text!r} is neither the file of a report nor some of {_OPTIONS}")
    weights: dict[str, float] | None = None
    if "weights" in given:
        pairs = [part.rpartition(":") for part in given["weights"].split(",")]
        weights = {name: _number(number, f"the weight of {name!r}") for name, _, number in pairs}
    min_score = _number(given["min_score"], MIN_SCORE) if MIN_SCORE in given else None
    rerank = False if given.get("rerank", "no") == "no" else given["rerank"]
    return _Setting(weights, min_score, given.get("store"), given.get("encoder"), rerank)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{where} is a number, not {text!r}") from None


def _values(by_query: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the measures of each query, by measure, from a report, where they are by query."""
    values: dict[str, dict[str, float]] = {}
    for id, row in by_query.items():
        for name, value in row["measures"].items():
            values.setdefault(name, {})[id] = float(value)
    return values


def _measured_there(
    server: ServerIndex, queries: Sequence[JudgedQuery], folder: Path, limit: int, rerank: str | None, *, quiet: bool
) -> Mapping[str, Any]:
    """Return what a server measures, as JSON has it."""
    with server.connect() as remote, progress(None, quiet=quiet, what="searching") as advance:
        return remote.evaluate(
            _known(queries, remote, folder), limit=limit, rerank=reranker_of(server, rerank), on_progress=advance
        )


def _known(queries: Sequence[JudgedQuery], index: Index, folder: Path) -> list[JudgedQuery]:
    """Return the queries with the ids that the index has; ConfigError where it has none of them."""
    from vlmsearch.indexing.sources import file_id

    places = {id: file_id(os.path.abspath(folder / id)) for query in queries for id in query.relevant}
    ids = sorted({*places, *places.values()})
    there = {document.id for document in index.get(ids)}
    missing = [id for id, place in places.items() if id not in there and place not in there]
    if missing:
        named = ", ".join(map(repr, missing[:3])) + (", ..." if len(missing) > 3 else "")
        if len(missing) == len(places):
            example = next((document.id for document in index.documents()), None)
            has = f"whose ids are such as {example!r}" if example is not None else "which is empty"
            raise ConfigError(f"none of the relevant documents ({named}) is in the index, {has}")
        click.echo(
            f"Note: {len(missing)} of {len(places)} relevant documents are not in the index and count as not found: "
            f"{named}",
            err=True,
        )
    return [
        replace(query, relevant={(id if id in there else places[id]): grade for id, grade in query.relevant.items()})
        for query in queries
    ]


def _counter(advance: Callable[[int], None] | None) -> Callable[[], None]:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if advance is not None:
            advance(done)

    return count


def _before(
    setting: _Setting,
    pipeline: Pipeline,
    urls: tuple[str, str | None],
    queries: Sequence[JudgedQuery],
    limit: int,
    count: Callable[[], None],
) -> Mapping[str, Values]:
    """Return what is compared with: the measures of each query in another setting."""
    if setting.report is not None:
        reported, values = setting.report
        if reported != limit:
            raise ConfigError(f"the report is of the first {reported} matches: give --limit {reported}")
        return values
    own = setting.store is None and setting.encoder is None
    opened = nullcontext(pipeline) if own else open_index(setting.store or urls[0], setting.encoder or urls[1])
    with opened as other:
        found = evaluation.search_all(
            other, queries, limit=limit, weights=setting.weights, rerank=setting.rerank, on_search=count
        )
        present = tuning_of(other).get(MIN_SCORE, THRESHOLD)
    threshold = present if setting.min_score is None else setting.min_score
    return evaluation.measure(found, queries, limit=limit, threshold=threshold).values


def _by_query(measured: Measured, queries: Sequence[JudgedQuery]) -> dict[str, object]:
    return {
        query.id: {
            "query": query.text,
            "image": str(query.image) if query.image else None,
            "relevant": dict(query.relevant),
            "found": {id: round(score, 6) for id, score in measured.results[query.id].scores.items()},
            "seconds": measured.results[query.id].seconds,
            "measures": {name: values[query.id] for name, values in measured.values.items() if query.id in values},
        }
        for query in queries
        if query.id in measured.results
    }


def _print(result: Mapping[str, Any], differences: Sequence[Difference] | None, tuning: Tuning | None) -> None:
    measured, limit = result["fields"], result["limit"]
    every = (*evaluation.ranking_measures(limit), SHOWN_F1, NO_MATCH_PRECISION, NO_MATCH_RECALL)
    names = [name for name in every if any(name in each["measures"] for each in measured.values())]
    rows = [(name, *(_cell(each["measures"].get(name)) for each in measured.values())) for name in names]
    rows.append(("queries", *(str(each["queries"]) for each in measured.values())))
    rows.append(("p50", *(f"{each['p50'] * 1e3:.1f} ms" for each in measured.values())))
    rows.append(("p95", *(f"{each['p95'] * 1e3:.1f} ms" for each in measured.values())))
    click.echo(
        f"{result['store']}, {result['model']}: {result['queries']} queries, {result['without_answer']} of them "
        f"without an answer; the first {limit} matches count, and those from {result['min_score']} are shown"
    )
    print_table(("", *measured), rows, left=("",))
    if differences is not None:
        rows = [(each.measure, *_difference(each)) for each in differences]
        print_table(("", "other", "this", "difference", "p"), rows, left=("",))
    if tuning is not None:
        _print_tuning(tuning)


def _print_tuning(tuning: Tuning) -> None:
    click.echo(f"Tuned on {tuning.parts - 1} of {tuning.parts} parts of the queries in turn; on the other parts:")
    rows = [(each.measure, *_difference(each)) for each in (tuning.order, tuning.shown) if each is not None]
    print_table(("", "before", "tuned", "difference", "p"), rows, left=("",))
    kept = ", ".join(f"{name} {value:g}" for name, value in tuning.values.items())
    click.echo(f"Kept in the index: {kept}" if kept else "Nothing is better than the present setting, which stays.")


def _difference(each: Difference) -> tuple[str, str, str, str]:
    gain = f"{each.after - each.before:+.3f} ({each.low:+.3f} to {each.high:+.3f})"
    p = f"{each.p:.4f}" if each.p >= 0.0001 else "<0.0001"
    return f"{each.before:.3f}", f"{each.after:.3f}", gain, p


def _cell(measure: Mapping[str, float] | None) -> str:
    return f"{measure['value']:.3f} ({measure['low']:.2f}-{measure['high']:.2f})" if measure else ""
