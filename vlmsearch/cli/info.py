"""``vlmsearch info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vlmsearch._util.unread import unread_text
from vlmsearch.cli.common import (
    command,
    json_option,
    need_manifest,
    option,
    plot_option,
    print_json,
    short_path,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.indexing.unread import unread_info
from vlmsearch.types import Reject, files_text
from vlmsearch.wire import to_json


@command()
@index_options("encoder", "server", "principals")
@option("--rejects", is_flag=True, help="List the rejected files.")
@plot_option("--scores", "Write a histogram of the scores that searches give, with the threshold.")
@option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Queries of --scores, one a line. By default, the texts of 100 documents.",
)
@json_option
def info(chosen: IndexChoice, rejects: bool, scores: Path | None, queries: Path | None, as_json: bool) -> None:
    """Show the contents, the model and the settings of an index.

    --scores searches for each query and draws how the scores of the matches lie: those of the best match of each query,
    or of the document that a text is of, beside those of the others. A good threshold lies between the two.
    """
    if scores is None and queries is not None:
        raise click.UsageError("--queries are for --scores")
    if scores is not None and queries is None and chosen.server:
        raise click.UsageError("a server does not draw texts of its documents: give --queries FILE with a query a line")
    if chosen.server:
        with chosen.connect() as remote:
            facts, listed, ranker = remote.info(), remote.rejects() if rejects else [], "index"
    else:
        from vlmsearch.search.info import index_info
        from vlmsearch.stores.base import RejectList, WordSearch

        with chosen.open_store() as store:
            facts = {**index_info(store, need_manifest(store)), **unread_info(store)}
            listed = store.rejects() if rejects and isinstance(store, RejectList) else []
            ranker = "index" if isinstance(store, WordSearch) else "store"
    if scores is not None:
        _write_scores(scores, chosen, queries)
    if as_json:
        print_json({**facts, **({"rejects": [to_json(reject) for reject in listed]} if rejects else {})})
    else:
        _print(facts, listed, ranker)


def _write_scores(path: Path, chosen: IndexChoice, queries: Path | None) -> None:
    """Write the histogram of the scores of an index."""
    from vlmsearch.notebook.files import write_scores
    from vlmsearch.search.scores import index_scores

    try:
        lines = None if queries is None else queries.read_text(encoding="utf-8").splitlines()
    except ValueError as exc:
        raise click.BadParameter(f"{queries} is not a text in UTF-8", param_hint="--queries") from exc
    with chosen.open() as index:
        drawn = index_scores(index, lines)
    write_scores(path, drawn)
    click.echo(f"wrote {short_path(str(path.resolve()))}: {drawn.empty:.0%} of the queries show nothing", err=True)


def _print(facts: Mapping[str, Any], listed: Sequence[Reject], ranker: str) -> None:
    known = {"fingerprint", "created", "spaces", "words", "tuning", "relevance", "threshold", "rejected", "name", "can"}
    known |= {"domains", "uncalibrated", "partly_read", "unread", "files", *([] if facts["passages"] else ["passages"])}
    facts = {**facts, "documents": f"{facts['documents']}{files_text(facts['documents'], facts.get('files', 0))}"}
    for name, value in facts.items():
        if name not in known:
            click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {facts['fingerprint']}, {facts['created']}")
    for space in facts["spaces"]:
        click.echo(f"space       {space['name']}: {' and '.join(space['modalities'])}, {space['dim']} dimensions")
    click.echo(f"words       {facts['words'] or f'not ranked by this {ranker}'}")
    for field, basis in facts["relevance"].items():
        click.echo(f"relevance   {field}: {basis}")
    for field, name in facts["domains"].items():
        click.echo(f"made for    {field}: {name}")
    for field, reason in facts["uncalibrated"].items():
        click.echo(f"uncalibrated  {field}: {reason}")
    click.echo(f"threshold   {facts['threshold']:g}")
    if facts["tuning"]:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in facts['tuning'].items())}")
    codes = facts["rejected"]
    rejected = (
        "not known: the store keeps none, or this handle is restricted"
        if codes is None
        else ", ".join(f"{n} {code}" for code, n in codes.items())
    )
    click.echo(f"rejected    {rejected or 'none'}")
    if count := facts.get("partly_read"):
        click.echo(f"not read    {unread_text(facts['unread'])}, of {count:,} documents: `vlmsearch list --unread`")
    for reject in listed:
        click.echo(f"  {reject.code:<12} {reject.message}")
