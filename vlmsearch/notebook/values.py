"""Results as HTML: a function for each type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from vlmsearch._util.markup import escape
from vlmsearch.indexing.unread import endings_text, partly_read
from vlmsearch.notebook.pictures import Pictures
from vlmsearch.notebook.plots import evaluation_charts, scores_chart
from vlmsearch.search.curves import Evaluation
from vlmsearch.search.explanation import MIN_FALL, Explanation, FieldEvidence
from vlmsearch.search.scores import IndexScores
from vlmsearch.stores.base import CheckReport
from vlmsearch.types import WORDS, Answer, Document, Duplicates, IndexReport, Match, Matches, Passage, shown_value

_MAX_ROWS = 50
_MAX_TEXT = 300
_MAX_ANSWER = 20_000
_MAX_KEYS = 6
_MAX_MARKED, _BEFORE = 1_500, 100
"""Characters of a text with marks, and those before the first mark."""
_LARGE = 320
"""Longer side of the picture of a single document."""
_ROOT = "color:inherit;background:transparent;font-family:system-ui,sans-serif;line-height:1.4;max-width:72em"
_TABLE = "border-collapse:collapse;margin:.4em 0;color:inherit;background:transparent"
_LINE = "border-bottom:1px solid rgba(128,128,128,.4);padding:.35em .8em .35em 0;vertical-align:top"
_CELL = f"{_LINE};text-align:left;white-space:normal;background:transparent"
_NUMBER = f"{_LINE};text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;background:transparent"
_SOFT = "font-size:.85em;opacity:.8"
_LONG = "min-width:12em;overflow-wrap:anywhere"
_MARK = "background:rgba(255,200,0,.35);color:inherit"


@singledispatch
def to_html(value: object) -> str:
    """Return a value as HTML.

    Args:
        value: A result of an index.

    Returns:
        An element; for other values their `repr`.
    """
    return _root(f"<pre>{escape(repr(value))}</pre>")


@to_html.register
def _document(document: Document) -> str:
    return _root(f"{Pictures(_LARGE).html(document)}{_description(document)}")


@to_html.register
def _match(match: Match) -> str:
    return _root(_match_table([match], Pictures(_LARGE)))


@to_html.register
def _matches(matches: Matches) -> str:
    said = f"<p>{escape(matches.spelling)}</p>" if matches.spelling else ""
    if matches.closest:
        return _root(f"{said}<p>No match. Closest, not sure:</p>" + _match_table(matches.closest, Pictures()))
    if not matches:
        advice = ": <code>min_score=0</code> shows what comes closest" if matches.threshold else ""
        return _root(f"{said}<p>Nothing matches{advice}.</p>")
    of = f" of {matches.total:,}" if matches.total is not None else ""
    more = ", more with <code>cursor=matches.cursor</code>" if matches.cursor else ""
    noun = "match" if len(matches) == 1 and not of else "matches"
    head = f"{said}<p>{len(matches):,}{of} {noun}, shown from {matches.threshold:.3g}{more}</p>"
    facets = "".join(
        f'<p style="{_SOFT}">{escape(key)}: '
        + _listed([f"{escape(value, limit=60)} ({count:,})" for value, count in counts.items()])
        + "</p>"
        for key, counts in matches.facets.items()
    )
    return _root(head + _match_table(matches, Pictures()) + facets)


@to_html.register
def _answer(answer: Answer) -> str:
    numbers = {citation.id: citation.number for citation in answer.citations}
    text = f'<p style="white-space:pre-wrap">{escape(answer.text, limit=_MAX_ANSWER)}</p>'
    pictures = Pictures()
    rows = [
        (
            f"[{numbers[match.document.id]}]" if match.document.id in numbers else "",
            *_match_cells(match, pictures),
            _read_as(answer, match.document.id),
        )
        for match in answer.matches[:_MAX_ROWS]
    ]
    notes = ["nothing surely matches the question: these come closest"] if answer.is_unsure else []
    notes += [f"{len(answer.dropped):,} weaker sources did not fit into the context"] if answer.dropped else []
    notes += ["the model cited what is no source"] if answer.removed else []
    said = f'<p style="{_SOFT}">{escape("; ".join(notes))}.</p>' if notes else ""
    return _root(text + (_table(("", "", "score", "source", "found by", "read as"), rows) if rows else "") + said)


def _read_as(answer: Answer, id: str) -> str:
    """Return how a source was read, and which part of its text."""
    as_ = answer.read_as.get(id, "")
    how = {"both": "picture, text", "neither": "name"}.get(as_, as_)
    part = answer.read[id].name if id in answer.read else ""
    return escape("; ".join(filter(None, [how, part])))


@to_html.register
def _explanation(explanation: Explanation) -> str:
    parts = [f"<p><b>{escape(explanation.reason)}</b><br><code>{escape(explanation.id)}</code></p>"]
    if explanation.document is not None:
        parts.append(_framed(explanation) + _marked(explanation))
    if explanation.relevance is not None:
        place = f", place {explanation.place} of {explanation.candidates:,}" if explanation.place else ""
        parts.append(f"<p>Relevance {explanation.relevance:.3f}, shown from {explanation.threshold:.3f}{place}</p>")
    if explanation.fields:
        rows = [_evidence(name, field, explanation) for name, field in explanation.fields.items()]
        rows.append(("any document", "", "", "", "", f"{explanation.prior:+.2f}"))
        rows += [("words alone", "", "", "", "", f"{explanation.words_alone:+.2f}")] if explanation.words_alone else []
        rows.append(("log-odds", "", "", "", "", f"{explanation.log_odds:+.2f}"))
        parts.append(_table(("field", "rank", "value", "evidence", "weight", "adds"), rows, numbers=range(1, 6)))
    if explanation.words:
        words = [
            (escape(word.word), escape(word.stem), str(word.documents or "half or more"), f"{word.score:.2f}")
            for word in explanation.words[:_MAX_ROWS]
        ]
        parts.append(_table(("word", "stem", "documents", "BM25"), words, numbers=(2, 3)))
    lines = (
        [f"It lacks {', '.join(explanation.lacking)}; that counts neither for nor against it."]
        if explanation.lacking
        else []
    )
    lines += [f"Left out: {what} (relevance {score:.3f})." for what, score in explanation.without]
    lines += [f"The filter asks: {condition}." for condition in explanation.failed]
    lines += [f"The re-ranker gave it {explanation.judged:.3f}."] if explanation.judged is not None else []
    parts += [f'<p style="{_SOFT}">{escape(line)}</p>' for line in (*lines, *explanation.notes)]
    return _root("".join(parts))


@to_html.register
def _report(report: IndexReport) -> str:
    counts = [(escape(name), f"{count:,}") for name, count in report.counts().items()]
    counts.append(("seconds", f"{report.seconds:.1f}"))
    rejects = [
        (escape(reject.code), _long(escape(reject.id)), _long(escape(reject.message, limit=_MAX_TEXT)))
        for reject in report.rejects[:_MAX_ROWS]
    ]
    more = _more(len(report.rejects))
    others = f"other files: {endings_text(report.others)}" if report.others else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in (partly_read(report), others) if note)
    return _root(
        _table(("documents", ""), counts, numbers=(1,))
        + notes
        + (_table(("rejected", "input", "reason"), rejects) + more if rejects else "")
    )


@to_html.register
def _check(report: CheckReport) -> str:
    named = ("orphans", "stale", "missing", "unfinished", "unindexed", "damaged")
    lists = {name: ids for name in named if (ids := getattr(report, name))}
    rows = [("documents", f"{report.documents:,}")]
    rows += [("files or rows", f"{report.files:,}")] if report.files not in (0, report.documents) else []
    rows += [(f"vectors {escape(name)}", f"{count:,}") for name, count in report.vectors.items()]
    rows += [(name, _long(f"{len(ids):,}: {_listed([escape(id) for id in ids])}")) for name, ids in lists.items()]
    state = "in order" if report.clean else "repaired" if report.repaired else "not in order"
    return _root(f"<p>{escape(report.store)}: <b>{state}</b></p>" + _table(("", ""), rows))


@to_html.register
def _duplicates(duplicates: Duplicates) -> str:
    pictures = Pictures()
    groups = []
    for group in duplicates.groups[:_MAX_ROWS]:
        cells = [
            f"{pictures.html(Document(file.id, image=file.path))}{escape(file.id)}"
            f'<br><span style="{_SOFT}">{file.width} x {file.height}, {file.bytes:,} bytes</span>'
            for file in group.files[:_MAX_KEYS]
        ]
        groups.append(("".join(f'<div style="display:inline-block;margin:.2em 1em">{cell}</div>' for cell in cells),))
    head = f"<p>{len(duplicates.groups):,} groups of duplicates among {duplicates.compared:,} images"
    head += f"; {len(duplicates.unread):,} could not be compared" if duplicates.unread else ""
    return _root(f"{head}</p>" + (_table(("",), groups) if groups else "") + _more(len(duplicates.groups)))


@to_html.register
def _evaluation(evaluation: Evaluation) -> str:
    fields: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]] = evaluation.get("fields") or {}
    names = list(dict.fromkeys(name for field in fields.values() for name in field["measures"]))
    rows = [(escape(name), *(_estimate(field["measures"].get(name)) for field in fields.values())) for name in names]
    head = (
        f"<p>{evaluation.get('queries', 0):,} queries, {evaluation.get('without_answer', 0):,} of them without an "
        f"answer; the first {evaluation.get('limit', 0):,} matches count</p>"
    )
    table = _table(("", *map(escape, fields)), rows, numbers=range(1, len(fields) + 1)) if rows else ""
    tuning = evaluation.get("tuning")
    charts = "".join(f"<div>{chart.svg()}</div>" for chart in evaluation_charts(evaluation))
    return _root(head + table + (_tuning(tuning) if tuning else "") + charts)


def _tuning(tuning: Mapping[str, Any]) -> str:
    """Return what tuning gained on held-out queries, and what it kept.

    These queries had no part in the choice.
    """
    rows = [
        (escape(gain["measure"]), f"{gain['before']:.3f}", f"{gain['after']:.3f}", f"{gain['p']:.4f}")
        for gain in (tuning["order"], tuning["shown"])
        if gain
    ]
    kept = ", ".join(f"{escape(name)} {value:g}" for name, value in tuning["values"].items())
    said = f"Kept in the index: {kept}." if kept else "Nothing is better than the present setting, which stays."
    return _table(("on the other parts", "before", "tuned", "p"), rows, numbers=(1, 2, 3)) + f"<p>{said}</p>"


@to_html.register
def _scores(scores: IndexScores) -> str:
    return _root(scores_chart(scores).svg())


# --------------------------------------------------------------------------------------------------------------- parts


def _root(body: str) -> str:
    """Return the element around everything; what is between dollar signs in it is no formula."""
    return f'<div class="vlmsearch tex2jax_ignore mathjax_ignore" style="{_ROOT}">{body}</div>'


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """Return a table of cells that are HTML.

    ``numbers`` are the columns that are aligned to the right.
    """
    right = set(numbers)

    def row(tag: str, cells: Sequence[str]) -> str:
        styles = [_NUMBER if place in right else _CELL for place in range(len(cells))]
        inner = (f'<{tag} style="{style}">{cell}</{tag}>' for style, cell in zip(styles, cells))
        return f"<tr>{''.join(inner)}</tr>"

    head = f"<thead>{row('th', names)}</thead>" if any(names) else ""
    return f'<table style="{_TABLE}">{head}<tbody>{"".join(row("td", cells) for cells in rows)}</tbody></table>'


def _match_table(matches: Sequence[Match], pictures: Pictures) -> str:
    rows = [_match_cells(match, pictures) for match in matches[:_MAX_ROWS]]
    return _table(("", "score", "document", "found by"), rows) + _more(len(matches))


def _match_cells(match: Match, pictures: Pictures) -> tuple[str, ...]:
    """Return the picture, the score, the description and the fields of a match."""
    score = max(0.0, min(match.score, 1.0))
    bar = f'<div style="background:currentColor;opacity:.6;height:3px;width:{score * 60:.0f}px"></div>'
    ranked = sorted((field.rank, name, field.score) for name, field in match.fields.items() if field.rank is not None)
    fields = "<br>".join(f"{escape(name)} #{rank} ({value:.2f})" for rank, name, value in ranked)
    others = f'<div style="{_SOFT}">and {len(match.parts):,} other parts of this file</div>' if match.parts else ""
    return (
        pictures.html(match.document),
        f'<span style="font-variant-numeric:tabular-nums">{match.score:.3f}</span>{bar}',
        _description(match.document, match.passage) + others,
        f'<span style="{_SOFT};white-space:nowrap">{fields}</span>',
    )


def _description(document: Document, passage: Passage | None = None) -> str:
    """Return the text, or the passage that fits, the id and the metadata of a document."""
    words = " ".join((document.text or "" if passage is None else passage.text)[: 4 * _MAX_TEXT].split())
    text = f"<div>{escape(words, limit=_MAX_TEXT)}</div>" if words else ""
    text = text if passage is None else f'<div style="{_SOFT}">{escape(passage.place)}</div>{text}'
    pairs = [f"{escape(key)}: {escape(shown_value(value), limit=60)}" for key, value in document.metadata.items()]
    metadata = f'<div style="{_SOFT}">{_listed(pairs)}</div>' if pairs else ""
    return _long(f'{text}<div style="{_SOFT}"><code>{escape(document.id)}</code></div>{metadata}')


def _long(body: str) -> str:
    """Return a part that is broken anywhere rather than wide."""
    return f'<div style="{_LONG}">{body}</div>'


def _framed(explanation: Explanation) -> str:
    """Return the picture of a document, with a frame around the region that mattered most."""
    picture = Pictures(_LARGE).html(explanation.document) if explanation.document is not None else ""
    best = explanation.regions.best if explanation.regions is not None else None
    if not picture.startswith("<img") or best is None:
        return picture
    left, top, right, bottom = (100 * share for share in best)
    place = f"left:{left:.1f}%;top:{top:.1f}%;width:{right - left:.1f}%;height:{bottom - top:.1f}%"
    frame = "position:absolute;box-sizing:border-box;border:2px solid #fff;outline:2px solid #000"
    return (
        f'<div style="position:relative;display:inline-block">{picture}<div role="img" style="{frame};{place}" '
        'aria-label="the region that mattered most" title="the region that mattered most"></div></div>'
    )


def _marked(explanation: Explanation) -> str:
    """Return the text of a document with marks: words of the query, else the passages that mattered."""
    text = (explanation.document.text if explanation.document is not None else None) or ""
    spans = explanation.marked or tuple(
        (part.start, part.end) for part in explanation.passages if part.evidence >= MIN_FALL
    )
    begin = max(min((start for start, _ in spans), default=0) - _BEFORE, 0)
    pieces, last, end_of_all = [], begin, begin + _MAX_MARKED
    for start, end in sorted(spans):
        if last <= start < end <= end_of_all:
            pieces += [escape(text[last:start]), f'<mark style="{_MARK}">{escape(text[start:end])}</mark>']
            last = end
    pieces.append(escape(text[last:end_of_all]))
    shown = ("…" if begin else "") + "".join(pieces) + ("…" if len(text) > end_of_all else "")
    return f'<p style="white-space:pre-wrap;overflow-wrap:anywhere">{shown}</p>' if text else ""


def _evidence(name: str, field: FieldEvidence, explanation: Explanation) -> tuple[str, ...]:
    value = f"{field.value:.2f} of {explanation.max_bm25:.2f}" if name == WORDS else f"{field.value:.3f}"
    adds = f"{field.weight * field.evidence:+.2f}" if field.counts else ""
    return escape(name), str(field.rank or "-"), value, f"{field.evidence:+.2f}", f"{field.weight:g}", adds


def _estimate(figure: Mapping[str, float] | None) -> str:
    return f"{figure['value']:.3f} ({figure['low']:.2f} to {figure['high']:.2f})" if figure else ""


def _listed(parts: Sequence[str]) -> str:
    """Return the first parts, which are HTML, and how many more there are."""
    more = f" and {len(parts) - _MAX_KEYS:,} more" if len(parts) > _MAX_KEYS else ""
    return " · ".join(parts[:_MAX_KEYS]) + more


def _more(count: int) -> str:
    """Return a line that says how many rows are not in a table."""
    return f'<p style="{_SOFT}">and {count - _MAX_ROWS:,} more</p>' if count > _MAX_ROWS else ""
