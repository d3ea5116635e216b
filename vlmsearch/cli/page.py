"""One self-contained HTML page: its frame, its colours by day and by night, and its pictures."""

from __future__ import annotations

import base64
import html
from hashlib import sha256
from pathlib import Path

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.media.images import thumbnail
from vlmsearch.types import ImageSource, RemoteImage, local_image

EDGE = 360
"""The longer side of a thumbnail, in pixels; shown at half of it or less, sharp on dense screens too."""

_STYLE = """
:root { --page: #f6f5f2; --card: #fff; --ink: #1d1c1a; --soft: #6d6a64; --line: #e4e1da; --mark: #b4481e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #161513; --card: #211f1c; --ink: #efece6; --soft: #a39e94; --line: #35322d; --mark: #f0956a; }
}
* { box-sizing: border-box; }
body { margin: 0; padding: 2.5rem clamp(1rem, 4vw, 4rem) 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
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
"""Nothing but the page's own style and the pictures in it."""


def write_page(path: Path, body: str, *, title: str, style: str) -> None:
    """Write a page whose body is HTML, with its title as plain text; ConfigError where it cannot be written."""
    style = _STYLE + style
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    page = _PAGE.format(policy=_POLICY.format(digest=digest), style=style, title=html.escape(title), body=body)
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror}") from exc


def picture(source: ImageSource | RemoteImage, alt: str, *, edge: int = EDGE) -> str:
    """Return a thumbnail in the page itself; nothing where the file is gone or damaged."""
    try:
        data = base64.b64encode(thumbnail(local_image(source), edge=edge)).decode()
    except InvalidInputError:
        return ""
    return f'<img src="data:image/jpeg;base64,{data}" alt="{html.escape(alt[:200], quote=True)}" loading="lazy">'
