"""Language models behind Triton: TensorRT-LLM's, and the Python baseline with its tensors."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.address import has_port
from vlmsearch._util.cancellation import pause
from vlmsearch._util.retry import check_seconds
from vlmsearch.errors import BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.chat import find_chat_template
from vlmsearch.generators.text import check_context, open_tokenizer, until_stop
from vlmsearch.generators.triton.dialects import Dialect, inputs_of, stop_request
from vlmsearch.models.tokenizers import no_panics
from vlmsearch.triton.client.connection import Connection
from vlmsearch.triton.client.security import Security
from vlmsearch.triton.client.stream import Request, stream_responses

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_INCOMPLETE = "\ufffd"
_OUTPUTS = ("text_output",)
_Response = dict[str, NDArray[np.generic]]


class TritonGenerator(Generator):
    """A language model that a Triton server has: ``triton://host:8001/ensemble``, or ``.../tensorrt_llm`` for llmapi.

    The names of the model's tensors are read off the server. With ``tokenizer``, a ``tokenizer.json`` or its folder,
    and ``context`` prompts are counted: see `CountsTokens`. Where ``tokenizer`` is a folder whose tokenizer has a chat
    template, prompts are put into it, unless ``chat`` is false.

    A piece may take ``timeout`` seconds after the one before it, a text ``deadline``: so long a restart of the server
    is waited for, too, unless the text had begun. ``tls`` encrypts. The environment has certificates, token and
    headers: see `vlmsearch.triton.client.security.Security`.
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
        timeout: float = 60.0,
        deadline: float = 300.0,
        tls: bool = False,
    ) -> None:
        address, named = _split(location, model)
        check_seconds(timeout=timeout, deadline=deadline)
        check_context(context)
        self.name = f"triton://{address}/{named}"
        self._timeout, self._deadline = timeout, deadline
        self._tokenizer = open_tokenizer(tokenizer) if tokenizer else None
        self._chat = find_chat_template(tokenizer) if tokenizer and tokenizer.is_dir() and chat else None
        security = Security.from_environment(tls=tls, host=address.rpartition(":")[0])
        self._connection = Connection(address, security=security, timeout=timeout, deadline=deadline)
        try:
            self._look(named)
        except BaseException:
            self.close()
            raise
        if context is not None and self._tokenizer:
            self.context = context

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; ConfigError without a tokenizer. See `CountsTokens`."""
        if self._tokenizer is None:
            raise ConfigError(f"{self.name} counts no tokens without tokenizer=FILE in its URL")
        with no_panics(self.name):
            return len(self._tokenizer.encode(self._chat(prompt) if self._chat else prompt).ids)

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text in pieces; see `Generator.stream`. A model that is not decoupled gives it as one.

        Closing the iterator cancels the request on the server.
        """
        chosen = options or GenerationOptions()
        if chosen.beam_width > 1 and chosen.temperature:
            raise ConfigError("beam search finds the likeliest text: beam_width goes with temperature 0")
        dialect, streams = self._dialect, self._streams
        if not prompt:
            raise InvalidInputError("empty", f"{self.name} was given an empty prompt")
        text = self._chat(prompt) if self._chat else prompt
        inputs = dialect.request(text, chosen, streaming=streams and chosen.beam_width == 1)
        return until_stop(self._pieces(text, inputs, dialect, streams), chosen.stop)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _look(self, model: str) -> None:
        """Read off the server what the model is called with, and how it is stopped."""
        config = self._connection.config(model)
        self._dialect = Dialect.of(model, inputs_of(config), batches=config.max_batch_size > 0)
        self._streams: bool = config.model_transaction_policy.decoupled
        steps = [self._connection.config(step.model_name) for step in config.ensemble_scheduling.step]
        requests = (
            stop_request(part.name, inputs_of(part), batches=part.max_batch_size > 0) for part in (config, *steps)
        )
        stops = [(part.name, arrays) for part, arrays in zip((config, *steps), requests) if arrays]
        self._stop = Request(*stops[0]) if stops and self._streams else None

    def _pieces(self, prompt: str, inputs: _Response, dialect: Dialect, streams: bool) -> Iterator[str]:
        responses = self._retried(dialect.model, inputs, streams)
        try:
            yield from filter(None, self._texts("" if streams or not dialect.may_echo else prompt, responses))
        finally:
            responses.close()  # type: ignore[attr-defined]

    def _retried(self, model: str, inputs: _Response, streams: bool) -> Iterator[_Response]:
        """Yield the responses of a request, which is sent again where the server is away before the first one comes."""
        end, longest, begun, away = time.monotonic() + self._deadline, _FIRST_PAUSE, False, False
        while True:
            try:
                if away:
                    self._look(model)
                for response in self._responses(model, inputs, streams, end - time.monotonic()):
                    begun = True
                    yield response
            except BackendUnavailableError:
                wait = longest * random.uniform(0.5, 1.5)
                if begun or time.monotonic() + wait >= end:
                    raise
                pause(wait)
                longest, away = min(2 * longest, _LONGEST_PAUSE), True
            else:
                return

    def _responses(self, model: str, inputs: _Response, streams: bool, seconds: float) -> Iterator[_Response]:
        if not streams:
            yield self._connection.infer(model, inputs, _OUTPUTS)
            return
        yield from stream_responses(
            self._connection,
            model,
            inputs,
            _OUTPUTS,
            timeout=self._timeout,
            deadline=seconds,
            request_id=uuid.uuid4().hex,
            stop=self._stop,
        )

    def _texts(self, before: str, responses: Iterator[_Response]) -> Iterator[str]:
        """Yield the new text of each response, the first beam's; an answer may begin with ``before``, the prompt."""
        shown = ""
        for response in responses:
            text = response["text_output"].reshape(-1)[0].decode(errors="replace")
            if not self._dialect.is_cumulative or not self._streams:
                yield text[len(before) :] if before and text.startswith(before) else text
                before = ""
                continue
            complete = text.rstrip(_INCOMPLETE)
            yield complete[len(shown) :]
            shown = complete


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
