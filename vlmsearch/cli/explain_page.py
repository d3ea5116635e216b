"""An explanation as one self-contained HTML page: the picture with what mattered lit, the fields as bars, the words."""

from __future__ import annotations

import base64
import html
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from vlmsearch.cli.common import short_path
from vlmsearch.cli.explained import best_region, lacking, many, unfitted, usual
from vlmsearch.cli.page import picture, write_page
from vlmsearch.search.explanation import Explanation, FieldEvidence, Regions
from vlmsearch.types import WORDS

_EDGE = 720
_VEIL = 0.8
"""How dark the parts of a picture are that did not matter."""
_LEVELS = 4
_MOST_TEXT = 6000
"""How many characters of a text are shown."""
_STYLE = """
:root { --for: #2c7a5a; --lit: 44, 122, 90; }
@media (prefers-color-scheme: dark) { :root { --for: #6cc39a; --lit: 108, 195, 154; } }
main { max-width: 68rem; margin: 0 auto; }
h1 { margin: 0 0 .3rem; font-size: 1.7rem; font-weight: 600; letter-spacing: -.01em; text-wrap: balance;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 .7rem; font-size: 1rem; font-weight: 600; }
p { margin: .3rem 0; max-width: 46rem; }
.name, .soft { color: var(--soft); overflow-wrap: anywhere; }
.verdict { margin: 1.4rem 0 1.8rem; }
.verdict strong { font-size: 1.15rem; font-weight: 600; }
.scale { display: block; width: 100%; max-width: 30rem; height: 10px; margin: .7rem 0 .35rem; border-radius: 5px;
  background: var(--line); fill: var(--for); }
.scale line { stroke: var(--ink); stroke-width: .7; }
.parts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.1rem;
  align-items: start; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem 1.1rem;
  min-width: 0; }
.picture { position: relative; margin-top: .6rem; border-radius: 8px; overflow: hidden; line-height: 0; }
.picture img { width: 100%; height: auto; display: block; }
.picture .veil { position: absolute; inset: 0; width: 100%; height: 100%; }
#lit:not(:checked) ~ .picture .veil { display: none; }
label { margin-left: .35rem; }
.field { display: grid; grid-template-columns: 1fr auto; gap: .1rem .8rem; padding: .45rem 0; }
.field + .field { border-top: 1px solid var(--line); }
.field .adds { font-variant-numeric: tabular-nums; }
.field .bar, .field .soft { grid-column: 1 / -1; }
.field .soft { font-size: .82rem; }
.bar { width: 100%; height: 8px; display: block; border-radius: 2px; background: var(--line); }
.bar .for { fill: var(--for); }
.bar .against { fill: var(--mark); }
.bar line { stroke: var(--ink); stroke-width: .6; }
.sum .adds, .sum .what { font-weight: 600; }
.text { line-height: 1.75; overflow-wrap: anywhere; white-space: pre-line; }
mark { background: none; color: inherit; font-weight: 700; text-decoration: underline 2px var(--mark);
  text-underline-offset: 3px; }
.lit1 { background: rgba(var(--lit), .1); } .lit2 { background: rgba(var(--lit), .2); }
.lit3 { background: rgba(var(--lit), .32); } .lit4 { background: rgba(var(--lit), .45); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { font-weight: 500; color: var(--soft); font-size: .82rem; text-align: right; padding: 0 0 .3rem .6rem; }
td { text-align: right; padding: .3rem 0 .3rem .6rem; border-top: 1px solid var(--line); }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; overflow-wrap: anywhere; }
th:first-child, td:first-child { padding-left: 0; }
"""


def write_explanation(path: Path, found: Explanation, query: str) -> None:
    """Write the page; ConfigError where it cannot be written."""
    sections = [_picture(found), _fields(found), _text(found), _words(found)] if found.document else []
    body = (
        f"<main>\n<header><h1>{html.escape(query)}</h1>"
        f'<p class="name">{html.escape(short_path(found.id))}</p></header>\n{_verdict(found)}\n'
        f'<div class="parts">\n{"".join(filter(None, sections))}</div>\n</main>'
    )
    write_page(path, body, title=f"Why: {query}", style=_STYLE)


def _verdict(found: Explanation) -> str:
    lines = [f"<p><strong>{html.escape(found.reason)}</strong></p>"]
    if found.relevance is not None:
        at = 100 * found.threshold
        place = f", place {found.place} of {found.candidates}" if found.place else ""
        lines += [
            '<svg class="scale" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="relevance">',
            f'<rect width="{100 * found.relevance:.1f}" height="10"/>',
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="10"/></svg>',
            f'<p class="soft">Relevance {found.relevance:.3f}; shown from {found.threshold:.3f} (the line){place}.</p>',
        ]
    lines += [f'<p class="soft">Left out: {html.escape(what)}, {score:.3f}.</p>' for what, score in found.without]
    if found.judged is not None:
        lines.append(f'<p class="soft">The re-ranker gave it {found.judged:.3f}.</p>')
    lines += [f'<p class="soft">{html.escape(note)}</p>' for note in found.notes]
    return f'<div class="verdict">{"".join(lines)}</div>'


def _picture(found: Explanation) -> str:
    document = found.document
    shown = picture(document.image, document.text or document.id, edge=_EDGE) if document and document.image else ""
    if not shown:
        return ""
    if found.regions is None or found.regions.best is None:
        return f'<section><h2>Its picture</h2><div class="picture">{shown}</div><p>{best_region(found)}</p></section>\n'
    return (
        '<section><h2>Its picture</h2><input type="checkbox" id="lit" checked><label for="lit">Darken what did not '
        f'matter</label><div class="picture">{shown}<img class="veil" alt="" src="{_veil(found.regions)}"></div>'
        f'<p class="soft">{best_region(found)}</p></section>\n'
    )


def _veil(regions: Regions) -> str:
    """Return a dark picture with holes where the regions mattered."""
    falls = np.array([[value or 0.0 for value in row] for row in regions.evidence])
    dark = np.pad(_VEIL * (1 - np.clip(falls / falls.max(), 0, 1)), 1, mode="edge")  # its outer ones lie on the edges
    wide, half = 32 * len(dark), 16
    alpha = Image.fromarray((255 * dark).round().astype(np.uint8)).resize((wide, wide), Image.Resampling.BICUBIC)
    alpha = alpha.crop((half, half, wide - half, wide - half))
    black = Image.new("L", alpha.size)
    out = BytesIO()
    Image.merge("RGBA", (black, black, black, alpha)).save(out, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def _fields(found: Explanation) -> str:
    rows = [("any document", found.prior, "before anything is known of it", "")]
    rows += [
        (name, field.weight * field.evidence if field.counts else 0.0, _about(name, field, found), "")
        for name, field in found.fields.items()
    ]
    if found.words_alone is not None:
        rows.append(("words alone", found.words_alone, "They are met so well that they decide alone.", ""))
    rows.append(("log-odds of its relevance", found.log_odds, "", " sum"))
    most = max(*(abs(adds) for _, adds, _, _ in rows), 1.0)
    parts = [
        f'<div class="field{kind}"><span class="what">{html.escape(name)}</span><span class="adds">{adds:+.2f}</span>'
        f"{_bar(adds / most)}{f'<span class=soft>{html.escape(about)}</span>' if about else ''}</div>"
        for name, adds, about, kind in rows
    ]
    lines = [f'<p class="soft">{html.escape(line)}</p>' for line in (lacking(found), unfitted(found)) if line]
    hint = '<p class="soft">In log-odds: 0 says nothing, and each +2.3 makes the odds ten times as high.</p>'
    return f"<section><h2>What counts</h2>{''.join(parts)}{''.join(lines)}{hint}</section>\n"


def _about(name: str, field: FieldEvidence, found: Explanation) -> str:
    if name == WORDS:
        said = f"BM25 {field.value:.2f} of at most {found.most_words:.2f}"
    else:
        said = f"cosine {field.value:.3f}" + (f"; usually {usual(field)}" if usual(field) else "")
    said += f"; rank {field.rank}" if field.rank else ""
    said += f"; evidence {field.evidence:+.2f}, weight {field.weight:g}" if field.weight != 1 else ""
    return said if field.counts else f"{said}; not counted"


def _bar(share: float) -> str:
    """Return a bar from the middle, to the right for what speaks for the document."""
    kind, width = ("for", 100 * share) if share >= 0 else ("against", -100 * share)
    x = 100 if share >= 0 else 100 - width
    return (
        '<svg class="bar" viewBox="0 0 200 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}" height="8"/>'
        '<line x1="100" x2="100" y1="0" y2="8"/></svg>'
    )


def _text(found: Explanation) -> str:
    """Return the text, with the words of the query marked and the parts that its vectors owe most to lit."""
    text = (found.document.text or "") if found.document else ""
    if not text.strip():
        return ""
    shown = text[:_MOST_TEXT]
    words = [(start, min(end, len(shown))) for start, end in found.marked if start < len(shown)]
    most = max((part.evidence for part in found.passages), default=0.0)
    lit = [(part.start, part.end, round(_LEVELS * part.evidence / most)) for part in found.passages if most > 0]
    cuts = sorted(
        {0, len(shown), *(at for start, end in words for at in (start, end)), *(a for s, e, _ in lit for a in (s, e))}
    )
    pieces = []
    for start, end in pairwise(cuts):
        piece = html.escape(shown[start:end])
        if any(a <= start and end <= b for a, b in words):
            piece = f"<mark>{piece}</mark>"
        level = next((level for a, b, level in lit if a <= start and end <= b), 0)
        pieces.append(f'<span class="lit{level}">{piece}</span>' if level > 0 else piece)
    more = " …" if len(text) > len(shown) else ""
    said = ["Words of the query are underlined."] if words else []
    said += ["The deeper the colour, the more the evidence falls where a part is left out."] if lit else []
    about = f'<p class="soft">{" ".join(said)}</p>' if said else ""
    return f'<section><h2>Its text</h2><p class="text">{"".join(pieces)}{more}</p>{about}</section>\n'


def _words(found: Explanation) -> str:
    if not found.words or WORDS not in found.fields:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(word.word)}</td><td>{html.escape(word.stem)}</td><td>{many(word.documents)}</td>"
        f"<td>{word.score:.2f}</td><td>{word.max_score:.2f}</td></tr>"
        for word in found.words
    )
    head = "".join(f"<th>{name}</th>" for name in ("word", "compared as", "documents", "adds to BM25", "at most"))
    return f"<section><h2>Words of the query</h2><table><tr>{head}</tr>{rows}</table></section>\n"
