"""``vlmsearch describe``."""

from __future__ import annotations

from typing import Any

import click

from vlmsearch.cli.common import (
    PlainText,
    command,
    json_option,
    option,
    print_json,
    short_path,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.cli.search_options import flags
from vlmsearch.indexing.options import DescribeRequest
from vlmsearch.wire import to_json

_SHOWN = 5


@command()
@flags(DescribeRequest, leave_out=["fields"])
@option(
    "--fields",
    type=PlainText(),
    metavar="KEYS",
    help="Metadata to fill instead, with commas between them, such as colour,count:whole.",
)
@index_options("encoder", "generator", "image_limits", "server", "principals")
@json_option
def describe(fields: str | None, chosen: IndexChoice, as_json: bool, **options: Any) -> None:
    """Describe pictures without a text by a model that sees, so that words find them.

    The description becomes the text of the document. Its metadata name the model under described_by. A caption is never
    touched. You may interrupt it and run it again: pictures that are described are skipped.
    """
    with chosen.open() as index, progress(index.count(), quiet=as_json, what="describing") as advance:
        keys = [name.strip() for name in fields.split(",")] if fields else ()
        report = index.describe(fields=keys, **options, on_progress=advance)
    if as_json:
        print_json(to_json(report))
        return
    if not options["dry_run"]:
        click.echo(f"{report.described:,} described, {report.unchanged:,} unchanged in {report.seconds:.1f} s")
    if report.left:
        tokens = f", and reads {report.prompt_tokens_left:,} tokens" if report.prompt_tokens_left else ""
        click.echo(f"{report.left:,} left: that takes about {_duration(report.seconds_left)}{tokens}")
    for reject in report.rejects[:_SHOWN]:
        click.echo(f"rejected {short_path(reject.id)}: {reject.message}", err=True)
    if len(report.rejects) > _SHOWN:
        click.echo(f"and {len(report.rejects) - _SHOWN:,} more: vlmsearch info --rejects", err=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
