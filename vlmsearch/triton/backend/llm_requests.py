"""Requests to a model with the tensors of TensorRT-LLM's ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class TextRequest:
    """A prompt as token ids and how its text is generated.

    ``end`` is the token that ends the text instead of the model's own. ``echo`` is the text that an answer begins with.
    """

    prompt: Sequence[int]
    options: GenerationOptions
    end: int | None
    streams: bool
    echo: str


def is_stop(arrays: Arrays) -> bool:
    """Return whether a request only ends the text of the request with its id."""
    return bool(_value(arrays, "stop", False))


def read_request(arrays: Arrays, *, max_bytes: int, encode: Callable[[str], list[int]], context: int) -> TextRequest:
    """Return the text that a request asks for.

    ConfigError or InvalidInputError says what is wrong with it.

    The prompt, of fewer than ``context`` tokens, and the words have up to ``max_bytes`` together.
    """
    if len(arrays["text_input"]) != 1:
        raise ConfigError(f"send one prompt a request, not {len(arrays['text_input'])}")
    words = {name: _strings(arrays, name) for name in ("text_input", "stop_words", "bad_words")}
    size = sum(len(text.encode()) for texts in words.values() for text in texts)
    if size > max_bytes:
        raise ConfigError(f"prompt and words have {size:,} bytes; this server takes {max_bytes:,}")
    (text,) = words["text_input"] or ("",)
    prompt = encode(text)
    if not 0 < len(prompt) < context:
        raise InvalidInputError("too_long", f"the prompt is {len(prompt)} tokens, and the model reads {context}")
    options = _options(arrays, min(int(_value(arrays, "max_tokens", 1)), context - len(prompt)), words)
    end = int(_value(arrays, "end_id", -1))
    streams = bool(_value(arrays, "stream", False))
    without = streams or bool(_value(arrays, "exclude_input_in_output", True))
    return TextRequest(prompt, options, end if end >= 0 else None, streams, "" if without else text)


def _options(arrays: Arrays, max_tokens: int, words: Mapping[str, tuple[str, ...]]) -> GenerationOptions:
    """Return sampling as TensorRT-LLM means it: greedy without top_k and top_p, or with a top_k of 1."""
    top_k, top_p = int(_value(arrays, "top_k", 0)), float(_value(arrays, "top_p", 0.0))
    is_greedy = top_k == 1 or (not top_k and not top_p)
    return GenerationOptions(
        max_tokens=max_tokens,
        temperature=0.0 if is_greedy else float(_value(arrays, "temperature", 1.0)),
        top_k=top_k or None,
        top_p=top_p or 1.0,
        repetition_penalty=float(_value(arrays, "repetition_penalty", 1.0)),
        stop=words["stop_words"],
        bad_words=words["bad_words"],
        seed=int(_value(arrays, "seed", 0)) if "seed" in arrays else None,
    )


def _strings(arrays: Arrays, name: str) -> tuple[str, ...]:
    """Return the strings of an input that are not empty.

    ValueError for bytes that are not UTF-8.
    """
    return tuple(item.decode() for item in arrays[name].reshape(-1) if item) if name in arrays else ()


def _value(arrays: Arrays, name: str, default: float) -> float:
    """Return the number in an input, or the default where it was not sent."""
    return arrays[name].reshape(-1)[0].item() if name in arrays else default
