"""Text from outside, made fit for one line of a prompt and for a terminal."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO

from vlmsearch.errors import InvalidInputError

OPENING = "[⁅❲⟦⟬⦋⦍⦏⦗⹕⹗【〔〖〘〚︗︹︻﹇﹝［"  # noqa: RUF001 - look-alikes
CLOSING = "]⁆❳⟧⟭⦌⦎⦐⦘⹖⹘】〕〗〙〛︘︺︼﹈﹞］"  # noqa: RUF001 - look-alikes
_TABLE = str.maketrans(dict.fromkeys(OPENING, "(") | dict.fromkeys(CLOSING, ")") | {"＜": "<", "﹤": "<"})  # noqa: RUF001 - look-alikes
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")
_JOINERS = "\u200c\u200d"
"""Format characters that writing needs, in Persian and in emoji.

No token of a chat template has them.
"""


def sanitise(text: str) -> str:
    """Return a text as one line without sources, citations and tokens of chat templates.

    Line breaks of every kind become spaces; control and format characters go. Square brackets and what looks like
    them become parentheses, so that ``[1]`` and ``[INST]`` mean nothing; a ``<`` stands alone, so that ``</s>`` and
    ``<|im_start|>`` mean nothing.
    """
    shown = "".join(_shown(char) for char in " ".join(text.split()))
    return " ".join(re.sub(r"<(?=\S)", "< ", shown.translate(_TABLE)).split())


def well_formed(text: str) -> str:
    """Return a text in valid Unicode, as tokenizers and wires need it: a half surrogate pair becomes a mark."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in UTF-8, its texts as `well_formed` gives them."""
    return well_formed(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def utf8_bytes(text: str) -> bytes:
    """Return a text in UTF-8. InvalidInputError for one with half of a surrogate pair, which no tokenizer takes."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("invalid", f"the text is not valid Unicode: {exc.reason}") from exc


def visible(text: str) -> str:
    r"""Return a text with an escape, ``\u001b``, for each character a terminal obeys or cannot write.

    These are control characters without line feeds and tabs, marks that change the direction of writing, separators of
    lines and halves of surrogate pairs. The escapes are those of JSON, so that JSON stays what it is.
    """
    return _UNSEEN.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


class VisibleStream:
    """A text stream that shows what is written to it as `visible` does: no text from outside is a command there.

    ``unfiltered`` is the stream below, for code that draws on a terminal on purpose.
    """

    def __init__(self, unfiltered: TextIO) -> None:
        self.unfiltered = unfiltered

    def write(self, text: str) -> int:
        """Write the text, with escapes."""
        self.unfiltered.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        self.unfiltered.writelines(map(visible, lines))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # nothing goes around `write`
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream below a `VisibleStream`; any other as it is."""
    return stream.unfiltered if isinstance(stream, VisibleStream) else stream


@contextmanager
def drawing_allowed() -> Iterator[None]:
    """Let a library draw its own progress bars on standard error meanwhile."""
    with redirect_stderr(unfiltered(sys.stderr)):
        yield


def _shown(char: str) -> str:
    """Return the character. Nothing for one that cannot be seen, a mark for half of a surrogate pair."""
    kind = unicodedata.category(char)
    if kind == "Cs":
        return "\ufffd"
    return "" if kind == "Cc" or (kind == "Cf" and char not in _JOINERS) else char
