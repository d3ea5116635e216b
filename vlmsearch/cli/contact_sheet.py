"""Search results as one self-contained HTML page: thumbnails, captions and scores, light and dark."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from vlmsearch.cli.common import found_by, shown_name
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.media.images import thumbnail
from vlmsearch.search.snippets import snippet
from vlmsearch.types import ImageSource, Match, RemoteImage, local_image

_STYLE = """
:root { --page: #f6f5f2; --card: #fff; --ink: #1d1c1a; --soft: #6d6a64; --line: #e4e1da; --mark: #b4481e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #161513; --card: #211f1c; --ink: #efece6; --soft: #a39e94; --line: #35322d; --mark: #f0956a; }
}
* { box-sizing: border-box; }
body { margin: 0; padding: 2.5rem clamp(1rem, 4vw, 4rem) 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
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

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
"""The page may use only its own style and its embedded images."""
_EDGE = 360
"""The longer side of a thumbnail in pixels. It is shown at half of that or less, sharp on dense screens too."""
_MAX_TEXT = 600


@dataclass(frozen=True)
class Section:
    """A query, its matches and its image, if it has one.

    ``uncalibrated`` are the fields whose scores are no probabilities, with the reasons; ``spelling`` what is shown for
    misspelt words; ``is_unsure`` where the matches are only what comes closest.
    """

    title: str
    matches: Sequence[Match]
    image: ImageSource | None = None
    uncalibrated: Mapping[str, str] = field(default_factory=dict)
    spelling: str = ""
    is_unsure: bool = False


def write_sheet(path: Path, sections: Sequence[Section]) -> None:
    """Write the page; raise ConfigError if that fails."""
    title = " · ".join(section.title for section in sections[:3]) or "vlmsearch"
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    page = _PAGE.format(
        policy=_POLICY.format(digest=digest),
        style=_STYLE,
        title=html.escape(title),
        body="\n".join(map(_section, sections)),
    )
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror}") from exc


def _section(section: Section) -> str:
    shown = _picture(section.image, "the query") if section.image is not None else ""
    count = len(section.matches)
    summary = f"{count} match{'' if count == 1 else 'es'}, best first" if count else "nothing found"
    summary = "no match; closest, not sure" if count and section.is_unsure else summary
    reasons = "; ".join(section.uncalibrated.values())
    note = f"<p>Scores are uncalibrated: {html.escape(reasons)}.</p>" if reasons else ""
    note += f"<p>{html.escape(section.spelling)}</p>" if section.spelling else ""
    cards = "\n".join(_card(match, section.title) for match in section.matches)
    body = f"<ol>\n{cards}\n</ol>" if count else '<p class="none">No document matches.</p>'
    return (
        f"<section>\n<header>{shown}<div><h2>{html.escape(section.title)}</h2><p>{summary}</p>{note}</div></header>\n"
        f"{body}\n</section>"
    )


def _card(match: Match, query: str) -> str:
    document, text = match.document, snippet(match, query, _MAX_TEXT)
    shown = _picture(document.image, text or document.id) if document.image is not None else ""
    fields = " · ".join(f"{html.escape(name)} #{said.rank} ({said.score:.2f})" for name, said in found_by(match))
    caption = f'<p class="text">{html.escape(text)}</p>' if text else ""
    caption = f'<span class="name">{html.escape(match.passage.place)}</span>{caption}' if match.passage else caption
    return (
        f'<li{"" if shown else " class=alone"}>{shown}<div class="body">{caption}'
        f'<span class="name">{html.escape(shown_name(match))}</span>'
        f'<span class="score">{match.score:.2f}<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none">'
        f'<rect width="{match.score * 100:.0f}" height="4"/></svg></span>'
        f'<span class="fields">{fields}</span></div></li>'
    )


def _picture(source: ImageSource | RemoteImage, alt: str) -> str:
    """Return an image tag with an embedded thumbnail; "" if the file is missing or damaged."""
    try:
        data = base64.b64encode(thumbnail(local_image(source), edge=_EDGE)).decode()
    except InvalidInputError:
        return ""
    return f'<img src="data:image/jpeg;base64,{data}" alt="{html.escape(alt[:200], quote=True)}" loading="lazy">'
