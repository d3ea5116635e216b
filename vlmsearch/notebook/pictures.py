"""Small pictures of documents as HTML: a bounded number, of a bounded size, in a bounded time."""

from __future__ import annotations

import base64
import time

from vlmsearch._util.markup import escape
from vlmsearch.client import opened
from vlmsearch.errors import InvalidInputError, VlmsearchError
from vlmsearch.media.images import thumbnail
from vlmsearch.types import Document, RemoteImage

MAX_PICTURES = 24
MAX_BYTES = 64 * 2**10
"""Bytes of one picture, at most: one of 160 pixels has a tenth of it."""
MAX_SECONDS = 5.0
"""Seconds after which no more pictures are begun: pages and films take a process each."""
_BOX = (
    "box-sizing:border-box;border:1px dashed currentColor;padding:6px;font-size:.8em;opacity:.75;display:inline-block"
)


class Pictures:
    """The pictures of one display.

    Args:
        edge: Longer side in pixels.
    """

    def __init__(self, edge: int = 160) -> None:
        self._edge = edge
        self._left = MAX_PICTURES
        self._end = time.monotonic() + MAX_SECONDS

    def html(self, document: Document) -> str:
        """Return the picture of a document, or a box that says why there is none.

        It is "" for a document without an image.
        """
        if document.image is None:
            return ""
        if not self._left or time.monotonic() > self._end:
            return self._box("not drawn")
        self._left -= 1
        try:
            data = self._jpeg(document)
        except InvalidInputError as exc:
            return self._box(f"no picture: {exc.code}")
        except VlmsearchError:
            self._left = 0  # the others of this server or reader would fail, too
            return self._box("no picture")
        if data is None or len(data) > MAX_BYTES:
            return self._box("not here" if data is None else "no picture: too_large")
        alt = escape(document.text or document.id, limit=200)
        encoded = base64.b64encode(data).decode()
        style = f"max-width:{self._edge}px;max-height:{self._edge}px;width:auto;height:auto;display:block"
        return f'<img alt="{alt}" style="{style}" src="data:image/jpeg;base64,{encoded}">'

    def _jpeg(self, document: Document) -> bytes | None:
        """Return a picture.

        None for one of a server that this process has no open connection to.
        """
        image = document.image
        if isinstance(image, RemoteImage):
            remote = opened(image)
            return None if remote is None else remote.thumbnail(image.id, size=self._edge)
        return None if image is None else thumbnail(image, edge=self._edge)

    def _box(self, text: str) -> str:
        return f'<span style="{_BOX};max-width:{self._edge}px">{escape(text)}</span>'
