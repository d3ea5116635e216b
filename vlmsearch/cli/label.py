"""``vlmsearch label``."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import click

from vlmsearch.cli.common import (
    PlainText,
    command,
    json_option,
    option,
    print_json,
    print_table,
    short_path,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.cli.search_options import flags
from vlmsearch.search.options import LabelRequest
from vlmsearch.wire import LabelAnswer, LabelledId, to_json

_EXAMPLES = 3


@command()
@option(
    "--as",
    "labels",
    multiple=True,
    type=PlainText(),
    metavar="LABELS",
    help="Labels with commas between them, such as cat,dog,receipt. May be given several times.",
)
@option("--remove", is_flag=True, help="Remove the labels of --key from the metadata.")
@flags(LabelRequest)
@option("--photos", is_flag=True, help="Use the seven templates of CLIP's authors for photographs.")
@index_options("encoder", "server", "principals")
@json_option
def label(
    labels: tuple[str, ...],
    remove: bool,
    photos: bool,
    chosen: IndexChoice,
    as_json: bool,
    **options: Any,
) -> None:
    """Label documents without training: compare the text of each label with their images and texts.

    Nothing is changed without --write. It writes the most relevant label under KEY and the relevance of each label
    under KEY:LABEL. Filter on these: --where '{"label:cat": {"$gte": 0.5}}'. You may interrupt it and run it again:
    labels that are written are skipped. Labels stay until a file changes.
    """
    from vlmsearch.search.labels import PHOTO_TEMPLATES

    names = [name.strip() for given in labels for name in given.split(",") if name.strip()]
    if bool(names) == remove:
        raise click.UsageError("name labels with --as cat,dog,receipt, or give --remove")
    if photos and options["templates"]:
        raise click.UsageError("give --photos or --template")
    options["templates"] = PHOTO_TEMPLATES if photos else options["templates"] or None
    options["write"] = is_written = options["write"] or remove
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    best: dict[str, list[tuple[float, str]]] = {name: [] for name in names}
    listed: list[LabelledId] = []
    seen = unlabelled = written = 0
    with (
        chosen.open() as index,
        progress(index.count(), quiet=as_json, what="labelling") as advance,
    ):
        for labelled in index.label(names, **options, on_progress=advance):
            seen, written, unlabelled = seen + 1, written + labelled.written, unlabelled + (not labelled.labels)
            for name, relevance in labelled.labels.items():
                counts[name] += 1
                best[name] = sorted([*best[name], (relevance, labelled.document.id)], reverse=True)[:_EXAMPLES]
            if as_json:
                listed.append(LabelledId(labelled.document.id, labelled.labels, labelled.written))
    if as_json:
        totals = {name: counts[name] for name in names}
        print_json(to_json(LabelAnswer(totals, tuple(listed), written, time.monotonic() - begun)))
        return
    if names:
        rows = [(name, str(counts[name]), _examples(best[name])) for name in names]
        rows.append(("(none)", str(unlabelled), ""))
        print_table(("label", "documents", "the most relevant"), rows, left=("label", "the most relevant"))
    done = f"{seen} documents in {time.monotonic() - begun:.1f} s"
    click.echo(f"{done}, {written} changed" if is_written else f"{done}; --write saves the labels", err=True)


def _examples(best: list[tuple[float, str]]) -> str:
    return "  ".join(f"{short_path(id)} ({relevance:.2f})" for relevance, id in best)
