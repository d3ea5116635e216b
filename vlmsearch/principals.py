"""Principals: the names of those who ask, in Python and in the header of a request.

A client sends the header to see less than its token may read. The answer has it, too: a server that does not know it
would answer for the token alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.types import EVERYONE, check_readers, reader_names

HEADER = "Vlmsearch-Principals"
MAX_PRINCIPALS = 10_000
_NAME = r"(?:[\w.~*:-]|%[0-9A-Fa-f]{2})+"
_SCOPES = re.compile(rf"{_NAME}(?:,{_NAME})*(?:;{_NAME}(?:,{_NAME})*){{0,9}}", re.ASCII)


def principal_names(principals: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of principals with that of everyone, sorted.

    TypeError for no strings, and ConfigError for names that no reader can have.
    """
    names = sorted(name for name in {EVERYONE, *reader_names(principals, "principals")} if name)
    if len(names) > MAX_PRINCIPALS:
        raise ConfigError(f"principals are at most {MAX_PRINCIPALS:,} names such as 'group:hr', not {len(names):,}")
    try:
        check_readers(names)
    except InvalidInputError as exc:
        raise ConfigError(str(exc)) from exc
    return tuple(names)


def principals_text(scopes: Iterable[Iterable[str]]) -> str:
    """Return sets of principals as the header has them.

    A document needs a reader in each set.
    """
    names = map(principal_names, scopes)
    return ";".join(",".join(quote(name, safe="*:", errors="surrogatepass") for name in scope) for scope in names)


def read_principals(text: str) -> tuple[frozenset[str], ...]:
    """Return the sets of principals of a header; ValueError or ConfigError for another text.

    >>> [sorted(names) for names in read_principals("*,group:hr;*,user:%C3%A4")]
    [['*', 'group:hr'], ['*', 'user:ä']]
    """
    if not _SCOPES.fullmatch(text):
        raise ValueError("names are percent-encoded, with a comma between two, such as *,group:hr")
    names = [[unquote(name, errors="surrogatepass") for name in scope.split(",")] for scope in text.split(";")]
    if any(len(set(scope)) < len(scope) for scope in names):  # two headers, which a proxy made one of
        raise ValueError("a name comes twice in a set: several sets have semicolons between them")
    return tuple(frozenset(principal_names(scope)) for scope in names)
