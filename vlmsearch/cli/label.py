"""``vlmsearch label``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import click

from vlmsearch.cli.common import (
    SHARE,
    PlainText,
    command,
    json_option,
    option,
    print_json,
    print_table,
    short_path,
    where_option,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
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
@option("--write", is_flag=True, help="Write the labels into the metadata of the documents.")
@option("--remove", is_flag=True, help="Remove the labels of --key from the metadata.")
@option("--single", is_flag=True, help="Give each document only its most relevant label.")
@option(
    "--template",
    "templates",
    multiple=True,
    type=PlainText(),
    metavar="TEXT",
    help="Text that describes an image, with {} for the label, such as 'a photo of a {}'. Several are averaged."
    "  [default: {}]",
)
@option("--photos", is_flag=True, help="Use the seven templates of CLIP's authors for photographs.")
@option("--min-score", type=SHARE, metavar="SCORE", help="Minimum relevance, 0 to 1.  [default: the index's threshold]")
@option("--key", default="label", show_default=True, metavar="KEY", help="Metadata key of the label.")
@option(
    "--limit",
    has_variable=False,  # VLMSEARCH_LIMIT is how many matches a search shows
    type=click.IntRange(1),
    metavar="N",
    help="Label only the first N documents. No environment variable sets it.",
)
@where_option
@index_options("encoder", "server")
@json_option
def label(
    labels: tuple[str, ...],
    write: bool,
    remove: bool,
    single: bool,
    templates: tuple[str, ...],
    photos: bool,
    min_score: float | None,
    key: str,
    limit: int | None,
    where: Mapping[str, object] | None,
    chosen: IndexChoice,
    as_json: bool,
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
    if photos and templates:
        raise click.UsageError("give --photos or --template")
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    best: dict[str, list[tuple[float, str]]] = {name: [] for name in names}
    listed: list[LabelledId] = []
    seen = unlabelled = written = 0
    with (
        chosen.open() as index,
        progress(index.count(), quiet=as_json, what="labelling") as advance,
    ):
        for labelled in index.label(
            names,
            templates=PHOTO_TEMPLATES if photos else templates or ("{}",),
            where=where,
            min_score=min_score,
            single=single,
            write=write or remove,
            key=key,
            limit=limit,
            on_progress=advance,
        ):
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
    click.echo(f"{done}, {written} changed" if write or remove else f"{done}; --write saves the labels", err=True)


def _examples(best: list[tuple[float, str]]) -> str:
    return "  ".join(f"{short_path(id)} ({relevance:.2f})" for relevance, id in best)
