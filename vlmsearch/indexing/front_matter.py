"""Front matter of Markdown: the fields in front of the text, in YAML between ``---``, or in TOML between ``+++``.

Its form is that of Jekyll (https://jekyllrb.com/docs/front-matter/) and Hugo.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import islice

from vlmsearch._util.plain import plain_value
from vlmsearch.errors import InvalidInputError
from vlmsearch.indexing.facts import DATE
from vlmsearch.indexing.tables import typed
from vlmsearch.media.about import About
from vlmsearch.stores.filters import values_of
from vlmsearch.types import MAX_METADATA_KEYS, READERS, MetadataValue, Scalar, check_metadata, reader_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

_MAX_CHARS = 2**15
_BLOCK = re.compile(r"(?ms)(?:---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n(.*?)^\+\+\+)[ \t]*(?:\r?\n|\Z)\s*")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ].*)?")
_JOINT = "; "
_READERS = re.compile(rf"""(?m)(?:^|[\r,{{?])[ \t\['"]*{READERS}['"]*(?:\s*:|[ \t]*[].=])""")
"""A field of readers, at the beginning of a line or behind another."""


def front_matter(text: str) -> tuple[dict[str, MetadataValue], About, str]:
    r"""Return the fields in front of a text, its title and author, and the text.

    A field of a field has a name with a dot. Several values are a list of strings. A block that cannot be read stays
    text; InvalidInputError where it names readers.

    Example:
        >>> front_matter("---\ntitle: Ice\ntags: [a, b]\ndate: 2024-02-01\n---\n\nA dog.\n")
        ({'tags': ('a', 'b'), 'date': 20240201}, About(title='Ice', author='', subject='', keywords=''), 'A dog.\n')
    """
    block = _BLOCK.match(text, 0, _MAX_CHARS)
    if block is None:
        return {}, About(), _without_readers(text if text.lstrip().startswith(("---", "+++")) else "") or text
    try:
        fields = _fields((_yaml(block[1]) or {}) if block[2] is None else tomllib.loads(block[2]))
    except (TypeError, ValueError, RecursionError, InvalidInputError):  # that of TOML among them
        return {}, About(), _without_readers(block[0]) and text
    about = (next((values_of(fields.pop(key)) for key in keys if key in fields), ()) for keys in _ABOUT)
    title, author = (_JOINT.join(map(str, values)) for values in about)
    return fields, About(title, author), text[block.end() :]


_ABOUT = (("title", "Title"), ("author", "Author", "authors", "author.name"))
"""The names of a title, and of authors."""


def _without_readers(block: str) -> str:
    """Return a block that cannot be read.

    InvalidInputError where it names readers, which may not be lost.
    """
    if _READERS.search(block):
        raise InvalidInputError("invalid", "has front matter with `readers` that cannot be read: give a name or a list")
    return block


def _yaml(block: str) -> object:
    """Return what is in a block of YAML, as strings."""
    import yaml

    if len(re.findall(rf"(?m)^['\"]?{READERS}['\"]?[ \t]*:", block)) > 1:
        raise ValueError("two fields of readers, of which the last would count")
    try:
        return yaml.load(block, yaml.BaseLoader)  # noqa: S506 - makes strings, lists and dictionaries alone
    except yaml.YAMLError as exc:
        raise ValueError("not YAML") from exc


def _fields(data: object) -> dict[str, MetadataValue]:
    """Return the values in a mapping by their names.

    TypeError unless it is a mapping; ValueError where it has too many parts, as aliases of aliases make.
    """
    if not isinstance(data, Mapping):
        raise TypeError("no mapping")
    values: dict[str, list[Scalar]] = {}
    parts = list(islice(_parts(data, ""), MAX_METADATA_KEYS + 1))
    if len(parts) > MAX_METADATA_KEYS:
        raise ValueError("too many parts")
    if any(name.startswith((f"{READERS}.", f"<<.{READERS}")) for name, _ in parts):  # << has fields of another
        raise TypeError("no names")
    for name, value in parts:
        if value is not None and value not in ("", "~", "null"):
            values.setdefault(name, []).append(value)
    lists = {name: tuple(dict.fromkeys(map(str, some))) for name, some in values.items()}
    fields: dict[str, MetadataValue] = {
        name: values[name][0] if len(strings) == 1 else strings for name, strings in lists.items()
    }
    if day := _DAY.fullmatch(str(fields.get(DATE))):
        fields[DATE] = int("".join(day.groups()))
    if READERS not in fields and isinstance(data.get(READERS), (list, Mapping)):
        fields[READERS] = reader_names(())
    check_metadata(fields)
    return fields


def _parts(value: object, name: str) -> Iterator[tuple[str, Scalar | None]]:
    """Yield the values in some data with their names, and nothing for each mapping and list."""
    if isinstance(value, (Mapping, list)):
        yield name, None
        for key, part in value.items() if isinstance(value, Mapping) else ((None, part) for part in value):
            yield from _parts(part, name if key is None else f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, (int, float)) else typed(str(plain_value(value)))
