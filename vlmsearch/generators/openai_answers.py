"""The text in what a server with OpenAI's interface answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

Api = Literal["chat", "completions"]
T = TypeVar("T")


class OtherShapeError(Exception):
    """What was sent is no completion."""


def first_choice(event: Mapping[str, Any], *, is_whole: bool) -> dict[str, Any]:
    """The first choice of an event or a whole answer; an empty one in events that only count."""
    choices = _typed(event.get("choices") or [], list)
    if is_whole and not choices:
        raise OtherShapeError
    return _typed(choices[0], dict) if choices else {}


def text_of(choice: Mapping[str, Any], api: Api) -> str:
    """The text of a choice, whose content may come in parts; none in those that only end."""
    if api == "completions":
        return _typed(choice.get("text") or "", str)
    message = _typed(choice.get("delta") or choice.get("message") or {}, dict)
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(_typed(_typed(part, dict).get("text") or "", str) for part in content)
    return _typed(content, str)


def _typed(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise OtherShapeError
    return value
