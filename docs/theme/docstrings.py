"""Make Markdown of what docstrings write as doctest and reStructuredText."""

from __future__ import annotations

import re

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)
_LITERAL = re.compile(r"^::\n", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Put examples into fences, which are quotations in Markdown, and drop the marks of literal blocks."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of a module, a class, a function or an attribute."""
        if obj.docstring:
            text = _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
            obj.docstring.value = _LITERAL.sub("", text)
