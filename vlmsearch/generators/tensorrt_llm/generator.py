"""TensorRT-LLM in a process of its own, so that neither its import nor its MPI can hang or abort the application."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec

from vlmsearch._util.files import find_checkpoint
from vlmsearch._util.retry import check_seconds
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.tensorrt_llm.child import Child, Message
from vlmsearch.generators.text import check_context, until_stop

if find_spec("tensorrt_llm") is None:  # looked for, never imported here
    raise ModuleNotFoundError("No module named 'tensorrt_llm'", name="tensorrt_llm")

_WORKER = "vlmsearch.generators.tensorrt_llm.worker"


class TensorrtLlmGenerator(Generator):
    """``tensorrt_llm:/folder`` with engines or a checkpoint, or the name of a model that TensorRT-LLM can fetch.

    ``tokenizer`` is the folder of a tokenizer, which engines do not hold. ``chat`` says whether prompts go through the
    model's chat template; by default where there is one. ``tensor_parallel`` is the number of GPUs for a checkpoint.
    ``context`` is needed where neither engine nor configuration says how much the model reads. Loading may take
    ``start_timeout`` seconds, and each token ``timeout``. Implements `CountsTokens`.
    """

    def __init__(
        self,
        location: str,
        *,
        tokenizer: str | None = None,
        chat: bool | None = None,
        tensor_parallel: int = 1,
        context: int | None = None,
        start_timeout: float = 600.0,
        timeout: float = 120.0,
    ) -> None:
        if tensor_parallel < 1:
            raise ConfigError(f"tensor_parallel is at least 1, not {tensor_parallel}")
        check_seconds(start_timeout=start_timeout, timeout=timeout)
        check_context(context)
        folder = find_checkpoint(location)
        self.name = f"tensorrt_llm:{location}"
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._child = Child(_WORKER, self.name)
        try:
            setting = {
                "location": str(folder or location),
                "tokenizer": tokenizer,
                "chat": chat,
                "tensor_parallel": tensor_parallel,
            }
            self.context = self._start(setting, start_timeout, context)
        except BaseException:
            self._child.close()
            raise

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text as TensorRT-LLM makes it, beams as one piece; closing the iterator aborts the request."""
        options = options or GenerationOptions()
        return until_stop(self._pieces(prompt, options), options.stop)

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; see `CountsTokens`."""
        with self._child.request(next(self._ids), {"do": "count", "prompt": prompt}) as answers:
            count = self._next(answers)["count"]
        if not isinstance(count, int):
            raise BackendError(f"{self.name} counted {count!r} tokens")
        return count

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _pieces(self, prompt: str, options: GenerationOptions) -> Iterator[str]:
        id, is_done = next(self._ids), False
        request = {"do": "generate", "prompt": prompt, "options": asdict(options)}
        with self._child.request(id, request) as answers:
            try:
                while "end" not in (message := self._next(answers)):
                    yield str(message["text"])
                is_done = True
            finally:
                if not is_done:
                    with suppress(BackendError):
                        self._child.send({"id": id, "do": "cancel"})

    def _next(self, answers: queue.SimpleQueue[Message]) -> Message:
        """Return the next message of a request; an error as an error."""
        try:
            message = answers.get(timeout=self._timeout)
        except queue.Empty:
            raise BackendUnavailableError(
                f"{self.name} was silent for {self._timeout:g} s; a larger ?timeout= waits longer"
            ) from None
        if "ended" in message:
            raise BackendError(str(message["ended"]))
        if "error" not in message:
            return message
        said = str(message["error"])
        if message.get("is_wrong") and "max_seq_len" in said:
            raise InvalidInputError("too_long", f"{self.name} cannot read a prompt of this length: {said}")
        if message.get("is_wrong"):
            raise ConfigError(f"{self.name} refused the request: {said}")
        raise BackendError(f"{self.name} failed: {said}")

    def _start(self, setting: Message, timeout: float, context: int | None) -> int:
        """Load the model; gives how much it reads."""
        with self._child.request(0, setting) as answers:
            try:
                message = answers.get(timeout=timeout)
            except queue.Empty:
                raise BackendUnavailableError(
                    f"{self.name} did not load within {timeout:g} s; a larger ?start_timeout= waits longer"
                    f"{self._child.last_words()}"
                ) from None
        if "failed" in message:
            raise BackendError(f"{self.name} cannot be loaded: {message['failed']}")
        if "ended" in message:
            raise BackendError(f"{self.name} cannot be loaded: {message['ended']}")
        found = context or message.get("context")
        if not isinstance(found, int):
            raise ConfigError(f"{self.name} does not say how much the model reads: add ?context= with its tokens")
        return found
