"""Text from outside, made fit for one line of a prompt."""

from __future__ import annotations

import re
import unicodedata

OPENING = "[⁅❲⟦⟬⦋⦍⦏⦗⹕⹗【〔〖〘〚︗︹︻﹇﹝［"  # noqa: RUF001 - look-alikes
CLOSING = "]⁆❳⟧⟭⦌⦎⦐⦘⹖⹘】〕〗〙〛︘︺︼﹈﹞］"  # noqa: RUF001 - look-alikes
_TABLE = str.maketrans(dict.fromkeys(OPENING, "(") | dict.fromkeys(CLOSING, ")") | {"＜": "<", "﹤": "<"})  # noqa: RUF001 - look-alikes
_ESCAPES = {"Cc": "\\x{1:02x}", "Cs": "\\u{1:04x}"}
_JOINERS = "\u200c\u200d"
"""Format characters that writing needs, in Persian and in emoji; no token of a chat template has them."""


def plain(text: str) -> str:
    """``text`` as one line that is neither a source, nor a citation, nor a token of a chat template.

    Line breaks of every kind become spaces; control and format characters go. Square brackets and what looks like
    them become parentheses, so that ``[1]`` and ``[INST]`` mean nothing; a ``<`` stands alone, so that ``</s>`` and
    ``<|im_start|>`` mean nothing.
    """
    shown = "".join(_shown(char) for char in " ".join(text.split()))
    return " ".join(re.sub(r"<(?=\S)", "< ", shown.translate(_TABLE)).split())


def well_formed(text: str) -> str:
    """``text`` in valid Unicode, as tokenizers and wires need it: with a mark for each half of a surrogate pair."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def visible(text: str) -> str:
    """``text`` with escapes for control characters and halves of surrogate pairs.

    So it neither breaks a line nor steers a terminal, and can be written in every form of Unicode.
    """
    return "".join(_ESCAPES.get(unicodedata.category(char), "{}").format(char, ord(char)) for char in text)


def _shown(char: str) -> str:
    """The character; nothing for one that cannot be seen, a mark for half of a surrogate pair."""
    kind = unicodedata.category(char)
    if kind == "Cs":
        return "\ufffd"
    return "" if kind == "Cc" or (kind == "Cf" and char not in _JOINERS) else char
