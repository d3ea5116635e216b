"""Pydantic's descriptions of options, requests and values: for the service and the tools for assistants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from annotated_types import GroupedMetadata
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError

from vlmsearch._util.options import MAX_WEIGHT, UNIONS, Option, attribute_docs, options_of, without_none
from vlmsearch._util.plain import MAX_KEY_CHARS
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.options import MAX_LIKE
from vlmsearch.search.query import MAX_QUERY_CHARS
from vlmsearch.stores.filters import ORDERINGS, Operator
from vlmsearch.types import MAX_ID_BYTES, MAX_METADATA_KEYS
from vlmsearch.verbs import is_image
from vlmsearch.wire import fields_of

F = TypeVar("F", bound=BaseModel)


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
    "properties": {name: _some({"type": "object", "minProperties": 1}) for name in _GROUPS},
    "propertyNames": {"anyOf": [{"enum": _GROUPS}, {"pattern": "^[^$]", "maxLength": MAX_KEY_CHARS}]},
    "additionalProperties": {"anyOf": [_SCALAR, _CONDITION]},
}
"""The rules of `vlmsearch.stores.filters` in JSON Schema. `parse_filter` checks them, also within groups.

A schema that refers to itself would say so, too; generators of requests take minutes for one.
"""


def whole(given: object) -> object:
    """Return an integer for a number such as 5.0.

    JSON Schema takes that for one. Anything else is returned as it is.
    """
    return int(given) if isinstance(given, float) and given.is_integer() else given


Whole: TypeAlias = Annotated[int, BeforeValidator(whole)]
"""An integer as JSON Schema has it: 5.0 is one."""
Positive: TypeAlias = Annotated[int, Field(ge=1), BeforeValidator(whole)]

Key: TypeAlias = Annotated[str, Field(max_length=MAX_KEY_CHARS)]
_NAME_CHARS, _ITEMS = 1024, 100
Name: TypeAlias = Annotated[str, Field(max_length=_NAME_CHARS)]
QueryText: TypeAlias = Annotated[str, Field(max_length=MAX_QUERY_CHARS)]
FilterObject: TypeAlias = Annotated[dict[Key, JsonValue], Entries(MAX_METADATA_KEYS), Field(json_schema_extra=FILTER)]
Where: TypeAlias = Annotated[
    Union[FilterObject, None],
    Field(description='Filter on metadata, such as {"year": {"$gte": 2020}}.'),
]
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_BYTES, description="The id of a document.")]
MAX_IMAGE_CHARS = 2**30
"""Maximum length of an image: more than ``max_body`` usually lets pass. `ImageLimits` has the limits of images."""
_IMAGE = "An image in Base64, or as a data URL."
EncodedImage: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_IMAGE_CHARS, description=_IMAGE)]


class ObjectForm(BaseModel):
    """A JSON object of a request. A null is left out, as if its key were not there."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, given: Any) -> Any:
        """Leave out nulls, and unknown keys but the first: pydantic would make an error for each of them."""
        if not isinstance(given, dict):
            return given
        unknown = next((key for key in given if key not in cls.model_fields), None)
        needed = {key for key, field in cls.model_fields.items() if field.is_required()}
        return {
            key: value
            for key, value in given.items()
            if (key in cls.model_fields and (value is not None or key in needed)) or key == unknown
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        for name, described in schema.get("properties", {}).items():
            if name not in schema.get("required", ()):
                schema["properties"][name] = _nullable(described)
        return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a value that may be null."""
    if {"type": "null"} in schema.get("anyOf", ()):
        return schema
    about: dict[str, Any] = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    return {**about, "anyOf": [{key: rule for key, rule in schema.items() if key not in about}, {"type": "null"}]}


class StrictForm(ObjectForm):
    """A request of this interface: without unknown keys and values of other types."""

    model_config = ConfigDict(extra="forbid")


class ImageForm(StrictForm):
    """An image in the place of a text."""

    image: EncodedImage


def option_field(option: Option, **changed: Any) -> tuple[Any, FieldInfo]:
    """Return the type and the field of an option.

    Args:
        option: The option.
        **changed: Arguments of `pydantic.Field` that differ, such as ``default``.
    """
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    bounds = {"ge": option.minimum, "gt": option.above, "le": option.maximum, "max_length": option.max_chars}
    given = {"default": default, "description": f"{option.help.replace('``', '`')}.", **bounds, **changed}
    if default is MISSING:
        del given["default"]
    elif is_dataclass(default):
        given["default"] = None
    kind = _kind_of(option)
    if kind is EncodedImage:
        given["description"] = _IMAGE
    if option.is_list or is_image(option.type):
        del given["max_length"]  # it is that of their parts
    elif option.kind is str and default is not None:
        given["min_length"] = 1
    known = {name: value for name, value in given.items() if value is not None or name == "default"}
    if kind is Whole:  # bounds that come after a validator are not in the JSON Schema
        limits = {name: known.pop(name) for name in ("ge", "gt", "le") if name in known}
        kind = Annotated[int, Field(**limits), BeforeValidator(whole)]
    return kind, Field(**known)


def _kind_of(option: Option) -> Any:
    """Return the JSON type of an option. A re-ranker is the one of the index, or none."""
    inner = get_args(option.type)
    if is_image(option.type):
        return (
            Union[QueryText, ImageForm, Annotated[list[Id], Items(MAX_LIKE)]]
            if Sequence[str] in inner
            else EncodedImage
        )
    if Reranker in inner:
        return bool
    if option.is_list:
        item = Annotated[str, Field(max_length=option.max_chars or _NAME_CHARS)]
        return Annotated[list[item], Items(option.max_items or _ITEMS)]
    if option.kind is Mapping:
        weights = Annotated[dict[Name, Annotated[float, Field(ge=0, le=MAX_WEIGHT)]], Entries(100)]
        return weights if get_args(without_none(option.type))[1] is float else Where
    if is_dataclass(option.kind):
        return options_form(option.kind)
    return Whole if option.kind is int else option.kind


def options_form(kind: Any) -> Any:
    """Return the form of a dataclass of options, such as `GenerationOptions`."""
    name = kind.__name__.replace("Options", "Form")
    described = create_model(name, __base__=StrictForm, __module__=__name__, __doc__=f"Options: see `{kind.__name__}`.")
    return with_options(kind)(described)


def with_options(request: Any, leave_out: Collection[str] = ()) -> Any:
    """Return a decorator that adds the options of a dataclass to a form.

    Those that the form has stay.

    Args:
        request: The dataclass, such as the request of a verb.
        leave_out: Names of options that it does not add.
    """

    def decorate(form: type[F]) -> type[F]:
        added: dict[str, Any] = {
            name: option_field(option)
            for name, option in options_of(request).items()
            if not (option.is_local or name in form.model_fields or name in leave_out)
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
