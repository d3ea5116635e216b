"""Answers of a server with OpenAI's interface, and the text in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

Api = Literal["chat", "completions"]
_MAX_TOKENS = 2**31
"""Tokens that no prompt has."""
_ROUNDING = 0.01
"""Amount by which the logarithm of a probability may be above 0."""
_THOUGHTS = ("thinking", "reasoning")
"""Types of parts of a content that are thoughts."""


def prompt_tokens(event: dict[str, Any]) -> int | None:
    """Return how many tokens the prompt has, where an event says so."""
    usage = event.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 <= tokens < _MAX_TOKENS else None


def likely_tokens(answer: Any) -> list[tuple[str, float]] | None:
    """Return the likely first tokens of a text with their probabilities. None where an answer does not tell them."""
    try:
        choice = answer["choices"][0]
        told = choice.get("logprobs")
        text = (choice.get("message") or {}).get("content", "?")
        if not told or not told.get("content") or not text:  # a token that is no text is a thought
            return None
        return [(str(token["token"]), _probability(token["logprob"])) for token in told["content"][0]["top_logprobs"]]
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as exc:
        raise OtherShapeError from exc


def _probability(logarithm: object) -> float:
    if isinstance(logarithm, bool) or not isinstance(logarithm, (int, float)) or not logarithm <= _ROUNDING:
        raise OtherShapeError
    return math.exp(logarithm)


_UNSUPPORTED = re.compile(
    r"(?i)\bun(supported|known|recogni[sz]ed|expected)|deprecated|disa(bled|llowed)|\bextra|\bonly\b|instead"
    r"|(\bnot?|n't|cannot)\b.{0,30}\b(support|permit|allow|accept|recogni|take|both|set|use|available|exist|implement|apply)"
)
_OUT_OF_RANGE = re.compile(
    r"(?i)at (most|least)|between|\brange|too (large|high|low|many)|(less|greater|more) than|[<>]=? ?\d"
    r"|exceed|above|below|(max|min)imum|was reached"
)
_OMITTED = (
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed", "cache_salt", "stream_options",
)  # fmt: skip
"""Parameters of OpenAI's interface that some of its models refuse."""
_NAME = re.compile(rf"\b({'|'.join(_OMITTED)}|top_k|repetition_penalty|logprobs|top_logprobs)\b")


def refused_parameter(message: str, body: Mapping[str, object]) -> str | None:
    """Return the parameter that a server refuses by its name, and not only its value: the first that it names.

    >>> refused_parameter("`seed` is not supported", {"model": "m", "stop": ["x"], "seed": 3})
    'seed'
    """
    named = _NAME.search(message)
    if named is None or _OUT_OF_RANGE.search(message) or not _UNSUPPORTED.search(message):
        return None
    name = "max_tokens" if named[0] == "max_completion_tokens" and "max_tokens" in body else named[0]
    return name if name in _OMITTED and name in body else None


class OtherShapeError(Exception):
    """An answer that is no completion."""


def read_event(event: dict[str, Any], api: Api) -> tuple[str, str]:
    """Return the text of an event, "" of a count, and why it is the last, "" otherwise. Content may come in parts."""
    try:
        choice = (event.get("choices") or [{}])[0]
        if api == "completions":
            content = choice.get("text") or ""
        else:
            content = (choice.get("delta") or {}).get("content") or ""
            if isinstance(content, list):
                content = "".join(part.get("text") or "" for part in content if part.get("type") not in _THOUGHTS)
    except (AttributeError, IndexError, KeyError, TypeError) as exc:
        raise OtherShapeError from exc
    if not isinstance(content, str):
        raise OtherShapeError
    return content, str(choice.get("finish_reason") or "")
