"""The columns of tables: those that are called otherwise than ``id``, ``text`` and ``image``, and texts in lists.

A column of JSON may be a field of a field, by a path with dots. A text may be a list of strings, or of messages as
OpenAI and ShareGPT have them, and exports of Slack, Discord and Telegram.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from vlmsearch._util.arguments import check_kind
from vlmsearch._util.plain import plain_text
from vlmsearch._util.unread import with_unread
from vlmsearch.errors import ConfigError

RESERVED = ("id", "text", "image")
_EXAMPLE = "text=body,image=photo,id=sku"
_INDEX = re.compile(r"\s*|Unnamed: 0(\.\d+)*|__index_level_\d+__")
"""Names that pandas gives an index which has none."""
_WHOLE = re.compile(r"\d*")
_SPEAKERS = ("role", "from", "author", "user", "name", "username")
_CONTENTS = ("content", "value", "text", "body", "message", "parts")
"""Fields of a message that say whose it is and what it says; the first counts."""


class Columns:
    r"""The names of the columns with ids, texts and images, while one table is read.

    Args:
        given: Names such as ``text=title,text=body,id=sku``, in the form of a line of CSV, or a mapping.

    Raises:
        ConfigError: What is given has another form.

    Attributes:
        names: The columns, by ``id``, ``text`` and ``image``. Several are joined into a text.
        known: All names that a column with an id, a text or an image may have.
        missing: Columns that no row had yet.

    Example:
        >>> Columns({"text": ["title", "body"], "id": "sku"}).row({"sku": "7", "title": "A dog", "body": "It runs."})
        {'text': 'A dog\n\nIt runs.', 'id': '7'}
    """

    def __init__(self, given: str | Mapping[str, str | Sequence[str]] | None = None) -> None:
        self.names: dict[str, list[str]] = {}
        for target, name in _pairs(given or {}):
            names = self.names.setdefault(target, [])
            if target not in RESERVED or not name or (names and target != "text"):
                example = f"such as {_EXAMPLE}, not {target}={name}"
                raise ConfigError(f"`columns` names columns for id, text and image, {example}")
            names.append(name)
        self.missing = set(chain(*self.names.values()))
        self.known = {*RESERVED, *self.missing}

    def __str__(self) -> str:
        """Return the names as a line of CSV."""
        line = io.StringIO()
        pairs = (f"{target}={name}" for target, names in self.names.items() for name in names)
        csv.writer(line, lineterminator="").writerow(pairs)
        return line.getvalue()

    def check(self, table: str, header: Collection[str]) -> None:
        """Raise ConfigError for a table that has no column to index, or lacks one of these."""
        has = f"it has {', '.join(header) or 'none'}"
        if not self.known.intersection(header):
            cure = "`columns` names others, such as text=NAME"
            raise ConfigError(f"{table} needs at least one of the columns id, text and image; {has}: {cure}")
        if names := [name for name in self.missing if not {name, name.partition(".")[0]}.intersection(header)]:
            raise ConfigError(f"{table} has no column {min(names)!r}; {has}")

    def row(self, row: Mapping[Any, object]) -> dict[Any, object]:
        """Return a row with the usual names, and without an index of pandas.

        What is left out is among its unread parts.
        """
        rest = dict(row)
        if not self.names and not any(map(_is_index, rest)) and not isinstance(rest.get("text"), (list, dict)):
            return rest
        taken = {name: _taken(rest, name) for name in sorted({*chain(*self.names.values())}, key=len, reverse=True)}
        self.missing.difference_update(name for name, value in taken.items() if value is not ...)
        lost = Counter(f"{target} value" for target in self.names if rest.pop(target, None) not in (None, ""))
        for key in list(filter(_is_index, rest)):
            lost["unnamed value"] += not _WHOLE.fullmatch(str(rest.pop(key)))
        for target, names in self.names.items():
            values = [taken[name] for name in names if taken[name] is not ...]
            rest[target] = values[0] if len(values) == 1 else [plain_text(value) for value in values] or None
        if isinstance(rest.get("text"), (list, dict)):
            rest["text"] = _text(rest["text"], lost) or rest["text"]
        return dict(with_unread(rest, +lost))


def _pairs(given: str | Mapping[str, str | Sequence[str]]) -> Iterable[tuple[str, str]]:
    if isinstance(given, str):
        parts = (part.partition("=") for part in next(csv.reader([given], skipinitialspace=True)))
        return [(target.strip(), name.strip()) for target, _, name in parts]
    check_kind("columns", given, Mapping, f"a mapping, or a string such as {_EXAMPLE!r}")
    return [(key, name) for key, names in given.items() for name in ([names] if isinstance(names, str) else names)]


@lru_cache(maxsize=1024)
def _is_index(key: object) -> bool:
    """Return whether pandas gives an index without a name this name."""
    return isinstance(key, str) and _INDEX.fullmatch(key) is not None


def _taken(row: dict[Any, Any], name: str) -> Any:
    """Take a column out of a row, or a field of a field.

    It is ``...`` where there is none.
    """
    first, dot, rest = name.partition(".")
    if name in row or not dot or not isinstance(row.get(first), Mapping):
        return row.pop(name, ...)
    row[first] = dict(row[first])
    return _taken(row[first], rest)


def _joined(values: Iterable[object], lost: Counter[str]) -> str:
    """Return the text of strings, messages and their parts. Strings and parts that are mixed are one line."""
    values = [value for value in values if value is not None]
    texts = [_text(value, lost) for value in values]
    return ("" if {str, dict} <= set(map(type, values)) else "\n\n").join(filter(None, texts))


def _text(value: Any, lost: Counter[str]) -> str:
    if isinstance(value, list):
        return _joined(value, lost)
    if not isinstance(value, Mapping):
        lost["value"] += value is not None and not isinstance(value, str)
        return value if isinstance(value, str) else ""
    who, what = (next((key for key in keys if value.get(key)), "") for keys in (_SPEAKERS, _CONTENTS))
    others = (key for key, part in value.items() if key not in (who, what) and part and isinstance(part, (list, dict)))
    text = _text(value.get(what), lost)
    kind = str(value.get("type") or "message")
    lost.update([f"{key} value" for key in others] if text else ["image" if kind.startswith("image") else kind])
    speaker = value.get(who)
    speaker = speaker.get("name") if isinstance(speaker, Mapping) else speaker
    return f"{speaker}: {text}" if speaker and text else text
