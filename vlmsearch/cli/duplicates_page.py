"""Groups of duplicate images side by side, as one self-contained HTML page, light and dark."""

from __future__ import annotations

import html
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias, Union

from vlmsearch.cli.common import short_path
from vlmsearch.cli.page import picture, write_page
from vlmsearch.types import DuplicateGroup, Duplicates, ImageFile, ImageSource, RemoteImage

_MOST = 500
"""Groups on the page: each picture in it has about 20 KiB."""
ImageOf: TypeAlias = Callable[[ImageFile], Union[ImageSource, RemoteImage, None]]
_STYLE = """
h1 { margin: 0 0 .2rem; font-size: 1.6rem; font-weight: 600; letter-spacing: -.01em; }
h2 { margin: 2.5rem 0 .8rem; font-size: 1.05rem; font-weight: 600; }
p { margin: 0; color: var(--soft); }
ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(260px, 100%), 1fr)); gap: 1.1rem; margin: 0;
  padding: 0; list-style: none; }
li { background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
li > img { width: 100%; height: 260px; object-fit: contain; display: block; background: var(--line); }
.body { padding: .7rem .8rem .8rem; }
.name { overflow-wrap: anywhere; }
.facts { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
b { display: inline-block; margin: .35rem .35rem 0 0; padding: 0 .5rem; border-radius: 999px; font-size: .75rem;
  font-weight: 600; color: var(--card); background: var(--mark); }
@media (max-width: 600px) { ol { grid-template-columns: 1fr 1fr; gap: .6rem; } li > img { height: 44vw; } }
"""


def write_duplicates(path: Path, found: Duplicates, image_of: ImageOf) -> None:
    """Write the page with the images of the files; ConfigError where it cannot be written."""
    shown = found.groups[:_MOST]
    said = f"groups: {len(found.groups)}, among {found.compared} images"
    said += f", of which the largest {_MOST} are here" if len(shown) < len(found.groups) else ""
    said += f"; not compared: {len(found.unread)}" if found.unread else ""
    sections = "\n".join(_section(number, group, image_of) for number, group in enumerate(shown, 1))
    write_page(path, f"<h1>Duplicates</h1>\n<p>{said}</p>\n{sections}", title="Duplicates", style=_STYLE)


def _section(number: int, group: DuplicateGroup, image_of: ImageOf) -> str:
    cards = "\n".join(_card(group, file, image_of(file)) for file in group.files)
    return f"<section>\n<h2>{number} · {len(group.files)} images</h2>\n<ol>\n{cards}\n</ol>\n</section>"


def _card(group: DuplicateGroup, file: ImageFile, image: ImageSource | RemoteImage | None) -> str:
    name = html.escape(short_path(str(file.path)))
    facts = f"{file.width} x {file.height} · {file.bytes / 1024:,.0f} KiB · {written_on(file)}"
    badges = "".join(f"<b>{mark}</b>" for mark in marks(group, file))
    shown = picture(image, file.path.name) if image is not None else ""
    body = f'<div class="name">{name}</div><div class="facts">{facts}</div>{badges}'
    return f'<li>{shown}<div class="body">{body}</div></li>'


def written_on(file: ImageFile) -> str:
    """Return the day on which a file was written, in UTC."""
    return datetime.fromtimestamp(file.modified, timezone.utc).strftime("%Y-%m-%d")


def marks(group: DuplicateGroup, file: ImageFile) -> list[str]:
    """Return what a file is in its group."""
    return [name for name, one in (("largest", group.files[0]), ("oldest", group.oldest)) if one == file]
