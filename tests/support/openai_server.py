"""A server with OpenAI's interface that follows the protocol to the letter, and goes wrong as it is told to."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from tests.support.scripted_http import QuietHandler, running

CHAT_KEYS = {
    "model", "messages", "stream", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed",
    "stop", "repetition_penalty", "stream_options", "logprobs", "top_logprobs", "cache_salt",
}  # fmt: skip


@dataclass
class Script:
    """What the server says and how it fails; ``faults`` are taken one a request, then all is well."""

    reply: str = "It shows a red star [1], and nothing else."
    models: tuple[str, ...] = ("tiny",)
    faults: list[str] = field(default_factory=list)
    delay: float = 0.0
    likelihoods: Callable[[str], Mapping[str, float]] | None = None
    """Probabilities of the first token, by the text of the prompt; None where the server tells none."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)


class StandIn:
    """A server that follows a script, in a ``with`` block."""

    def __init__(self, handler: type[QuietHandler], script: object) -> None:
        self._running = running(type("Handler", (handler,), {"script": script}))

    def __enter__(self) -> Self:
        self.root = self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)


class OpenAIServer(StandIn):
    """The server on a free port of this machine."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        super().__init__(_Handler, self.script)

    @property
    def url(self) -> str:
        return f"{self.root}/v1"


class _Handler(QuietHandler):
    script: Script
    wbufsize = 0

    def answer(self) -> None:
        script = self.script
        if self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in script.models]})
            return
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self._json(404, {"detail": "Not Found"})
            return
        body = json.loads(self.body())
        script.requests.append(body)
        script.headers.append(dict(self.headers))
        fault = script.faults.pop(0) if script.faults else ""
        if error := self._mistake(body, chat) or refusal(fault):
            status, message, headers = error
            self._json(status, {"error": {"message": message, "type": "error", "code": None}}, headers)
            return
        self._answer(body, chat, fault)

    def _mistake(self, body: dict[str, Any], chat: bool) -> tuple[int, str, dict[str, str]] | None:
        place = "messages" if chat else "prompt"
        unknown = set(body) - (CHAT_KEYS if chat else CHAT_KEYS - {"messages"} | {"prompt"})
        if body.get("model") not in self.script.models:
            return 404, f"The model `{body.get('model')}` does not exist.", {}
        if unknown or place not in body or body.get("stream") is not ("logprobs" not in body):
            return 400, f"wrong parameters: {sorted(unknown)}", {}
        if len(body.get("stop", [])) > 4:
            return 400, "stop: at most 4", {}
        if chat and [set(message) for message in body["messages"]] != [{"role", "content"}]:
            return 400, "messages: role and content", {}
        return None

    def _answer(self, body: dict[str, Any], chat: bool, fault: str) -> None:
        tokens = _tokens(self.script.reply, body)
        if "logprobs" in body:
            self._json(200, {"choices": [_first_token(tokens[0], body, self.script)]})
            return
        if fault == "no stream":
            text = "".join(tokens)
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            self._json(200, {"choices": [choice | {"index": 0, "finish_reason": "stop"}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(_events(tokens, chat, _prompt_tokens(body))):
                if fault == f"cut {number}":
                    self.close_connection = True
                    return
                if fault == f"end {number}":
                    break
                if fault == f"slow {number}":
                    time.sleep(20)
                if fault == f"malformed {number}":
                    event = "{no json"
                if fault == f"error {number}":
                    event = json.dumps({"error": {"message": "the engine died of sk-secret", "code": 500}})
                self._chunk(f"data: {event}\r\n\r\n".encode())
                time.sleep(self.script.delay)
            self._chunk(b"")
        except OSError:
            self.close_connection = True
            self.script.cancelled.set()

    def _chunk(self, data: bytes) -> None:
        half = len(data) // 2  # a chunk ends anywhere, in a character too
        for part in (data[:half], data[half:]) if data else (b"",):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()

    def _json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})


def refusal(fault: str) -> tuple[int, str, dict[str, str]] | None:
    """``429``, ``429 after 5``, ``503``, ``500``, ``400 message``."""
    status, _, rest = fault.partition(" ")
    if not status.isdigit():
        return None
    after = rest.removeprefix("after ") if rest.startswith("after ") else ""
    return int(status), rest or "no message", {"Retry-After": after} if after else {}


def _tokens(reply: str, body: Mapping[str, Any]) -> list[str]:
    """The reply in tokens of three characters, ended by stop words and limits as the interface says."""
    text = reply
    if body.get("temperature"):
        text = f"{reply} ({body['temperature']}, {body.get('seed', 'no seed')})"
    limit = body.get("max_tokens", body.get("max_completion_tokens", 16))
    tokens = [text[start : start + 3] for start in range(0, len(text), 3)][:limit]
    text = "".join(tokens)
    end = min((text.find(word) for word in body.get("stop", ()) if word in text), default=len(text))
    return [text[start : min(start + 3, end)] for start in range(0, end, 3)]


def _first_token(token: str, body: Mapping[str, Any], script: Script) -> dict[str, Any]:
    """The choice of an answer of one token; there are at most 20 likely ones in OpenAI's interface."""
    told = None
    if script.likelihoods is not None and body["top_logprobs"] <= 20:
        shares = sorted(script.likelihoods(_text(body)).items(), key=lambda share: -share[1])[: body["top_logprobs"]]
        likely = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in shares]
        told = {"content": [{**likely[0], "top_logprobs": likely}], "refusal": None}
    message = {"role": "assistant", "content": token}
    return {"index": 0, "message": message, "logprobs": told, "finish_reason": "length"}


def _text(body: Mapping[str, Any]) -> str:
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _prompt_tokens(body: Mapping[str, Any]) -> int:
    """A token for each word, and a hundred for each picture."""
    content = body["messages"][0]["content"] if "messages" in body else body["prompt"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return sum(100 if part["type"] == "image_url" else len(part["text"].split()) for part in parts)


def _events(tokens: list[str], chat: bool, prompt_tokens: int) -> Iterator[str]:
    def event(choice: dict[str, object]) -> str:
        return json.dumps({"id": "1", "choices": [{"index": 0, "finish_reason": None} | choice]}, ensure_ascii=False)

    if chat:
        yield event({"delta": {"role": "assistant", "content": ""}})
    for token in tokens:
        yield event({"delta": {"content": token}} if chat else {"text": token})
    yield event({"delta": {}, "finish_reason": "stop"} if chat else {"text": "", "finish_reason": "stop"})
    yield json.dumps(
        {"id": "1", "choices": [], "usage": {"completion_tokens": len(tokens), "prompt_tokens": prompt_tokens}}
    )
    yield "[DONE]"
