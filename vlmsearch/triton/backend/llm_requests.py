"""Requests to a model with the tensors of TensorRT-LLM's ``tensorrt_llm``, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.text import Decode
from vlmsearch.triton.backend.llm_engine import GenerationTask, StepResult
from vlmsearch.triton.client.words import from_word_list

Arrays = Mapping[str, NDArray[np.generic]]
_NONE = -1
"""As ``end_id``: no token ends the text."""
_WORDS = ("bad_words_list", "stop_words_list")


class Reply(Protocol):
    """The way back to a client."""

    def send(self, arrays: Arrays | None, *, final: bool) -> None:
        """Send one response."""

    def fail(self, message: str) -> None:
        """Send an error, which is the end."""

    def is_cancelled(self) -> bool:
        """Return whether the client has gone."""


def read_tasks(
    arrays: Arrays,
    *,
    id: str,
    reply: Reply,
    decode: Decode,
    context: int,
    vocabulary: int,
    most_beams: int,
    exclude: bool,
    streams: bool,
) -> list[GenerationTask]:
    """Return the texts that a request asks for; ConfigError or InvalidInputError says what is wrong with it.

    ``exclude`` leaves the prompt out of what is answered, unless the request says otherwise; pieces of a stream never
    have it. Without ``streams`` a request has one prompt and one answer. Token ids are below ``vocabulary``: one that
    is not would end the texts of all other requests, which the model makes together with this one. Each beam takes as
    much memory as a text of its own: a search has up to ``most_beams``.
    """
    count = len(arrays["input_ids"])
    if not count:
        raise InvalidInputError("empty", "the request has no prompt")
    streaming = streams and bool(_value(arrays, "streaming", 0, False))
    if count > 1 and not streams:
        raise ConfigError(f"send one prompt a request, not {count}: this model is not decoupled")
    left = [count]
    tasks = []
    for row in range(count):
        prompt = arrays["input_ids"][row][: max(int(_value(arrays, "input_lengths", row, 0)), 0)].tolist()
        _check_tokens(arrays, row, prompt, vocabulary)
        beams = int(_value(arrays, "beam_width", row, 1))
        if beams > most_beams:
            raise ConfigError(f"beam_width is at most {most_beams} (the model's max_beam_width), not {beams}")
        without = streaming or bool(_value(arrays, "exclude_input_in_output", row, exclude))
        answer = _Answer(reply, row, [] if without else prompt, left, streaming)
        tasks.append(_task(arrays, row, prompt, answer, decode, context, id))
    return tasks


def _check_tokens(arrays: Arrays, row: int, prompt: list[int], vocabulary: int) -> None:
    words = [token for name in _WORDS if name in arrays for word in from_word_list(arrays[name][row]) for token in word]
    end = int(_value(arrays, "end_id", row, _NONE))
    strange = [token for token in (*prompt, *words, max(end, 0)) if not 0 <= token < vocabulary]
    if strange:
        raise InvalidInputError(
            "invalid", f"the model has no token {strange[0]}, only 0 to {vocabulary - 1}: take its own tokenizer"
        )


def _task(
    arrays: Arrays, row: int, prompt: list[int], answer: _Answer, decode: Decode, context: int, id: str
) -> GenerationTask:
    if not 0 < len(prompt) < context:
        raise InvalidInputError("too_long", f"the prompt is {len(prompt)} tokens, and the model reads {context}")
    options, end = _options(arrays, row, decode), int(_value(arrays, "end_id", row, _NONE))
    room = min(options.max_tokens, context - len(prompt))
    return GenerationTask(
        prompt=prompt,
        options=GenerationOptions(**{**vars(options), "max_tokens": room}),
        ends=frozenset([end] if end >= 0 else []),
        tell=answer.tell,
        wanted=lambda: not answer.reply.is_cancelled(),
        id=id,
        min_tokens=int(_either(arrays, row, "min_tokens", "min_length")),
        presence_penalty=float(_value(arrays, "presence_penalty", row, 0.0)),
        frequency_penalty=float(_value(arrays, "frequency_penalty", row, 0.0)),
        log_probs=bool(_value(arrays, "return_log_probs", row, False)),
    )


def _options(arrays: Arrays, row: int, decode: Decode) -> GenerationOptions:
    """Sampling as TensorRT-LLM understands it: without top_k and top_p, or with a top_k of 1, the likeliest text."""
    top_k, top_p = int(_value(arrays, "runtime_top_k", row, 0)), float(_value(arrays, "runtime_top_p", row, 0.0))
    temperature = float(_value(arrays, "temperature", row, 1.0))
    width = int(_value(arrays, "beam_width", row, 1))
    likeliest = top_k == 1 or (not top_k and not top_p) or width > 1
    words = {
        name: tuple(decode(ids) for ids in from_word_list(arrays[name][row])) if name in arrays else ()
        for name in _WORDS
    }
    return GenerationOptions(
        max_tokens=int(_value(arrays, "request_output_len", row, 1)),
        temperature=0.0 if likeliest else temperature,
        top_k=top_k or None,
        top_p=top_p or 1.0,
        repetition_penalty=float(_value(arrays, "repetition_penalty", row, 1.0)),
        stop=words["stop_words_list"],
        bad_words=words["bad_words_list"],
        seed=int(_either(arrays, row, "seed", "random_seed")) if {"seed", "random_seed"} & arrays.keys() else None,
        beam_width=width,
    )


class _Answer:
    """What becomes of the results of one text."""

    def __init__(self, reply: Reply, row: int, echo: list[int], left: list[int], streaming: bool) -> None:
        self.reply = reply
        self._row = row
        self._echo = echo
        self._left = left
        self._streaming = streaming
        self._held: list[int] = []
        self._probs: list[float] = []

    def tell(self, result: StepResult) -> None:
        """Send a result, or hold it back until the text is whole."""
        if result.error:
            self.reply.fail(result.error)
            return
        beams = [list(tokens) for tokens in result.tokens]
        if len(beams) == 1:
            self._held += beams[0]
            self._probs += result.log_probs
            if not (self._streaming or result.final):
                return
            beams, self._held = [self._echo + self._held], []
        else:
            beams = [self._echo + tokens for tokens in beams]
        self._left[0] -= result.final
        final = result.final and not self._left[0]
        self.reply.send(self._arrays(beams, result), final=final)

    def _arrays(self, beams: list[list[int]], result: StepResult) -> Arrays:
        longest = max(1, *map(len, beams))
        ids = np.zeros((1, len(beams), longest), np.int32)
        probs = np.zeros((1, len(beams), longest), np.float32)
        for row, tokens in zip(ids[0], beams):
            row[: len(tokens)] = tokens
        probs[0, 0, : len(self._probs)] = self._probs
        self._probs = []
        sums = [*result.cum_log_probs, *([0.0] * len(beams))][: len(beams)]
        return {
            "output_ids": ids,
            "sequence_length": np.array([[len(tokens) for tokens in beams]], np.int32),
            "cum_log_probs": np.array([sums], np.float32),
            "output_log_probs": probs,
            "batch_index": np.array([[self._row]], np.int32),
            "sequence_index": np.zeros((1, 1), np.int32),
        }


def _value(arrays: Arrays, name: str, row: int, default: float) -> float:
    """Return the number of one row, or the default where it was not sent."""
    return arrays[name].reshape(len(arrays[name]), -1)[row, 0].item() if name in arrays else default


def _either(arrays: Arrays, row: int, new: str, old: str) -> float:
    """Return a number under its name in TensorRT-LLM 1.x, or the one before."""
    return _value(arrays, new, row, _value(arrays, old, row, 0))
