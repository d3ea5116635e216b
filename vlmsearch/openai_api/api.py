"""The rules of OpenAI's interface and of those like it: keys, errors, and requests that are asked again in parts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import httpx
from typing_extensions import override

from vlmsearch._util.credentials import redact
from vlmsearch._util.strict_json import parse_json
from vlmsearch._util.text import json_bytes
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, TextTruncatedWarning
from vlmsearch.openai_api.http import HttpClient, HttpOptions, wait_asked

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

REQUEST_BYTES = 2**24
"""Maximum size of the items of a request, unless one alone is larger."""
FITTING_CHARS = 16
"""Characters of a text that no model finds too long."""
_BUSY = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
_FAILED_DEPENDENCY = 424
"""Status of text-embeddings-inference for a failure of the model."""
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|max_(seq_len|model_len)|maximum (input |sequence |allowed )*(length|token)"
    r"|less than \d+ tokens|too long",
    re.IGNORECASE,
)
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_API_KEY")


class RefusedError(Exception):
    """A request whose content the server refused. Whoever asked knows whether an item or an option is wrong.

    Attributes:
        status: Status of the answer: 400, 413 or 422.
        message: Reason, in the words of the server.
        error: Error for a request that is wrong as a whole.
    """

    def __init__(self, name: str, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.error = ConfigError(f"{name} refused the request ({status}: {message})")

    @property
    def is_too_long(self) -> bool:
        """Return whether the request was larger than the server or the model reads."""
        return self.status == 413 or _TOO_LONG.search(self.message) is not None


class JsonApi(HttpClient):
    """JSON interface of a model server under a base URL.

    Args:
        scheme: Name of the back end, for messages.
        location: Base URL, such as ``http://host:8000/v1``.
        options: Times, attempts, and where the key is.
        key_variable: Environment variable with the key, unless ``options`` name another one.
        hint: End of the message where the server has nothing under a path.

    Raises:
        ConfigError: A value cannot be used, or the key would cross a network in plain text.
    """

    def __init__(
        self,
        scheme: str,
        location: str,
        options: HttpOptions,
        *,
        key_variable: str = "OPENAI_API_KEY",
        hint: str = "the base URL usually ends in /v1",
    ) -> None:
        options = replace(options, key_variable=options.key_variable or key_variable)
        if not _KEY_VARIABLE.fullmatch(options.key_variable):  # the message does not repeat what may be the key itself
            raise ConfigError(f"{scheme}: key_variable is the name of an environment variable that ends in _API_KEY")
        advice = "use https://, or say ?plaintext_key=true where that network is trusted"
        super().__init__(location, options, advice=advice, uses_proxies=True, scheme=f"{scheme}:")
        self._hint = hint

    def post(self, path: str, body: Mapping[str, object], *, max_bytes: int) -> Any:
        """Send a request, again while the server is away, and return the JSON of the answer.

        Args:
            path: Path below the base URL.
            body: What is asked, as JSON.
            max_bytes: Size of the largest answer that is read.

        Returns:
            The parsed answer.

        Raises:
            RefusedError: The server refused the content of the request.
            ConfigError: The server refused the key or the path.
            BackendError: The server failed, or sent what is not JSON or is too large.
        """
        return self._ask("POST", path, json_bytes(body), max_bytes)

    def get(self, path: str, *, max_bytes: int) -> Any:
        """Return the JSON under a path. Errors are those of `post`, and ConfigError for a request that is refused."""
        try:
            return self._ask("GET", path, None, max_bytes)
        except RefusedError as exc:
            raise exc.error from exc

    def _ask(self, method: str, path: str, data: bytes | None, max_bytes: int) -> Any:
        def attempt() -> bytes:
            with self.exchange(method, path, data) as response:
                return self.read(response, max_bytes)

        text = self.again(attempt)
        try:
            return parse_json(text.decode())
        except ValueError as exc:
            raise self.other("JSON", text.decode("utf-8", "replace")) from exc

    @override
    @contextmanager
    def exchange(self, method: str, target: str, data: bytes | None = None) -> Iterator[httpx.Response]:
        """Send a request to a path below the base URL and yield the unread response. See `HttpClient.exchange`.

        Raises:
            RefusedError: The server refused the content of the request.
            ConfigError: The server refused the key or the path.
            BackendError: The server failed.
        """
        with super().exchange(method, f"/{target}", data) as response:
            if not response.is_success:
                raise self._failure(response)
            yield response

    def _failure(self, response: httpx.Response) -> Exception:
        """Return the error for an unread response that is none of success."""
        message = self._detail(response)
        status, where, variable = response.status_code, f"{self.name} ", self.options.key_variable
        if status in (401, 403):
            what = f"refused the key in {variable}" if self.key else f"needs a key: set {variable}"
            return ConfigError(f"{where}{what} ({status}: {message})")
        if status == 404:
            return ConfigError(f"{where}has nothing there ({message}): {self._hint}")
        if status in _REFUSED:
            return RefusedError(self.name, status, message)
        if status in _BUSY:
            wait, asked = wait_asked(response), response.headers.get("retry-after", "")
            when = f", and asks to wait {asked} s" if asked.isdecimal() else ""
            busy = f"{where}is busy or starting ({status}: {message}){when}"
            return BackendUnavailableError(busy, retry_after=wait)
        if status >= 500 or status == _FAILED_DEPENDENCY:
            return BackendError(f"{where}failed ({status}: {message})")
        return ConfigError(f"{where}refused the request ({status}: {message})")

    def _detail(self, response: httpx.Response) -> str:
        """Return what a response says of its error, in one line. The key is never in it."""
        text, param = self.beginning(response), None
        said: object = text
        with suppress(ValueError):
            said = parse_json(text)
        for name in ("error", "message", "detail"):
            if isinstance(said, dict) and name in said:
                param, said = said.get("param"), said[name]
        message = f"{param}: {said}" if param else str(said)
        return redact(message or response.reason_phrase, [self.key], max_chars=300)


def in_parts(
    items: Sequence[Item],
    ask: Callable[[Sequence[Item]], Sequence[Outcome]],
    alone: Callable[[Item, RefusedError], Outcome],
) -> list[Outcome]:
    """Ask about items together, and about halves where the server refuses some, to find those.

    Args:
        items: At least one.
        ask: Asks about some items; raises RefusedError.
        alone: Takes one item that was refused by itself.

    Returns:
        An outcome for each item, in order.
    """
    try:
        return list(ask(items))
    except RefusedError as exc:
        if len(items) == 1:
            return [alone(items[0], exc)]
    middle = len(items) // 2
    return [*in_parts(items[:middle], ask, alone), *in_parts(items[middle:], ask, alone)]


def in_order(
    answer: Any, under: str, keys: Sequence[str], count: int, what: str, *, is_sorted: bool = False
) -> list[Any]:
    """Return a value of each entry of an answer, in the order of their indexes.

    Servers behind protobuf leave an index of 0 out, as the default of its type. Others send none at all.

    Args:
        answer: JSON of the server: the entries, or an object with them.
        under: Key of the entries.
        keys: Names of the value; the first that an entry has counts.
        count: Number of the entries.
        what: Noun for the values, for the message.
        is_sorted: Whether the entries come best first, so that their places say nothing.

    Raises:
        ValueError: It is not a list of such entries, one for each index; the message says how.
    """
    try:
        entries = answer if isinstance(answer, list) else answer[under]
        given = [entry.get("index") for entry in entries]
        values = [next(entry[key] for key in keys if key in entry) for entry in entries]
    except (AttributeError, KeyError, StopIteration, TypeError) as exc:
        raise ValueError(f"a list of {what}") from exc
    has_places = not is_sorted and given.count(None) == len(given)
    indexes = [*range(len(given))] if has_places else [0 if index is None else index for index in given]
    if set(map(type, indexes)) - {int} or sorted(indexes) != [*range(count)]:
        raise ValueError(f"a list of {count} {what}, one for each index")
    places = dict(zip(indexes, values))
    return [places[index] for index in range(count)]


def plain_image() -> str:
    """Return a picture as a data URL, to see whether a server takes any."""
    from PIL import Image

    from vlmsearch.media.images import data_url

    return data_url(Image.new("RGB", (64, 64), "white"), edge=64)


def warn_cut(chars: int) -> None:
    """Warn that a query was cut."""
    message = f"the query is too long for the model: its first {chars:,} characters were read"
    warnings.warn(message, TextTruncatedWarning, stacklevel=2)


def half_of(text: str) -> int:
    """Return the place after the last space of a text's first half, or its middle. It is at least 1.

    >>> half_of("one two three four"), half_of("abcdef")
    (8, 3)
    """
    middle = len(text) // 2
    return max(text.rfind(" ", middle // 2, middle) + 1 or middle, 1)
