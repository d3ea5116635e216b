"""Language models behind Triton: TensorRT-LLM's, and the Python baseline with its tensors."""

from __future__ import annotations

import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.address import has_port
from vlmsearch._util.cancellation import pause
from vlmsearch._util.closable import closing_at_end
from vlmsearch._util.retry import pauses
from vlmsearch._util.text import well_formed
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator, Picture, PicturesRefusedError
from vlmsearch.generators.chat import find_chat_template
from vlmsearch.generators.pictures import (
    MAX_PICTURES,
    MAX_SIDE,
    check_reading,
    estimate_tokens,
    images_in,
    refused_pictures,
)
from vlmsearch.generators.text import Detokenizer, open_tokenizer, until_stop
from vlmsearch.generators.thoughts import thought_tag
from vlmsearch.generators.triton.dialects import Dialect
from vlmsearch.generators.triton.vocabulary import Vocabulary
from vlmsearch.media.images import data_url
from vlmsearch.models.tokenizers import no_panics
from vlmsearch.triton.client.connection import Connection, TooSlowError
from vlmsearch.triton.client.stream import Request, stream_responses

_RETRIES = 1000
"""Number of times that a server is asked again; usually the deadline comes first."""
_INCOMPLETE = "\ufffd"
_OUTPUTS = ("text_output",)
_IDS = ("output_ids", "sequence_length")
_NO_PICTURE = "data:image/jpeg;base64,"
"""An image of no bytes."""
_TOO_LONG = re.compile(r"(?i)max_(seq_len|num_tokens)|mMaxNewTokens|maximum (context|input) length|too long")
"""Words of TensorRT-LLM about a prompt that is longer than the model reads."""
_Response = dict[str, NDArray[np.generic]]


class TritonGenerator(Generator):
    """A language model that a Triton server has: ``triton://host:8001/ensemble``, or ``.../tensorrt_llm`` for llmapi.

    TensorRT-LLM's engine alone, the model ``tensorrt_llm`` without the ensemble around it, reads token ids:
    ``triton://host:8001/tensorrt_llm?tokenizer=FOLDER`` makes them here, and texts of those that come back. The folder
    says which tokens end a text; stop words and bad words are sent as the ids that they have alone.

    The names of the model's tensors are read off the server. With ``tokenizer``, a ``tokenizer.json`` or its folder,
    and ``context`` prompts are counted: see `CountsTokens`. Where ``tokenizer`` is a folder whose tokenizer has a chat
    template, prompts are put into it, unless ``chat`` is false.

    Where the model has the input ``image_url``, as TensorRT-LLM's ``llmapi`` model after 1.2 has, it sends pictures: as
    JPEG in data URLs, in the order of the prompt, whose text says "(picture 1)" where the first one belongs. The
    server puts such a prompt into the model's chat template, with the placeholders of the pictures before or after the
    text. A model that ignores its ``image_url`` is sent texts alone from the first answer on. ``pictures`` is how many
    it is sent, and 0 sends none. A picture is counted as ``picture_tokens``, or by default as a token for 32 by 32
    pixels, as Qwen3-VL does.

    A decoupled model streams, TensorRT-LLM's ``ensemble`` excepted: it decodes the tokens of each piece by themselves,
    and so would lose spaces and characters. ``tensorrt_llm_bls`` streams with ``accumulate_tokens``, which
    `vlmsearch llm repo` sets.

    A piece may take ``timeout`` seconds after the one before it, a text ``deadline``, also one that comes whole: so
    long a restart of the server is waited for, too, unless the text had begun. ``tls`` encrypts. The environment has
    certificates, token and headers: see `vlmsearch.triton.client.security.Security`.
    """

    context: int

    def __init__(
        self,
        location: str,
        *,
        model: str | None = None,
        tokenizer: Path | None = None,
        context: int | None = None,
        chat: bool = True,
        pictures: int = MAX_PICTURES,
        picture_tokens: int | None = None,
        timeout: float = 60.0,
        deadline: float = 300.0,
        tls: bool = False,
    ) -> None:
        address, named = _split(location, model)
        check_reading(context, pictures, picture_tokens)
        self.name = f"triton://{address}/{named}"
        self._timeout, self._deadline = timeout, deadline
        self._tokenizer = open_tokenizer(tokenizer) if tokenizer else None
        self._folder = tokenizer
        self._chat = None
        if tokenizer and self._tokenizer and chat and os.path.isdir(tokenizer):
            self._chat = find_chat_template(tokenizer, self._tokenizer)
        self._connection = Connection(address, timeout=timeout, deadline=deadline, tls=tls)
        try:
            self._look(named)
        except BaseException:
            self.close()
            raise
        self.max_pictures = pictures if self._dialect.has_pictures else 0
        self.max_side = MAX_SIDE
        self._picture_tokens = picture_tokens
        self._has_sight: bool | None = None  # known when the first pictures are sent
        if context is not None and self._tokenizer:
            self.context = context

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; ConfigError without a tokenizer. See `CountsTokens`."""
        if self._tokenizer is None:
            raise ConfigError(f"{self.name} counts no tokens without tokenizer=FILE in its URL")
        with no_panics(self.name):
            return len(self._tokenizer.encode(well_formed(self._chat(prompt) if self._chat else prompt)).ids)

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text in pieces; see `Generator.stream`. A model that is not decoupled gives it as one.

        Closing the iterator cancels the request on the server.
        """
        if not prompt:
            raise InvalidInputError("empty", f"{self.name} was given an empty prompt")
        chosen = options or GenerationOptions()
        text = self._chat(prompt) if self._chat else prompt
        return until_stop(self._pieces(text, chosen), chosen.stop, thought_tag(text))

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Return the text in pieces; see `SeesPictures`. The server counts no tokens, so ``on_usage`` is not called."""
        # Text and pictures are apart in a request. The server adds the placeholders of pictures and renders the chat
        # template: async_build_multimodal_prompt in tensorrt_llm/inputs/utils.py of NVIDIA/TensorRT-LLM (#18381), and
        # "do not add <|vision_start|> or similar tokens yourself" in the guide of triton-inference-server/tutorials
        # (#169). Placeholders come before or after the whole text, so that the text has to say where pictures belong.
        images = images_in(parts, self.name, self.max_pictures)
        numbers = count(1)
        text = "".join(part if isinstance(part, str) else f"(picture {next(numbers)})" for part in parts)
        if not images:
            return self.stream(text, options)
        chosen = options or GenerationOptions()
        urls = [data_url(image, edge=self.max_side) for image in images]
        return until_stop(self._sighted(self._pieces(text, chosen, urls)), chosen.stop)

    def picture_tokens(self, width: int, height: int) -> int:
        """Return about how many tokens a picture takes."""
        return self._picture_tokens or estimate_tokens(width, height)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _look(self, model: str) -> None:
        """Read off the server what the model is called with, and how it is stopped."""
        config = self._connection.config(model)
        self._dialect = Dialect.of(config)
        self._dialect.check(has_tokenizer=self._tokenizer is not None)
        self._vocabulary = None
        if self._dialect.reads_ids and self._tokenizer and self._folder:
            self._vocabulary = Vocabulary.of(self._tokenizer, self._folder)
        self._streams: bool = config.model_transaction_policy.decoupled
        steps = [Dialect.of(self._connection.config(step.model_name)) for step in config.ensemble_scheduling.step]
        cores = [Dialect.of(self._connection.config(self._dialect.core))] if self._dialect.core else steps
        if any(part.leaves_prompt_out for part in cores):
            self._dialect = replace(self._dialect, leaves_prompt_out=True)
        stops = [Request(part.model, part.stop_request()) for part in (self._dialect, *steps) if "stop" in part.inputs]
        self._stop = stops[0] if stops and self._streams else None

    def _pieces(self, text: str, options: GenerationOptions, pictures: Sequence[str] = ()) -> Iterator[str]:
        dialect = self._dialect
        if dialect.accumulates and self._streams and options.beam_width > 1:
            raise ConfigError(
                f"{dialect.model} of the server accumulates the tokens of one beam: ask `ensemble` for more"
            )
        streaming = self._streams and options.beam_width == 1 and not dialect.decodes_apart
        echoes = dialect.may_echo and not streaming
        if self._vocabulary:
            ids = self._vocabulary.encode(text)
            inputs = dialect.request_of_ids(ids, self._vocabulary, options, streaming=streaming)
            return self._decoded(self._vocabulary, ids if echoes else [], self._retried(inputs, streaming=streaming))
        inputs = dialect.request(text, options, streaming=streaming, pictures=pictures)
        responses = self._retried(inputs, streaming=streaming)
        return self._texts(
            self._echoes(text) if echoes else [], responses, is_cumulative=streaming and dialect.is_cumulative
        )

    def _echoes(self, text: str) -> list[str]:
        """Return how an answer may begin with the prompt: as it was sent, or without its special tokens."""
        if self._tokenizer is None:
            return [text]
        with no_panics(self.name):
            return [text, self._tokenizer.decode(self._tokenizer.encode(well_formed(text)).ids)]

    def _sighted(self, pieces: Iterator[str]) -> Iterator[str]:
        """Yield the pieces of a text about pictures; PicturesRefusedError where the model does not take them."""
        has_begun = False
        try:
            if self._has_sight is None:
                self._has_sight = self._looks_at_pictures()
            if not self._has_sight:
                self.max_pictures = 0
                raise PicturesRefusedError(
                    f"{self.name} ignores pictures: set `multimodal: true` in the triton_config of its model.yaml", 0
                )
            for piece in pieces:
                has_begun = True
                yield piece
        except BackendError as exc:
            if has_begun or isinstance(exc, (BackendUnavailableError, PicturesRefusedError)):
                raise
            message = str(exc.__cause__ or exc)
            refusal = refused_pictures(self.name, message, is_too_long=_TOO_LONG.search(message) is not None)
            if refusal is None:
                raise
            if refusal.at_most is not None:
                self.max_pictures = min(self.max_pictures, refusal.at_most)
            raise refusal from exc
        finally:
            pieces.close()  # type: ignore[attr-defined]

    def _looks_at_pictures(self) -> bool:
        """Check whether the model reads its ``image_url``: it fails at a picture that is none.

        Without ``multimodal`` in its model.yaml, TensorRT-LLM's ignores it, and says so nowhere.
        """
        options = GenerationOptions(max_tokens=1)
        inputs = self._dialect.request("?", options, streaming=self._streams, pictures=[_NO_PICTURE])
        try:
            for _ in self._retried(inputs, streaming=self._streams):
                pass
        except BackendUnavailableError:
            raise
        except BackendError:
            return True
        return False

    def _retried(self, inputs: _Response, *, streaming: bool) -> Iterator[_Response]:
        """Yield the responses of a request. It is sent again if the server is away before the first one.

        One that is too slow is not: the server may be at work on it yet.
        """
        end, waits, has_begun, is_away = time.monotonic() + self._deadline, pauses(_RETRIES), False, False
        while True:
            try:
                if is_away:
                    self._look(self._dialect.model)
                for response in self._responses(inputs, streaming, end - time.monotonic()):
                    has_begun = True
                    yield response
            except TooSlowError:
                raise
            except BackendUnavailableError:
                wait = next(waits, math.inf)
                if has_begun or time.monotonic() + wait >= end:
                    raise
                pause(wait)
                is_away = True
            else:
                return

    def _responses(self, inputs: _Response, streaming: bool, seconds: float) -> Iterator[_Response]:
        model, outputs = self._dialect.model, _IDS if self._vocabulary else _OUTPUTS
        if not self._streams:
            yield self._connection.infer(model, inputs, outputs, timeout=seconds)
            return
        yield from stream_responses(
            self._connection,
            model,
            inputs,
            outputs,
            timeout=self._timeout if streaming else seconds,
            deadline=seconds,
            request_id=uuid.uuid4().hex,
            stop=self._stop,
        )

    @staticmethod
    def _decoded(vocabulary: Vocabulary, before: list[int], responses: Iterator[_Response]) -> Iterator[str]:
        """Yield the text of each response's ids, up to one that ends it.

        They are those of the first beam. An answer may begin with ``before``, the prompt.
        """
        text, has_ended = Detokenizer(vocabulary.decode), False
        with closing_at_end(responses):
            for response in responses:
                beams = response["output_ids"]
                ids = beams.reshape(-1, beams.shape[-1])[0][: int(response["sequence_length"].reshape(-1)[0])].tolist()
                if before and ids[: len(before)] == before:
                    ids = ids[len(before) :]
                shown = [] if has_ended else list(takewhile(lambda token: token not in vocabulary.ends, ids))
                has_ended = has_ended or len(shown) < len(ids)
                if piece := "".join(map(text.push, shown)):
                    yield piece
        if piece := text.finish():
            yield piece

    @staticmethod
    def _texts(before: Sequence[str], responses: Iterator[_Response], *, is_cumulative: bool) -> Iterator[str]:
        """Yield the new text of each response, the first beam's.

        An answer may begin with one of ``before``, the prompt. Each response may have all that came before it.
        """
        whole, shown = "", 0
        with closing_at_end(responses):
            for response in responses:
                text = response["text_output"].reshape(-1)[0].decode(errors="replace")
                if is_cumulative:
                    whole, known = text, text.rstrip(_INCOMPLETE)
                    text, shown = known[shown:], max(shown, len(known))
                else:
                    text = text.removeprefix(next(filter(text.startswith, before), ""))
                if text:
                    yield text
        if whole[shown:]:  # a character that the model did not end
            yield whole[shown:]


def _split(location: str, model: str | None) -> tuple[str, str]:
    """Address and model; ConfigError says how they are written."""
    address, _, named = location.removeprefix("//").partition("/")
    chosen = model or named
    if not location.startswith("//") or not has_port(address) or not chosen or "/" in chosen:
        raise ConfigError(
            f"a language model of Triton is triton://HOST:PORT/MODEL, such as triton://127.0.0.1:8001/ensemble, not "
            f"{location!r}"
        )
    return address, chosen
