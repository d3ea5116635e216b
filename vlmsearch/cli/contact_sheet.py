"""Search results as one self-contained HTML page: thumbnails, captions and scores, light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.cli.common import found_by, shown_name
from vlmsearch.cli.page import picture, write_page
from vlmsearch.types import ImageSource, Match

_STYLE = """
section + section { margin-top: 3.5rem; }
header { display: flex; align-items: center; gap: 1rem; margin-bottom: 1.25rem; }
header img { width: 72px; height: 72px; object-fit: cover; border-radius: 8px; }
h2 { margin: 0; font-size: 1.6rem; font-weight: 600; letter-spacing: -.01em; text-wrap: balance; }
header p { margin: .1rem 0 0; color: var(--soft); }
ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(185px, 1fr)); gap: 1.1rem; margin: 0; padding: 0;
  list-style: none; }
li { display: flex; flex-direction: column; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; overflow: hidden; }
li > img { width: 100%; aspect-ratio: 1; object-fit: cover; display: block; background: var(--line); }
.body { display: flex; flex-direction: column; flex: 1; gap: .45rem; padding: .7rem .8rem .8rem; }
.text { margin: 0; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 4; overflow: hidden;
  overflow-wrap: anywhere; }
.alone .text { -webkit-line-clamp: 12; font-size: 1.05rem; }
.name { color: var(--soft); font-size: .8rem; overflow-wrap: anywhere; }
.score { display: flex; align-items: center; gap: .5rem; margin-top: auto; font-variant-numeric: tabular-nums; }
.bar { flex: 1; width: 0; height: 4px; border-radius: 2px; background: var(--line); fill: var(--mark); }
.fields { color: var(--soft); font-size: .75rem; font-variant-numeric: tabular-nums; }
.none { color: var(--soft); }
"""


@dataclass(frozen=True)
class Section:
    """One query, its matches and, where it was one, its image."""

    title: str
    matches: Sequence[Match]
    image: ImageSource | None = None


def write_sheet(path: Path, sections: Sequence[Section]) -> None:
    """Write the page; ConfigError where it cannot be written."""
    title = " · ".join(section.title for section in sections[:3]) or "vlmsearch"
    write_page(path, "\n".join(map(_section, sections)), title=title, style=_STYLE)


def _section(section: Section) -> str:
    shown = picture(section.image, "the query") if section.image is not None else ""
    count = len(section.matches)
    found = f"{count} match{'' if count == 1 else 'es'}, best first" if count else "nothing found"
    cards = "\n".join(_card(match) for match in section.matches)
    body = f"<ol>\n{cards}\n</ol>" if count else '<p class="none">No document matches.</p>'
    return (
        f"<section>\n<header>{shown}<div><h2>{html.escape(section.title)}</h2><p>{found}</p></div></header>\n"
        f"{body}\n</section>"
    )


def _card(match: Match) -> str:
    document = match.document
    text = " ".join((document.text or "").split())
    shown = picture(document.image, text or document.id) if document.image is not None else ""
    fields = " · ".join(f"{html.escape(name)} #{field.rank} ({field.score:.2f})" for name, field in found_by(match))
    caption = f'<p class="text">{html.escape(text[:600])}</p>' if text else ""
    return (
        f'<li{"" if shown else " class=alone"}>{shown}<div class="body">{caption}'
        f'<span class="name">{html.escape(shown_name(match))}</span>'
        f'<span class="score">{match.score:.2f}<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none">'
        f'<rect width="{match.score * 100:.0f}" height="4"/></svg></span>'
        f'<span class="fields">{fields}</span></div></li>'
    )
