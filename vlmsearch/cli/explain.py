"""``vlmsearch explain``."""

from __future__ import annotations

from typing import Any

import click

from vlmsearch.cli.common import command, json_option, option, print_json, print_table, short_path
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.cli.search_options import flags, query_options
from vlmsearch.search.explanation import MIN_FALL, WINDOWS, Explanation, FieldEvidence, Regions
from vlmsearch.search.options import ExplainRequest
from vlmsearch.types import WORDS
from vlmsearch.wire import to_json

_MAX_PASSAGES = 5


@command()
@click.argument("text", metavar="QUERY")
@click.argument("id")
@query_options
@flags(ExplainRequest, leave_out=["parts", "seconds"])
@index_options("encoder", "image_limits", "server", "principals")
@option("--parts", is_flag=True, help="Find the sentences and the image regions that mattered.")
@json_option
def explain(
    query: dict[str, Any],
    id: str,
    chosen: IndexChoice,
    parts: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Explain why a search for QUERY shows the document ID, or why it does not.

    ID is the id of a document or the path of a file. QUERY may be "" with --image or --like. Give the same options as
    for the search.
    """
    from vlmsearch.indexing.sources import file_id

    keywords = {**query, **chosen.search_keywords(options)}
    is_quiet = as_json or not parts or bool(chosen.server)
    with chosen.open() as index, progress(WINDOWS, quiet=is_quiet, what="covering") as advance:
        for name in (id, file_id(id)):
            explanation = index.explain(**keywords, id=name, parts=parts, on_progress=advance)
            if explanation.outcome != "absent":
                break
    if as_json:
        print_json(to_json(explanation))
    else:
        _print(explanation)


def _print(explanation: Explanation) -> None:
    click.echo(f"{short_path(explanation.id)}: {explanation.reason}")
    if explanation.document is None:
        return
    place = f", place {explanation.place} of {explanation.candidates}" if explanation.place else ""
    click.echo(f"Relevance {explanation.relevance:.3f}, shown from {explanation.threshold:.3f}{place}.")
    click.echo()
    print_table(
        ("field", "rank", "value", "usually", "evidence", "weight", "adds"),
        [
            *(_row(name, field, explanation) for name, field in explanation.fields.items()),
            ("any document", "", "", "", "", "", f"{explanation.prior:+.2f}"),
            *(
                [("words alone", "", "", "", "", "", f"{explanation.words_alone:+.2f}")]
                if explanation.words_alone
                else []
            ),
            ("log-odds", "", "", "", "", "", f"{explanation.log_odds:+.2f}"),
        ],
        left=("field",),
    )
    if explanation.lacking:
        click.echo(f"It lacks {', '.join(explanation.lacking)}; that counts neither for nor against it.")
    unfitted = [
        name for name, field in explanation.fields.items() if field.basis is not None and not field.basis.fitted
    ]
    if unfitted:
        click.echo(
            f"{', '.join(unfitted)}: no fit for this query; the cosine is compared with those of other documents."
        )
    if explanation.words_alone:
        click.echo("The words match so well that they decide alone.")
    for what, score in explanation.without:
        click.echo(f"Left out: {what} (relevance {score:.3f}).")
    if explanation.judged is not None:
        click.echo(f"The re-ranker gave it {explanation.judged:.3f}.")
    if explanation.words:
        click.echo()
        print_table(
            ("word", "stem", "documents", "BM25", "maximum"),
            [
                (
                    word.word,
                    word.stem,
                    str(word.documents or "half or more"),
                    f"{word.score:.2f}",
                    f"{word.max_score:.2f}",
                )
                for word in explanation.words
            ],
            left=("word", "stem"),
        )
    mattered = [part for part in explanation.passages if part.evidence >= MIN_FALL]
    if mattered and explanation.document.text:
        click.echo()
        ordered = sorted(mattered, key=lambda part: -part.evidence)[:_MAX_PASSAGES]
        text = explanation.document.text
        print_table(
            ("adds", "sentence"),
            [(f"{part.evidence:+.2f}", " ".join(text[part.start : part.end].split())) for part in ordered],
            left=("sentence",),
        )
    for line in ([_best_region(explanation.regions)] if explanation.regions else []) + list(explanation.notes):
        click.echo(line)


def _row(name: str, field: FieldEvidence, explanation: Explanation) -> tuple[str, ...]:
    value = f"{field.value:.2f} of {explanation.max_bm25:.2f}" if name == WORDS else f"{field.value:.3f}"
    adds = f"{field.weight * field.evidence:+.2f}" if field.counts else ""
    basis = field.basis
    usual = ""
    if basis is not None and basis.median is not None and basis.deviation is not None:
        usual = f"{basis.median:.2f} ± {basis.deviation:.2f}"
    return name, str(field.rank or "-"), value, usual, f"{field.evidence:+.2f}", f"{field.weight:g}", adds


def _best_region(regions: Regions) -> str:
    """Return which part of the image mattered most, in a sentence."""
    if regions.best is None:
        return "No part of its image mattered by itself."
    left, top, right, bottom = (round(100 * share) for share in regions.best)
    evidence = max(value for row in regions.evidence for value in row if value is not None)
    return (
        f"The part of its image that mattered most is {left} to {right} % from the left and {top} to {bottom} % from "
        f"the top: it adds {evidence:.2f} to the evidence."
    )
