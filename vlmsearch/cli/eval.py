"""``vlmsearch eval``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch._util.files import replace_file
from vlmsearch.cli.common import command, json_option, option, plot_option, print_json, print_table, short_path
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.cli.search_options import flags
from vlmsearch.errors import ConfigError
from vlmsearch.search import evaluation
from vlmsearch.search.curves import Evaluation
from vlmsearch.search.evaluation import (
    FUSED,
    NO_MATCH_PRECISION,
    NO_MATCH_RECALL,
    SHOWN_F1,
    Difference,
    FieldMeasures,
    Tuning,
    Values,
)
from vlmsearch.search.judged import JudgedQuery, read_queries
from vlmsearch.search.options import RankingOptions
from vlmsearch.search.report import evaluate, fields_of, tuning_of
from vlmsearch.stores.base import Tunable

if TYPE_CHECKING:
    from vlmsearch.index import Index
    from vlmsearch.pipeline import Pipeline


@dataclass(frozen=True)
class _Report:
    """A report of an earlier run: its limit, and the measures of each query."""

    limit: int
    values: Mapping[str, Values]


def _read_report(text: str) -> _Report:
    values: dict[str, dict[str, float]] = {}
    try:
        report = json.loads(Path(text).read_text(encoding="utf-8"))
        for id, row in report["by_query"][FUSED].items():
            for name, value in row["measures"].items():
                values.setdefault(name, {})[id] = float(value)
        return _Report(int(report["limit"]), values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise click.BadParameter(f"{text} is not a report of `vlmsearch eval --report`: {exc!r}") from exc


@command("eval")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@index_options("encoder", "server", "principals", "quiet")
@flags(RankingOptions, leave_out=["where", "rerank_first", "rerank_seconds"])
@option("--compare", type=_read_report, metavar="FILE", help="Compare with the report of an earlier run.")
@option("--tune", is_flag=True, help="Choose weights and threshold by cross-validation, and save them in the index.")
@plot_option("--plot", "Write the curves of precision and recall by threshold, the scores and the calibration.")
@option("--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write all figures as JSON.")
@json_option
def eval(
    file: Path,
    chosen: IndexChoice,
    limit: int,
    min_score: float | None,
    weights: Mapping[str, float] | None,
    rerank: str | None,
    compare: _Report | None,
    tune: bool,
    plot: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure how well an index answers judged queries: each field alone and all fields fused.

    FILE holds lines of JSON such as {"query": "a dog", "relevant": ["ID", ...]}. For grades, write {"ID": GRADE, ...}
    in place of the list. An empty list says that nothing in the index is an answer. "image" names an image to search
    by. An ID may be the path of a file, relative to FILE. FILE may also be a folder of BEIR.

    With --compare, the exit status is 1 if nDCG or the F1 of the shown matches is significantly lower than in the
    report. The test is a randomisation test: p below 0.05, corrected for two measures.
    """
    folder = file if file.is_dir() else file.parent
    if chosen.server:
        if compare or tune or report or weights or min_score is not None:
            raise click.UsageError(
                "--server measures its own setting: leave out --compare, --tune, --report, --weight and --min-score"
            )
        result = _measure_there(chosen, read_queries(file), folder, limit, rerank, quiet=as_json)
        _plot(plot, result)
        print_json(result) if as_json else _print(result, None, None)
        return
    if compare is not None and compare.limit != limit:
        raise ConfigError(f"the report is of the first {compare.limit} matches: give --limit {compare.limit}")
    setting: dict[str, Any] = {"weights": weights, "min_score": min_score, "rerank": rerank or False}
    evaluation.load_measures()
    if chosen.principals and tune:
        raise click.UsageError("what is tuned is for all who search: leave out --principals or --tune")
    with chosen.open_here() as pipeline:
        if tune and not isinstance(pipeline.store, Tunable):
            raise ConfigError(f"{pipeline.store.name} cannot keep what is tuned: leave out --tune")
        queries = _known(read_queries(file), pipeline, folder)
        result, measured, tuning = _measure(pipeline, queries, limit, setting, tune=tune, quiet=as_json)
    differences = None if compare is None else _compare(compare, measured[FUSED].values)
    dropped = evaluation.drops(differences or [], (evaluation.order_measure(limit), SHOWN_F1))
    if differences is not None:
        result["compared"] = [asdict(difference) for difference in differences]
        result["dropped"] = [difference.measure for difference in dropped]
    if tuning is not None:
        result["tuning"] = asdict(tuning)
    if report is not None:
        whole = result | {"by_query": {name: _by_query(field, queries) for name, field in measured.items()}}
        replace_file(report, json.dumps(whole, indent=1).encode())
        click.echo(f"wrote {short_path(str(report.resolve()))}", err=True)
    _plot(plot, result)
    print_json(result) if as_json else _print(result, differences, tuning)
    if dropped:
        click.echo(f"Significantly lower: {' and '.join(difference.measure for difference in dropped)}", err=True)
        sys.exit(1)


def _plot(path: Path | None, result: Mapping[str, Any]) -> None:
    """Write the plots of a result, where they are asked for."""
    if path is None:
        return
    from vlmsearch.notebook.files import write_evaluation

    write_evaluation(path, result)
    click.echo(f"wrote {short_path(str(path.resolve()))}", err=True)


def _measure(
    pipeline: Pipeline,
    queries: Sequence[JudgedQuery],
    limit: int,
    setting: Mapping[str, Any],
    *,
    tune: bool,
    quiet: bool,
) -> tuple[Evaluation, Mapping[str, FieldMeasures], Tuning | None]:
    """Measure a setting, and tune the index if ``tune``."""
    fields = fields_of(pipeline, queries)
    searches = len(queries) + sum(map(len, fields.values()))
    searches += len(queries) * (1 + len(evaluation.lattice(list(fields)))) if tune else 0
    done = count(1)
    with progress(searches, quiet=quiet, what="searching") as advance:

        def on_search() -> None:
            if advance is not None:
                advance(next(done))

        result, measured = evaluate(pipeline, queries, limit=limit, on_search=on_search, **setting)
        if not tune or not isinstance(pipeline.store, Tunable):
            return result, measured, None
        present = tuning_of(pipeline)
        tuning = evaluation.tune(pipeline, queries, fields, present=present, limit=limit, on_search=on_search)
        if tuning.values:
            pipeline.store.tune(tuning.values)
    return result, measured, tuning


def _measure_there(
    chosen: IndexChoice, queries: Sequence[JudgedQuery], folder: Path, limit: int, rerank: str | None, *, quiet: bool
) -> Mapping[str, Any]:
    judge = chosen.reranker(rerank)
    with chosen.connect() as remote, progress(None, quiet=quiet, what="searching") as advance:
        return remote.evaluate(_known(queries, remote, folder), limit=limit, rerank=judge, on_progress=advance)


def _compare(before: _Report, after: Mapping[str, Values]) -> list[Difference]:
    names = [name for name in after if after[name] or before.values.get(name)]
    return [evaluation.compare(name, before.values.get(name, {}), after[name]) for name in names]


def _known(queries: Sequence[JudgedQuery], index: Index, folder: Path) -> list[JudgedQuery]:
    """Return the queries with the ids that the index has.

    Raises:
        ConfigError: The index has none of the relevant documents.
    """
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


def _by_query(measured: FieldMeasures, queries: Sequence[JudgedQuery]) -> dict[str, object]:
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
    fields, limit = result["fields"], result["limit"]
    every = (*evaluation.ranking_measures(limit), SHOWN_F1, NO_MATCH_PRECISION, NO_MATCH_RECALL)
    names = [name for name in every if any(name in field["measures"] for field in fields.values())]
    rows = [(name, *(_cell(field["measures"].get(name)) for field in fields.values())) for name in names]
    rows.append(("queries", *(str(field["queries"]) for field in fields.values())))
    rows.append(("p50", *(f"{field['p50'] * 1e3:.1f} ms" for field in fields.values())))
    rows.append(("p95", *(f"{field['p95'] * 1e3:.1f} ms" for field in fields.values())))
    click.echo(
        f"{result['store']}, {result['model']}: {result['queries']} queries, {result['without_answer']} of them "
        f"without an answer; the first {limit} matches count, and those from {result['min_score']} are shown"
    )
    print_table(("", *fields), rows, left=("",))
    if differences is not None:
        rows = [(change.measure, *_cells(change)) for change in differences]
        print_table(("", "before", "now", "difference", "p"), rows, left=("",))
    if tuning is not None:
        _print_tuning(tuning)


def _print_tuning(tuning: Tuning) -> None:
    click.echo(f"Tuned on {tuning.parts - 1} of {tuning.parts} parts of the queries in turn; on the other parts:")
    rows = [(change.measure, *_cells(change)) for change in (tuning.order, tuning.shown) if change is not None]
    print_table(("", "before", "tuned", "difference", "p"), rows, left=("",))
    kept = ", ".join(f"{name} {value:g}" for name, value in tuning.values.items())
    click.echo(f"Kept in the index: {kept}" if kept else "Nothing is better than the present setting, which stays.")


def _cells(change: Difference) -> tuple[str, str, str, str]:
    gain = f"{change.after - change.before:+.3f} ({change.low:+.3f} to {change.high:+.3f})"
    p = f"{change.p:.4f}" if change.p >= 0.0001 else "<0.0001"
    return f"{change.before:.3f}", f"{change.after:.3f}", gain, p


def _cell(measure: Mapping[str, float] | None) -> str:
    return f"{measure['value']:.3f} ({measure['low']:.2f}-{measure['high']:.2f})" if measure else ""
