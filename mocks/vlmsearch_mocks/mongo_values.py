"""Filters, updates and projections, as MongoDB has them: the part that the stores use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pymongo.errors import OperationFailure

from vlmsearch.stores.filters import ORDERINGS

Row = dict[str, Any]
_ABSENT = object()
TEXT_SCORE = "$textScore"
"""The name of the score of a row that ``$text`` found."""
_BAD_VALUE = 2
_FAILED_TO_PARSE = 9


def matches(row: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Return whether a row passes a filter; OperationFailure for an operator that is none."""
    return all(_passes(row, key, value) for key, value in query.items())


def _passes(row: Mapping[str, Any], key: str, condition: Any) -> bool:
    if key in ("$and", "$or"):
        return (all if key == "$and" else any)([matches(row, part) for part in condition])
    if key.startswith("$"):
        raise OperationFailure(f"unknown top level operator: {key}", _BAD_VALUE)
    have = look_up(row, key)
    if isinstance(condition, Mapping) and any(name.startswith("$") for name in condition):
        return all(_holds(have, operator, operand) for operator, operand in condition.items())
    return _equal(have, condition)


def _holds(have: Any, operator: str, operand: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return _equal(have, operand) == (operator == "$eq")
    if operator in ("$in", "$nin"):
        is_among = None in operand if have is _ABSENT else any(_equal(have, value) for value in operand)
        return is_among == (operator == "$in")
    if operator == "$exists":
        return (have is not _ABSENT) == bool(operand)
    if operator in ORDERINGS:
        return _kind(have) == _kind(operand) and bool(ORDERINGS[operator](have, operand))
    raise OperationFailure(f"unknown operator: {operator}", _BAD_VALUE)


def _equal(have: Any, value: Any) -> bool:
    if value is None:
        return have is None or have is _ABSENT
    if isinstance(have, list) and not isinstance(value, list):
        return any(_equal(element, value) for element in have)
    return _kind(have) == _kind(value) and have == value


def _kind(value: Any) -> str:
    """Return the class within which MongoDB compares."""
    if isinstance(value, bool):
        return "bool"
    return (
        "number" if isinstance(value, (int, float)) else "bytes" if isinstance(value, bytes) else type(value).__name__
    )


def look_up(row: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of a row, or a value that equals nothing."""
    have: Any = row
    for step in path.split("."):
        if not isinstance(have, Mapping) or step not in have:
            return _ABSENT
        have = have[step]
    return have


def project(row: Row, projection: Mapping[str, Any] | None) -> Row:
    """Return the fields that a projection asks for, or those that it does not leave out.

    ``$$NOW`` is the server's time.
    """
    if not projection:
        return row
    if not any(projection.values()):
        return {key: value for key, value in row.items() if key not in projection}
    projected: Row = {"_id": row["_id"]} if projection.get("_id", 1) else {}
    for path, wanted in projection.items():
        if wanted == {"$meta": "textScore"}:
            value = look_up(row, TEXT_SCORE)
        else:
            value = _now() if wanted == "$$NOW" else look_up(row, path)
        if value is not _ABSENT and path != "_id":
            *parents, last = path.split(".")
            place = projected
            for step in parents:
                place = place.setdefault(step, {})
            place[last] = value
    return projected


def updated(row: Row | None, update: Mapping[str, Any], query: Mapping[str, Any]) -> Row:
    """Return a row after an update, or the new one where ``query`` found none.

    OperationFailure for an unknown operator.
    """
    new = _seed(query) if row is None else dict(row)
    for operator, changes in update.items():
        if operator == "$setOnInsert" and row is not None:
            continue
        for key, value in changes.items():
            _change(new, operator, key, value)
    return new


def _change(row: Row, operator: str, key: str, value: Any) -> None:
    *parents, key = key.split(".")
    for step in parents:
        row[step] = dict(row.get(step, {}))
        row = row[step]
    if operator in ("$set", "$setOnInsert"):
        row[key] = value
    elif operator == "$currentDate":
        row[key] = _now()
    elif operator == "$inc":
        row[key] = row.get(key, 0) + value
    elif operator == "$unset":
        row.pop(key, None)
    elif operator == "$push":
        row[key] = [*row.get(key, []), value]
    elif operator == "$addToSet":
        row[key] = [*row.get(key, []), *([] if value in row.get(key, []) else [value])]
    elif operator == "$pull":
        gone = value["$in"] if isinstance(value, Mapping) else [value]
        if key in row:
            row[key] = [element for element in row[key] if element not in gone]
    else:
        raise OperationFailure(f"Unknown modifier: {operator}", _FAILED_TO_PARSE)


def _now() -> datetime:
    """Return the time as BSON keeps it: in milliseconds, without a zone."""
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _seed(query: Mapping[str, Any]) -> Row:
    """Return the beginning of the new row of an upsert: the values that its filter names."""
    plain = {key: value for key, value in query.items() if not key.startswith("$")}
    return {key: value for key, value in plain.items() if not isinstance(value, Mapping)}
