"""``vlmsearch label``."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from vlmsearch.cli.common import (
    SHARE,
    PlainText,
    ServerIndex,
    command,
    encoder_option,
    json_option,
    open_here_or_there,
    option,
    print_json,
    print_table,
    server_option,
    short_path,
    store_option,
    where_option,
)
from vlmsearch.cli.progress import progress
from vlmsearch.wire import LabelledId, LabelReport, to_json

_EXAMPLES = 3


@dataclass
class _Tally:
    """How many documents got a label, and the best of them."""

    documents: int = 0
    best: list[tuple[float, str]] = field(default_factory=list)

    def add(self, id: str, relevance: float) -> None:
        self.documents += 1
        (heapq.heappush if len(self.best) < _EXAMPLES else heapq.heappushpop)(self.best, (relevance, id))


@command()
@option(
    "--as",
    "labels",
    multiple=True,
    type=PlainText(),
    metavar="LABELS",
    help="Labels between commas, such as cat,dog,receipt; may be given several times.",
)
@option("--write", is_flag=True, help="Put the labels into the metadata of the documents.")
@option("--remove", is_flag=True, help="Take the labels of --key out of the metadata.")
@option("--single", is_flag=True, help="Give each document the most relevant label alone.")
@option(
    "--template",
    "templates",
    multiple=True,
    type=PlainText(),
    metavar="TEXT",
    help="What images are described by, with {} for the label, such as 'a photo of a {}'; the mean of several."
    "  [default: {}]",
)
@option("--photos", is_flag=True, help="The seven templates that CLIP's authors chose for photographs.")
@option("--min-score", type=SHARE, metavar="SCORE", help="The least relevance, from 0 to 1.  [default: the index's]")
@option("--key", default="label", show_default=True, metavar="KEY", help="The key of the metadata.")
@click.option(  # VLMSEARCH_LIMIT is how many matches a search shows
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Only the first N documents, to try labels out. No environment variable sets it.",
)
@where_option
@store_option
@encoder_option
@server_option
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
    store: str,
    encoder: str | None,
    server: ServerIndex | None,
    as_json: bool,
) -> None:
    """Say which of some labels fit each document, without training: by text against images and texts.

    Nothing is changed without --write. That puts the most relevant label under KEY and the relevance of each under
    KEY:LABEL, to filter on: --where '{"label:cat": {"$gte": 0.5}}'. Interrupt it at any time and run it again: what is
    written is not written twice. Indexing the files again keeps labels until a file changes.
    """
    from vlmsearch.search.labels import PHOTO_TEMPLATES

    names = [name.strip() for given in labels for name in given.split(",") if name.strip()]
    if bool(names) == remove:
        raise click.UsageError("name the labels with --as cat,dog,receipt; or --remove those that are there")
    if photos and templates:
        raise click.UsageError("give --photos or --template")
    begun = time.monotonic()
    tallies = {name: _Tally() for name in names}
    listed: list[LabelledId] = []
    seen = unlabelled = written = 0
    with (
        open_here_or_there(server, store, encoder) as pipeline,
        progress(pipeline.count(), quiet=as_json, what="labelling") as advance,
    ):
        for each in pipeline.label(
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
            seen, written, unlabelled = seen + 1, written + each.written, unlabelled + (not each.labels)
            for name, relevance in each.labels.items():
                tallies[name].add(each.document.id, relevance)
            if as_json:
                listed.append(LabelledId(each.document.id, each.labels, each.written))
    if as_json:
        counts = {name: tally.documents for name, tally in tallies.items()}
        print_json(to_json(LabelReport(counts, tuple(listed), written, time.monotonic() - begun)))
        return
    if names:
        rows = [(name, str(tally.documents), _examples(tally)) for name, tally in tallies.items()]
        rows.append(("(none)", str(unlabelled), ""))
        print_table(("label", "documents", "the most relevant"), rows, left=("label", "the most relevant"))
    done = f"{seen} documents in {time.monotonic() - begun:.1f} s"
    click.echo(f"{done}, {written} changed" if write or remove else f"{done}; --write keeps the labels", err=True)


def _examples(tally: _Tally) -> str:
    return "  ".join(f"{short_path(id)} ({relevance:.2f})" for relevance, id in sorted(tally.best, reverse=True))
