"""Generation on a server with OpenAI's interface: trtllm-serve, vLLM, and every other that is compatible."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from vlmsearch._util.address import parse_address
from vlmsearch._util.cancellation import check_cancelled, on_cancel, pause
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.retry import check_seconds, pauses
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.openai.responses import (
    KEY_VARIABLE,
    Api,
    OtherShapeError,
    Passing,
    detail,
    error_of,
    event_data,
    read_event,
    wait_asked,
)
from vlmsearch.generators.text import check_context, until_stop

_MOST_STOPS = 4
"""Maximum number of stop words in OpenAI's interface; the text is cut at all of them here."""
_CHAT_TOKENS, _FIRST_TOKENS = 32, 1
"""Maximum number of tokens of a chat template, and the number in completions: the one that begins a text."""


class OpenAIGenerator(Generator):
    """``openai:http://host:8000/v1?model=NAME``: chat completions, or completions with ``api=completions``.

    ``model`` may be left out where the server has just one. A key comes from the environment variable OPENAI_API_KEY; a
    URL takes none. Over plain HTTP it is sent to this machine alone, elsewhere only with ``plaintext_key``, for a
    network that is trusted. ``timeout`` is how many seconds the server may be silent, ``connect_timeout`` how long it
    may take to connect. ``retries`` is how often a server that is unreachable, busy or starting is asked again, never
    after the first token. With ``tokenizer``, a tokenizer.json or its folder, and ``context``, how many tokens the
    model reads, it implements `CountsTokens`; a chat template is counted as 32 tokens. ``top_k`` and
    ``repetition_penalty`` are sent by their names in vLLM and trtllm-serve; bad words and beams have no place in the
    interface and are refused.
    """

    context: int
    _count: Callable[[str], int]

    def __init__(
        self,
        location: str,
        *,
        model: str | None = None,
        api: Api = "chat",
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        retries: int = 3,
        tokenizer: Path | None = None,
        context: int | None = None,
        plaintext_key: bool = False,
    ) -> None:
        if (tokenizer is None) != (context is None):
            raise ConfigError("openai: counts tokens with both ?tokenizer= and ?context=; one of them is missing")
        if retries < 0:
            raise ConfigError(f"retries is at least 0, not {retries}")
        check_seconds(timeout=timeout, connect_timeout=connect_timeout)
        check_context(context)
        url = _check_url(location)
        self.name = f"openai:{url}"
        self._model = model
        self._api = api
        self._retries = retries
        self._limit = "max_tokens"
        if tokenizer is not None and context is not None:
            from vlmsearch.generators.text import token_counter

            self.context, self._count = context, token_counter(tokenizer)
        self._key = os.environ.get(KEY_VARIABLE, "").strip()  # a key from a file comes with the end of its line
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(f"{KEY_VARIABLE} holds characters that no key has")
        if self._key and url.scheme == "http" and not plaintext_key:
            advice = "use https://, or say ?plaintext_key=true where that network is trusted"
            check_unencrypted(KEY_VARIABLE, url.host, advice)
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(timeout, connect=connect_timeout, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        )

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text as the server sends it.

        Closing the iterator closes the connection, which stops the server.
        """
        options = options or GenerationOptions()
        if options.bad_words or options.beam_width > 1:
            raise ConfigError(f"{self.name}: OpenAI's interface has no bad_words and no beam_width; leave them out")
        return until_stop(self._pieces(prompt, options), options.stop)

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; see `CountsTokens`."""
        return self._count(prompt) + (_CHAT_TOKENS if self._api == "chat" else _FIRST_TOKENS)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise BackendError(f"{self.name} is closed")

    def _pieces(self, prompt: str, options: GenerationOptions) -> Iterator[str]:
        waits = pauses(self._retries)
        while True:
            begun = False
            try:
                with closing(self._open(prompt, options)) as response, on_cancel(partial(_hang_up, response)):
                    for piece in self._read(response):
                        begun = True
                        yield piece
            except Passing as exc:
                check_cancelled()  # the connection was broken for that
                seconds = 0.0 if exc.at_once else next(waits, None)
                if begun or seconds is None:
                    raise exc.error from exc.__cause__
                pause(max(seconds, exc.wait))
            else:
                return

    def _open(self, prompt: str, options: GenerationOptions) -> httpx.Response:
        """Return the answer to one request, its body not read yet; `Passing` where another try may help."""
        self._check_open()
        path = "chat/completions" if self._api == "chat" else "completions"
        limit = self._limit  # another thread may learn that it has another name
        request = self._client.build_request(
            "POST", path, json=self._body(prompt, options, limit), headers=trace_headers()
        )
        try:
            response = self._client.send(request, stream=True)
            if response.status_code < 400:
                return response
            with closing(response):
                response.read()
        except httpx.HTTPError as exc:
            raise self._passing(exc) from exc
        message = detail(response, self._key)
        if response.status_code == 400 and "max_completion_tokens" in message and limit == "max_tokens":
            self._limit = "max_completion_tokens"  # what OpenAI's own newer models call it
            raise Passing(BackendError(message), at_once=True)
        error = error_of(self.name, response, self._key)
        if isinstance(error, BackendUnavailableError) and (wait := wait_asked(response)) is not None:
            raise Passing(error, wait=wait)
        raise error

    def _body(self, prompt: str, options: GenerationOptions, limit: str) -> dict[str, object]:
        given: dict[str, object] = {
            limit: options.max_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p if options.top_p < 1 else None,
            "top_k": options.top_k,
            "repetition_penalty": options.repetition_penalty if options.repetition_penalty != 1 else None,
            "stop": list(options.stop[:_MOST_STOPS]) or None,
            "seed": options.seed,
        }
        place: dict[str, object] = (
            {"messages": [{"role": "user", "content": prompt}]} if self._api == "chat" else {"prompt": prompt}
        )
        chosen = {name: value for name, value in given.items() if value is not None}
        return {"model": self._chosen_model(), "stream": True} | place | chosen

    def _chosen_model(self) -> str:
        if self._model is None:
            try:
                response = self._client.get("models")
            except httpx.HTTPError as exc:
                raise self._lost(exc) from exc
            if response.status_code >= 400:
                raise error_of(self.name, response, self._key)
            try:
                names = sorted(redact(str(model["id"]), [self._key]) for model in response.json()["data"])
            except (ValueError, KeyError, TypeError) as exc:
                raise self._other("a list of models", response.text) from exc
            if len(names) != 1:
                raise ConfigError(f"{self.name} has {len(names)} models; add ?model= with one of {', '.join(names)}")
            self._model = names[0]
        return self._model

    def _read(self, response: httpx.Response) -> Iterator[str]:
        """Yield the pieces of the text in a stream of events."""
        is_whole = False
        try:
            if "event-stream" not in response.headers.get("content-type", ""):
                raise self._other("a stream of events", response.read().decode("utf-8", "replace"))
            for data in event_data(response.iter_bytes()):
                if data == "[DONE]":
                    return
                try:
                    piece, ends = read_event(self._parse(data), self._api)
                except OtherShapeError as exc:
                    raise self._other("a completion", data) from exc
                if piece:
                    yield piece
                is_whole = is_whole or ends
        except httpx.HTTPError as exc:
            raise self._passing(exc) from exc
        if not is_whole:
            raise Passing(BackendUnavailableError(f"{self.name} ended its answer in the middle"))

    def _parse(self, data: str) -> dict[str, Any]:
        try:
            event = json.loads(data)
        except ValueError as exc:
            raise self._other("JSON", data) from exc
        if not isinstance(event, dict):
            raise self._other("a JSON object", data)
        if error := event.get("error"):
            message = error.get("message", error) if isinstance(error, Mapping) else error
            raise BackendError(f"{self.name} failed while it answered: {redact(str(message), [self._key])}")
        return event

    def _other(self, expected: str, data: str) -> BackendError:
        return BackendError(f"{self.name} sent what is not {expected}: {redact(data, [self._key], max_chars=100)!r}")

    def _passing(self, exc: httpx.HTTPError) -> Passing:
        """Return the failure of a connection; another try helps unless the server was silent for too long."""
        error = self._lost(exc)
        if isinstance(exc, (httpx.ReadTimeout, httpx.WriteTimeout)):
            raise error from exc
        return Passing(error)

    def _lost(self, exc: httpx.HTTPError) -> BackendUnavailableError:
        known: dict[type[Exception], str] = {
            httpx.ConnectError: "cannot be reached",
            httpx.ConnectTimeout: "did not accept a connection in time",
            httpx.ReadTimeout: "was silent for too long; a larger ?timeout= waits longer",
        }
        what = known.get(type(exc), "broke the connection")
        return BackendUnavailableError(f"{self.name} {what} ({redact(str(exc), [self._key]) or type(exc).__name__})")


def _hang_up(response: httpx.Response) -> None:
    """Break the connection of a response that another thread may be waiting for; closing it would not wake that up."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream else None
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _check_url(location: str) -> httpx.URL:
    """Return the base URL; ConfigError without repeating what may be a secret."""
    try:
        url = httpx.URL(location)
    except httpx.InvalidURL:
        raise ConfigError("openai: takes the base URL of a server, such as openai:http://host:8000/v1") from None
    if url.userinfo:
        raise ConfigError(f"an openai: URL takes no user and password; a key goes into {KEY_VARIABLE}")
    if url.scheme not in ("http", "https") or parse_address(url.netloc.decode()) is None:
        raise ConfigError(f"openai: takes the base URL of a server, such as openai:http://host:8000/v1, not {location}")
    return url.copy_with(path=url.path.rstrip("/"))
