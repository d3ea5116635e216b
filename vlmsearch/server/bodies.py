"""Bodies: JSON, or a form with that JSON in one part and files in the others. Threads parse large bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.datastructures import UploadFile

from vlmsearch.server.dependencies import get_service
from vlmsearch.server.errors import ApiError

F = TypeVar("F", bound=BaseModel)
_SMALL = 2**16
"""Bytes of a body that is parsed faster than a thread takes it over."""
MAX_VALUES = 2**18
"""Values in the JSON of a body: to read a short one takes 50 bytes, too."""
_JSON, _MULTIPART = "application/json", "multipart/form-data"


@dataclass(frozen=True)
class Body(Generic[F]):
    """The body of a request.

    Attributes:
        form: Its JSON.
        files: Bytes of the files beside it, by the names of their parts.
    """

    form: F
    files: Mapping[str, bytes]


def form_of(kind: type[F]) -> Callable[[Request], Awaitable[F]]:
    """Return a dependency that reads a body of JSON.

    Args:
        kind: The form of the JSON.
    """

    async def read(request: Request) -> F:
        content = _content_type(request)
        if content != _JSON:
            raise _unsupported(_JSON, content)
        return await _parse(request, kind, await request.body())

    return read


def body_of(kind: type[F], part: str) -> Callable[[Request], Awaitable[Body[F]]]:
    """Return a dependency that reads a body: JSON, or a form with that JSON in one part and files in others.

    Args:
        kind: The form of the JSON.
        part: The name of the part with the JSON.
    """

    async def read(request: Request) -> Body[F]:
        content = _content_type(request)
        if content == _JSON:
            return Body(await _parse(request, kind, await request.body()), {})
        if content != _MULTIPART:
            raise _unsupported(f"{_JSON} or {_MULTIPART}", content)
        service = await get_service(request)
        async with request.form(max_part_size=service.settings.max_body << 20) as given:
            json: bytes | None = None
            files: dict[str, bytes] = {}
            for name, value in given.multi_items():
                data = await value.read() if isinstance(value, UploadFile) else value
                if name == part:
                    json = data.encode() if isinstance(data, str) else data
                elif isinstance(data, bytes):
                    files[name] = data
                else:
                    raise ApiError(400, "invalid_request", f"{name}: a part with a file needs a filename", param=name)
        if json is None:
            raise ApiError(422, "invalid_request", f"{part}: the part with the JSON is missing", param=part)
        return Body(await _parse(request, kind, json), files)

    return read


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported(wanted: str, given: str) -> ApiError:
    but = f"not {given!r}" if given else "and says so in Content-Type"
    return ApiError(415, "unsupported_media_type", f"the body is {wanted}, {but}")


async def _parse(request: Request, kind: type[F], json: bytes) -> F:
    if len(json) <= _SMALL:
        return _read(kind, json)
    return await (await get_service(request)).call(_read, kind, json)


def _read(kind: type[F], json: bytes) -> F:
    _check_values(json)
    try:
        return kind.model_validate_json(json)
    except ValidationError as exc:
        raise RequestValidationError([_error_of(exc, json)]) from exc


def _error_of(exc: ValidationError, json: bytes) -> dict[str, Any]:
    """Return the error of the deepest place. In a union, that kind was read furthest."""
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    given = from_json(json) if errors[0]["loc"] else None  # JSON with a fault has no places
    errors = [error for error in errors if not error["type"].endswith(("_type", "missing"))] or errors
    places = [_place(error, given) for error in errors]
    furthest = max(places, key=lambda place: (len(place), [part for part in place if isinstance(part, int)]))
    last = [error for error, place in zip(errors, places) if place == furthest]
    return {**last[0], "loc": ("body", *furthest), "msg": " or ".join(dict.fromkeys(error["msg"] for error in last))}


def _place(error: ErrorDetails, given: Any) -> tuple[int | str, ...]:
    """Return the place of an error in what was given: without the names of the kinds of a union."""
    place: list[int | str] = []
    for part in error["loc"]:
        with suppress(LookupError, TypeError):
            given = given[part]
            place.append(part)
    return (*place, *(error["loc"][-1:] if error["type"] == "missing" else ()))


def _check_values(json: bytes) -> None:
    """Raise ApiError for JSON with too many values; commas and brackets in strings do not count."""
    if len(json) <= MAX_VALUES or _values(json) <= MAX_VALUES:
        return
    plain = json.replace(rb"\\", b"").replace(rb"\"", b"")  # so that a quotation mark begins or ends a text
    if plain.count(b'"') > 4 * MAX_VALUES or _values(b"".join(plain.split(b'"')[::2])) > MAX_VALUES:
        raise ApiError(413, "too_large", f"the JSON of a request has at most {MAX_VALUES:,} values: send less at once")


def _values(json: bytes) -> int:
    return json.count(b",") + json.count(b"[") + json.count(b"{")


def form_docs(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the part of the OpenAPI document about a body that `form_of` reads."""
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": _reference(kind)}}}}


def body_docs(
    kind: type[BaseModel], part: str, files: Sequence[str] = (), rule: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the part of the OpenAPI document about a body that `body_of` reads.

    Without ``files``, parts may have any name. The JSON follows a ``rule`` unless the first of the files is there.
    """
    schema = _reference(kind)
    binary = {"contentMediaType": "application/octet-stream"}
    form: dict[str, Any] = {
        "type": "object",
        "properties": {part: schema, **dict.fromkeys(files, binary)},
        "required": [part],
        "additionalProperties": False if files else binary,
    }
    if rule is not None:
        form["anyOf"] = [{"required": files[:1]}, {"properties": {part: rule}}]
    encoding = {part: {"contentType": _JSON}}
    content = {_JSON: {"schema": {**schema, **(rule or {})}}, _MULTIPART: {"schema": form, "encoding": encoding}}
    return {"requestBody": {"required": True, "content": content}}


def _reference(kind: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
