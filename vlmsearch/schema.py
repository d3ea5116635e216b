"""Pydantic's descriptions of the options of a search and of values: for the service and the tools for assistants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from annotated_types import GroupedMetadata
from pydantic import (
    BaseModel,
    BeforeValidator,
    FailFast,
    Field,
    JsonValue,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.options import SearchOption, attribute_docs, search_options
from vlmsearch.stores.filters import ORDERINGS, Operator
from vlmsearch.types import MAX_KEY_CHARS, MAX_METADATA_KEYS
from vlmsearch.wire import UNIONS, fields_of, is_image

Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class Items(GroupedMetadata):
    """A limit for the items of a list. The list is refused at its first wrong item."""

    max_items: int

    def __iter__(self) -> Iterator[object]:
        """Yield the annotations that pydantic reads."""
        yield Field(max_length=self.max_items)
        yield FailFast()


@dataclass(frozen=True)
class Entries(GroupedMetadata):
    """A limit for the entries of a mapping. They are counted before they are read: pydantic would read them all."""

    max_entries: int

    def __iter__(self) -> Iterator[object]:
        """Yield the annotations that pydantic reads."""
        yield Field(max_length=self.max_entries)
        yield BeforeValidator(self._check)

    def _check(self, given: object) -> object:
        if isinstance(given, dict) and len(given) > self.max_entries:
            said = "Dictionary should have at most {max_entries} entries"
            raise PydanticCustomError("too_long", said, {"max_entries": self.max_entries})
        return given


def _some(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_OPERANDS: dict[str, Any] = {
    **dict.fromkeys(get_args(Operator), _SCALAR),
    **{name: {"type": "number"} for name in ORDERINGS},
    **{name: _some(_SCALAR) for name in ("$in", "$nin")},
}
_CONDITION = {"type": "object", "minProperties": 1, "properties": _OPERANDS, "additionalProperties": False}
_GROUPS = ["$and", "$or"]
FILTER: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "properties": {name: _some({"type": "object", "minProperties": 1}) for name in _GROUPS},
    "propertyNames": {"anyOf": [{"enum": _GROUPS}, {"pattern": "^[^$]", "maxLength": MAX_KEY_CHARS}]},
    "additionalProperties": {"anyOf": [_SCALAR, _CONDITION]},
}
"""The rules of `vlmsearch.stores.filters` in JSON Schema. `parse_filter` checks them, also within groups.

A schema that refers to itself would say so, too; generators of requests take minutes for one.
"""


def whole(given: object) -> object:
    """Return an integer for a number such as 5.0, which is one in JSON Schema; anything else as it is."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


Whole: TypeAlias = Annotated[int, BeforeValidator(whole)]
"""An integer as JSON Schema has it: 5.0 is one."""
Positive: TypeAlias = Annotated[int, Field(ge=1), BeforeValidator(whole)]

Key: TypeAlias = Annotated[str, Field(max_length=MAX_KEY_CHARS)]
Name: TypeAlias = Annotated[str, Field(max_length=1024)]
FilterObject: TypeAlias = Annotated[dict[Key, JsonValue], Entries(MAX_METADATA_KEYS), Field(json_schema_extra=FILTER)]
Where: TypeAlias = Annotated[
    Union[FilterObject, None],
    Field(description='Filter on metadata, such as {"year": {"$gte": 2020}}.'),
]
_TYPES: dict[Any, Any] = {
    int: Whole,
    Union[Mapping[str, object], None]: Where,
    Union[Mapping[str, float], None]: Union[Annotated[dict[Name, Annotated[float, Field(ge=0)]], Entries(100)], None],
    Collection[str]: Annotated[list[Key], Items(100)],
    Union[Reranker, str, bool]: bool,
}
"""JSON types of the options that have another type in Python; a re-ranker is the one of the index, or none."""


def option_field(option: SearchOption, **changed: Any) -> tuple[Any, FieldInfo]:
    """Return the type and the field of an option.

    Args:
        option: The option.
        **changed: Arguments of `pydantic.Field` that differ, such as ``default``.
    """
    kind = _TYPES.get(option.type, option.type)
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    bounds = {"ge": option.minimum, "gt": option.above, "le": option.maximum, "max_length": option.max_chars}
    given = {"default": default, "description": f"{option.help.rstrip('.').replace('``', '`')}.", **bounds, **changed}
    if option.type is str:
        given["min_length"] = 1
    known = {name: value for name, value in given.items() if value is not None or name == "default"}
    if kind is Whole:  # bounds that come after a validator are not in the JSON Schema
        limits = {name: known.pop(name) for name in ("ge", "gt", "le") if name in known}
        kind = Annotated[int, Field(**limits), BeforeValidator(whole)]
    return kind, Field(**known)


def with_options(keywords: type, **defaults: object) -> Any:
    """Return a decorator that adds the options of a verb to a form.

    Args:
        keywords: Such as `SearchKeywords`.
        **defaults: Defaults that differ.
    """

    def decorate(form: type[Form]) -> type[Form]:
        added: dict[str, Any] = {
            name: option_field(option, **({"default": defaults[name]} if name in defaults else {}))
            for name, option in search_options(keywords).items()
        }
        return create_model(form.__name__, __base__=form, __module__=form.__module__, __doc__=form.__doc__, **added)

    return decorate


@cache
def model_of(kind: Any) -> type[BaseModel]:
    """Return the pydantic model of the JSON of a dataclass, with what its docstring says."""
    return create_model(
        kind.__name__,
        __module__=kind.__module__,
        __doc__=(kind.__doc__ or "").partition("\n")[0],
        **_model_fields(kind),
    )


def _model_fields(kind: Any) -> dict[str, Any]:
    texts = attribute_docs(kind)
    described: dict[str, Any] = {}
    for field in fields_of(kind):
        if field.is_spread:
            described |= _model_fields(field.type)
        else:
            described[field.name] = (_json_type(field.type), Field(description=texts.get(field.name)))
    return described


def _json_type(hint: Any) -> Any:
    """Return the type hint of the JSON of a value."""
    inner = get_args(hint)
    kind: Any = get_origin(hint) or hint
    if is_image(hint):
        return Union[str, None] if NoneType in inner else str
    if kind in UNIONS:
        return Union[tuple(map(_json_type, inner))]
    if kind is Mapping and inner[0] is not str:
        return list[tuple[tuple(map(_json_type, inner))]]  # type: ignore[misc]
    if kind is Mapping:
        return dict[str, _json_type(inner[1])]  # type: ignore[misc]
    if kind is tuple and inner[-1] is not Ellipsis:
        return tuple[tuple(map(_json_type, inner))]  # type: ignore[misc]
    if kind in (tuple, frozenset):
        return list[_json_type(inner[0])]  # type: ignore[misc]
    return model_of(hint) if is_dataclass(kind) else hint
