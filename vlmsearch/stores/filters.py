"""Filters on metadata, checked once and then the same on every store.

The notation is MongoDB's: ``{"year": 2024}``, ``{"year": {"$gte": 2020, "$lt": 2024}}``, ``{"city": {"$in": [...]}}``,
``{"$and": [...]}``, ``{"$or": [...]}``. What it means does not depend on the store:

* numbers compare as IEEE 754 doubles, so 1 equals 1.0; a bool equals only a bool, a string only a string;
* ``$gt $gte $lt $lte`` take numbers and match numbers only;
* ``$ne`` and ``$nin`` also match documents that lack the key; every other operator needs it;
* a filter has at most 100 conditions, 1,000 values, and 100 objects and lists within each other;
* of a list, ``$eq`` and ``$in`` match where any of its strings does, ``$ne`` and ``$nin`` where none does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Union, get_args

from vlmsearch._util.arguments import shown
from vlmsearch._util.plain import check_keys
from vlmsearch.errors import ConfigError
from vlmsearch.types import MetadataValue, Scalar

MAX_CONDITIONS, MAX_VALUES = 100, 1000
"""Comparisons of a filter, and values in all of them, at most.

The time of PostgreSQL and MongoDB grows with conditions times documents. Chroma's grows with the square of the strings.
"""
MAX_DEPTH = 100
TOO_DEEP = f"a filter nests objects and lists at most {MAX_DEPTH} deep"
Operator = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"]
"""An operator of a `Comparison`."""
_OPERATORS: tuple[str, ...] = get_args(Operator)
ORDERINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
"""The comparisons of numbers, or of arrays of numbers, by operator."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of one key of the metadata.

    Attributes:
        key: The key.
        operator: The operator.
        value: A tuple for ``$in`` and ``$nin``, else one scalar; numbers are floats.
        or_absent: Whether documents that lack the key pass, too; for ``$in`` of strings alone.

    Example:
        >>> Comparison("year", "$gte", 2020.0).matches({"year": 2021})
        True
    """

    key: str
    operator: Operator
    value: str | bool | float | tuple[str | bool | float, ...]
    or_absent: bool = field(default=False, repr=False)

    def matches(self, metadata: Mapping[str, MetadataValue]) -> bool:
        """Return whether a document passes.

        Args:
            metadata: The document's.

        Returns:
            True where it passes.
        """
        if self.key not in metadata:
            return self.or_absent or self.operator in ("$ne", "$nin")
        if self.operator in ORDERINGS:
            have = normalise(metadata[self.key])
            return (
                type(have) is float and type(self.value) is float and bool(ORDERINGS[self.operator](have, self.value))
            )
        wanted = self.value if isinstance(self.value, tuple) else (self.value,)
        values = map(normalise, values_of(metadata[self.key]))
        is_among = any(type(have) is type(value) and have == value for have in values for value in wanted)
        return is_among == (self.operator in ("$eq", "$in"))


@dataclass(frozen=True)
class FilterGroup:
    """A group of conditions.

    Attributes:
        operator: Whether all of them must hold, or at least one.
        filters: The conditions, which may be groups themselves.

    Example:
        >>> both = FilterGroup("$and", (Comparison("year", "$gte", 2020.0), Comparison("city", "$eq", "Oslo")))
        >>> both.matches({"year": 2021, "city": "Rome"})
        False
    """

    operator: Literal["$and", "$or"]
    filters: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, MetadataValue]) -> bool:
        """Return whether a document passes.

        Args:
            metadata: The document's.

        Returns:
            True where it passes.
        """
        combine = all if self.operator == "$and" else any
        return combine(part.matches(metadata) for part in self.filters)


Filter: TypeAlias = Union[Comparison, FilterGroup]
"""A checked filter, as `Store.search` takes it."""


def both(first: Filter | None, second: Filter | None) -> Filter | None:
    """Return the filter that passes what two filters pass. None passes everything."""
    if first is None or second is None:
        return second if first is None else first
    return FilterGroup("$and", (first, second))


def value_order(value: MetadataValue) -> tuple[int, str | bool | float]:
    """Return a key to sort values of metadata by: numbers come before strings, and strings before bools.

    A list is sorted as the text of its strings.

    Args:
        value: The value.

    Returns:
        The key.

    Example:
        >>> sorted([True, "b", 2, "a", 1.5], key=value_order)
        [1.5, 2, 'a', 'b', True]
    """
    plain = normalise(value)
    return (float, str, bool).index(type(plain)), plain


def normalise(value: MetadataValue) -> str | bool | float:
    """Return the form in which values are ordered: numbers as doubles, texts and bools as they are, lists joined."""
    if isinstance(value, (int, float)):
        return value if isinstance(value, bool) else float(value)
    return value if isinstance(value, str) else ", ".join(value)


def values_of(value: MetadataValue | Sequence[str]) -> Sequence[Scalar]:
    """Return the single values in a value of metadata: the strings of a list, or the value itself."""
    return (value,) if isinstance(value, (str, int, float)) else value


def parse_filter(where: Mapping[str, object]) -> Filter:
    """Return the filter that a JSON object stands for.

    Args:
        where: The object, in the notation above.

    Returns:
        The filter.

    Raises:
        ConfigError: A part of it is wrong; the message says which, and what there is instead.

    Example:
        >>> parse_filter({"year": {"$gte": 2020}})
        Comparison(key='year', operator='$gte', value=2020.0)
    """
    _check_depth(where)
    parsed = _parse(where)
    comparisons = list(_comparisons(parsed))
    values = sum(len(part.value) if isinstance(part.value, tuple) else 1 for part in comparisons)
    for count, limit, what in ((len(comparisons), MAX_CONDITIONS, "conditions"), (values, MAX_VALUES, "values")):
        if count > limit:
            raise ConfigError(f"a filter has at most {limit:,} {what}, not {count:,}")
    return parsed


def _comparisons(where: Filter) -> Iterator[Comparison]:
    if isinstance(where, Comparison):
        yield where
    else:
        for part in where.filters:
            yield from _comparisons(part)


def has_scope(where: Filter | None) -> bool:
    """Return whether a filter says who may read: whether a comparison of it also passes what lacks its key."""
    return where is not None and any(comparison.or_absent for comparison in _comparisons(where))


def keys_of(where: Filter) -> set[str]:
    """Return the keys that a filter compares."""
    return {comparison.key for comparison in _comparisons(where)}


def _check_depth(where: object) -> None:
    """Raise ConfigError where objects and lists nest too deep to be taken apart, or without end."""
    level = [where]
    for _ in range(MAX_DEPTH + 1):
        inner = [part for container in level for part in _parts(container)]
        level = list({id(part): part for part in inner}.values())
        if not level:
            return
    raise ConfigError(TOO_DEEP)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else ()


def _parse(where: object) -> Filter:
    if not isinstance(where, Mapping) or not where:
        raise ConfigError(f'a filter is a JSON object such as {{"year": {{"$gte": 2020}}}}, not {shown(where)}')
    parts = [part for key, value in where.items() for part in _parse_entry(key, value)]
    return parts[0] if len(parts) == 1 else FilterGroup("$and", tuple(parts))


def _parse_entry(key: object, value: object) -> list[Filter]:
    if key in ("$and", "$or"):
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise ConfigError(f"{key} takes a list of filters, not {shown(value)}")
        parts = tuple(_parse(part) for part in value)
        return [FilterGroup("$and" if key == "$and" else "$or", parts)]
    if not isinstance(key, str) or not key or key[0] == "$":
        raise ConfigError(f"no such operator: {shown(key)}; beside keys of the metadata there are $and and $or")
    check_keys("the filter", key)
    if not isinstance(value, Mapping):
        return [Comparison(key, "$eq", _scalar(key, value))]
    if not value:
        raise ConfigError(f"an empty condition on {key!r}; there are {' '.join(_OPERATORS)}")
    return [_parse_condition(key, operator, operand) for operator, operand in value.items()]


def _parse_condition(key: str, operator: object, operand: object) -> Comparison:
    for known in get_args(Operator):
        if operator == known:
            break
    else:
        raise ConfigError(f"no such operator on {key!r}: {shown(operator)}; there are {' '.join(_OPERATORS)}")
    if known in ("$in", "$nin"):
        if not isinstance(operand, Sequence) or isinstance(operand, str) or not operand:
            raise ConfigError(f"{known} on {key!r} takes a list of values, not {shown(operand)}")
        return Comparison(key, known, tuple(_scalar(key, value) for value in operand))
    value = _scalar(key, operand)
    if known in ORDERINGS and type(value) is not float:
        raise ConfigError(f"{known} on {key!r} compares numbers, not {shown(operand)}")
    return Comparison(key, known, value)


def _scalar(key: str, value: object) -> str | bool | float:
    if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"a value for {key!r} is a string, a finite number or a bool, not {shown(value)}")
    try:
        return normalise(value)
    except OverflowError:
        raise ConfigError(f"the number for {key!r} is too large: {shown(value)}") from None
