"""What a server with OpenAI's interface answers: events (WHATWG HTML, section 9.2.6), text, and errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from vlmsearch._util.credentials import redact
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError, VlmsearchError

if TYPE_CHECKING:
    import httpx


def event_data(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the data of each event; one that the end of the stream cuts off is left out.

    Lines end in LF or CR LF alone: text in JSON may hold every other separator of Unicode.
    """
    data: list[str] = []
    for line in _lines(chunks):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")


Api = Literal["chat", "completions"]


class OtherShapeError(Exception):
    """An answer that is no completion."""


def read_event(event: dict[str, Any], api: Api) -> tuple[str, bool]:
    """Return the text of an event, whose content may come in parts, and whether it is the last; "" of a mere count."""
    try:
        choice = (event.get("choices") or [{}])[0]
        if api == "completions":
            content = choice.get("text") or ""
        else:
            content = (choice.get("delta") or {}).get("content") or ""
            if isinstance(content, list):
                content = "".join(part.get("text") or "" for part in content)
    except (AttributeError, IndexError, KeyError, TypeError) as exc:
        raise OtherShapeError from exc
    if not isinstance(content, str):
        raise OtherShapeError
    return content, bool(choice.get("finish_reason"))


KEY_VARIABLE = "OPENAI_API_KEY"
LONGEST_WAIT = 30.0
"""Seconds that a server may ask to wait; for more, the caller decides."""
_BUSY = frozenset({429, 502, 503, 504})
_TOO_LONG = ("context_length_exceeded", "maximum context length", "max_seq_len", "max_model_len")


class Passing(Exception):  # noqa: N818 - no error yet: another try may help
    """``error`` unless a further try, ``wait`` seconds from now at the earliest, does better."""

    def __init__(self, error: VlmsearchError, *, wait: float = 0.0, at_once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.at_once = at_once


def error_of(name: str, response: httpx.Response, key: str) -> VlmsearchError:
    """Return the error for a response that has been read; the key is never in its message."""
    status, message = response.status_code, detail(response, key)
    if status in (401, 403):
        what = f"refused the key in {KEY_VARIABLE}" if key else f"needs a key: set {KEY_VARIABLE}"
        return ConfigError(f"{name} {what} ({status}: {message})")
    if status == 404:
        return ConfigError(f"{name} has nothing there ({message}): the base URL usually ends in /v1")
    if status == 413 or (status in (400, 422) and any(sign in message for sign in _TOO_LONG)):
        advice = "ask with a smaller limit, or add ?tokenizer= and ?context= so that prompts are fitted"
        return InvalidInputError("too_long", f"{name} cannot read a prompt of this length ({message}): {advice}")
    if status in _BUSY:
        asked = response.headers.get("retry-after")
        when = f", and asks to wait {asked} s" if asked and asked.isdecimal() else ""
        return BackendUnavailableError(f"{name} is busy or starting ({status}: {message}){when}")
    if status >= 500:
        return BackendError(f"{name} failed ({status}: {message})")
    return ConfigError(f"{name} refused the request ({status}: {message})")


def detail(response: httpx.Response, key: str) -> str:
    """Return what a response that has been read says of its error, in one line."""
    try:
        said = json.loads(response.text)
    except ValueError:
        said = response.text
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and name in said:
            said = said[name]
    return redact(str(said) or response.reason_phrase, [key], max_chars=300)


def wait_asked(response: httpx.Response) -> float | None:
    """Return the seconds that the server asks to wait; None for more than `LONGEST_WAIT`."""
    asked = response.headers.get("retry-after", "0")
    try:
        seconds = float(asked) if asked.replace(".", "", 1).isdecimal() else _until(asked)
    except ValueError:
        seconds = 0.0
    return seconds if seconds <= LONGEST_WAIT else None


def _until(date: str) -> float:
    return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
