"""Text from outside in HTML and SVG: it stays text, whatever it holds."""

from __future__ import annotations

import re

from vlmsearch._util.text import visible

_NO_XML = re.compile("[\ufffe\uffff]")
_ENDING = "…"


def escape(text: object, *, limit: int = 2_000) -> str:
    """Return a text for HTML, SVG or the value of an attribute: escaped, with escapes of characters that nobody sees.

    Args:
        text: Text, or what ``str`` makes one of.
        limit: Characters after which it is cut.

    Returns:
        The markup, which every parser of HTML and XML reads as this text.
    """
    import html

    shown = shorten(str(text), limit)
    return html.escape(_NO_XML.sub("\ufffd", visible(shown)), quote=True)


def shorten(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters, with a mark where it is cut."""
    return text if len(text) <= limit else text[: limit - 1] + _ENDING


def brief(value: object, limit: int = 60) -> str:
    """Return a value as Python writes it, cut: one line without control characters."""
    if isinstance(value, str):
        return repr(shorten(value, limit))
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    return shorten(repr(value), limit)


def plain(text: str, limit: int = 60) -> str:
    """Return a text without quotes, cut: one line, with escapes of characters that nobody sees."""
    return visible(shorten(" ".join(text.split()), limit))


class HtmlDisplay:
    """A value that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        """Return the value as HTML, which IPython asks for by this name.

        An entry point of the group ``vlmsearch.displays`` draws it. Where none is installed, it is the ``repr``.
        """
        from importlib.metadata import entry_points

        for point in entry_points(group="vlmsearch.displays", name="html"):
            return str(point.load()(self))
        return f"<pre>{escape(repr(self))}</pre>"
