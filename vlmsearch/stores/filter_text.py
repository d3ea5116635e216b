"""Filters as people write them: ``year>=2020 and tag in (cat, dog)``.

The grammar, in which words in capitals are tokens. Keywords are written in any case.

* ``filter    = group, {"or", group}``
* ``group     = part, {"and", part}``
* ``part      = "(", filter, ")" | condition``
* ``condition = key, sign, value | key, "has", text | key, ["not"], "in", "(", value, {",", value}, ")"``
* ``sign      = "=" | "==" | "!=" | ">" | ">=" | "<" | "<="``
* ``key       = WORD | QUOTED``
* ``text      = WORD | QUOTED``
* ``value     = NUMBER | "true" | "false" | text``

A QUOTED text stands in single or double quotes, and is never a number, a keyword or a date; a quote in it is doubled.
A WORD has no spaces, quotes, brackets, commas or ``= ! < >``. `parse_filter` says what the conditions mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, NoReturn

from vlmsearch.errors import ConfigError
from vlmsearch.stores.filters import MAX_DEPTH, TOO_DEEP, parse_filter

DATE_KEY = "date"
"""The key whose values are dates: whole numbers, YYYYMMDD."""
_OPERATORS = {"=": "$eq", "==": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator>[<>=!]=|[<>=])
        | (?P<mark>[(),])
        | "(?P<double>(?:[^"]|"")*)" | '(?P<single>(?:[^']|'')*)'
        | (?P<word>[^\s()\[\]{},"'=!<>]+)
        | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in"})
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?P<fraction>\.[0-9]*)?|(?P<point>\.[0-9]+))(?P<exponent>[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?|([0-9]{4})([0-9]{2})([0-9]{2})")
_DEEPEST = MAX_DEPTH // 4
"""Brackets in brackets: each takes up to four levels of objects and lists."""
_EXAMPLES = 'year>=2020, or {"year": {"$gte": 2020}}'
_SHOWN = 30
"""Characters of the text that a message repeats."""

TokenKind = Literal["operator", "mark", "quoted", "word", "end"]
Condition = dict[str, object]


@dataclass(frozen=True)
class _Token:
    kind: TokenKind
    text: str
    start: int

    def is_keyword(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


def read_filter(text: str) -> Mapping[str, object]:
    """Return the JSON object of a filter that is written as a condition, or as JSON.

    ``and`` binds more strongly than ``or``. Numbers, ``true`` and ``false`` are values of that type; everything else,
    and everything in quotes, is a text. ``tag has 2024`` is another way to write ``tag="2024"``.

    For the key ``date``, whose values are whole numbers of the form YYYYMMDD, a value without quotes is a year, a month
    or a day: ``date>=2024``, ``date=2024-06``, ``date<2024-06-12``.

    Args:
        text: The condition, such as ``year>=2020 and (tag=cat or tag="a dog")``; or the JSON itself, which begins with
            a brace.

    Returns:
        The object that `parse_filter` and the option ``where`` take; an empty one of an empty text, which is no filter.

    Raises:
        ConfigError: It is neither; the message says at which character and what is possible there.

    Example:
        >>> read_filter("year>=2020 and tag in (cat, dog)")
        {'$and': [{'year': {'$gte': 2020}}, {'tag': {'$in': ['cat', 'dog']}}]}
        >>> read_filter("date=2024-06")
        {'date': {'$gte': 20240601, '$lte': 20240631}}
    """
    if not text.strip():
        return {}
    condition = _read_json(text) if text.lstrip().startswith(("{", "[")) else _Reader(text).read()
    if condition != {}:
        parse_filter(condition)
    return condition


def _read_json(text: str) -> Condition:
    try:
        condition: Condition = json.loads(text)
    except RecursionError:
        raise ConfigError(TOO_DEEP) from None
    except ValueError as exc:
        raise ConfigError(f"the filter is no JSON: {exc}; write it as {_EXAMPLES}") from None
    return condition


class _Reader:
    """A reader of one condition, with the token that comes next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = self._token(0)

    def read(self) -> Condition:
        condition = self._filter(0)
        if self._next.kind != "end":
            self._fail("'and', 'or' or the end")
        return condition

    def _filter(self, depth: int) -> Condition:
        return self._joined("or", lambda: self._joined("and", lambda: self._part(depth)))

    def _joined(self, word: str, read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self._next.is_keyword(word):
            self._take()
            parts.append(read())
        return parts[0] if len(parts) == 1 else {f"${word}": parts}

    def _part(self, depth: int) -> Condition:
        if not self._next.is_mark("("):
            return self._condition()
        if depth == _DEEPEST:
            raise ConfigError(f"a filter nests brackets at most {_DEEPEST} deep")
        self._take()
        condition = self._filter(depth + 1)
        if not self._next.is_mark(")"):
            self._fail("'and', 'or' or ')'")
        self._take()
        return condition

    def _condition(self) -> Condition:
        key = self._take_text("a key of the metadata, such as in year>=2020")
        if self._next.kind == "operator" or self._next.is_keyword("has"):
            return self._comparison(key)
        has_not = self._next.is_keyword("not")
        if has_not:
            self._take()
        if not self._next.is_keyword("in"):
            self._fail("'in'" if has_not else f"one of {' '.join(_OPERATORS)}, 'has', 'in' or 'not in'")
        self._take()
        return self._list(key, "$nin" if has_not else "$in")

    def _comparison(self, key: str) -> Condition:
        written = self._take().text.lower()
        if written == "has":
            return {key: self._take_text("a text of a list")}
        operator = _OPERATORS[written]
        token = self._next
        if _is_dated(key, token):
            return self._date(key, written, operator)
        value = self._value()
        if operator not in ("$eq", "$ne") and (isinstance(value, (str, bool))):
            self._fail("a number: > >= < <= order numbers only", token)
        return {key: value if operator == "$eq" else {operator: value}}

    def _list(self, key: str, operator: str) -> Condition:
        if not self._next.is_mark("("):
            self._fail("'(' and values with commas between them")
        values: list[object] = []
        spans: list[Condition] = []
        while (not values and not spans) or self._next.is_mark(","):
            self._take()
            token = self._next
            if not _is_dated(key, token):
                values.append(self._value())
                continue
            first, last = self._days()
            if first == last:
                values.append(first)
            elif operator == "$nin":
                self._fail("a whole date, such as 2024-06-12, after 'not in'", token)
            else:
                spans.append(_between(key, first, last))
        if not self._next.is_mark(")"):
            self._fail("',' or ')'")
        self._take()
        listed: list[Condition] = [{key: {operator: values}}] if values else []
        parts = [*listed, *spans]
        return parts[0] if len(parts) == 1 else {"$or": parts}

    def _date(self, key: str, written: str, operator: str) -> Condition:
        """Read a date as the first or the last day of its year or month."""
        token = self._next
        first, last = self._days()
        if operator == "$eq":
            return {key: first} if first == last else _between(key, first, last)
        if operator == "$ne" and first != last:
            self._fail(f"a whole date, such as 2024-06-12, after {written}", token)
        return {key: {operator: last if operator in ("$gt", "$lte") else first}}

    def _days(self) -> tuple[int, int]:
        """Return the first and the last day of a date, as numbers."""
        token = self._next
        match = _DATE.fullmatch(token.text)
        if match is None:
            self._fail("a date, such as 2024, 2024-06 or 2024-06-12; or a text in quotes")
        parts = match.groups()
        year, month, day = (int(part) if part else None for part in (parts[:3] if parts[0] else parts[3:]))
        try:
            date(year or 0, month or 1, day or 1)
        except ValueError:
            self._fail("a date that there is", token)
        self._take()
        first = (year or 0) * 10_000 + (month or 1) * 100 + (day or 1)
        return first, (year or 0) * 10_000 + (month or 12) * 100 + (day or 31)

    def _value(self) -> str | bool | int | float:
        if self._next.kind == "quoted":
            return self._take().text
        token = self._next
        text = self._take_text("a value")
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        number = _NUMBER.fullmatch(text)
        if number is None:
            return text
        value = float(text)
        is_whole = len(text) < _SHOWN and not (number["fraction"] or number["point"] or number["exponent"])
        if value in (float("inf"), float("-inf")):
            self._fail("a number up to 1.8e308", token)
        return int(text) if is_whole else value

    def _take_text(self, expected: str) -> str:
        token = self._next
        if token.kind not in ("word", "quoted") or (token.kind == "word" and token.text.lower() in _KEYWORDS):
            self._fail(expected)
        return self._take().text

    def _take(self) -> _Token:
        token = self._next
        self._next = self._token(self._end)
        return token

    def _token(self, position: int) -> _Token:
        match = _TOKEN.match(self._text, position)
        if match is None:
            rest = self._text[position:].lstrip()
            start = len(self._text) - len(rest)
            expected = "the quote that ends the text" if rest[0] in "\"'" else "a text with this character in quotes"
            self._fail(expected, _Token("word", rest, start))
        self._end = match.end()
        group = str(match.lastgroup)
        if group in ("double", "single"):
            quote = '"' if group == "double" else "'"
            return _Token("quoted", match[group].replace(quote * 2, quote), match.start(group) - 1)
        kind: dict[str, TokenKind] = {"operator": "operator", "mark": "mark", "word": "word", "end": "end"}
        return _Token(kind[group], match[group], match.start(group))

    def _fail(self, expected: str, token: _Token | None = None) -> NoReturn:
        """Raise ConfigError for a token, by default the next one."""
        start = (token or self._next).start
        rest = self._text[start:]
        shown = rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}..."
        place = f"character {start + 1}, {shown!r}" if rest.strip() else "its end"
        hint = "; a text with spaces is written in quotes" if expected.startswith("'and'") and rest.strip() else ""
        raise ConfigError(f"the filter needs {expected} at {place}{hint}")


def _is_dated(key: str, token: _Token) -> bool:
    """Check whether a value is read as a date."""
    return key == DATE_KEY and token.kind == "word" and token.text.lower() not in _KEYWORDS


def _between(key: str, first: int, last: int) -> Condition:
    return {key: {"$gte": first, "$lte": last}}
