"""A server with OpenAI's interface that follows the protocol to the letter, and goes wrong as it is told to."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self

CHAT_KEYS = {
    "model", "messages", "stream", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed",
    "stop", "repetition_penalty", "stream_options", "logprobs", "top_logprobs",
}  # fmt: skip


@dataclass
class Script:
    """What the server says and how it fails; ``faults`` are taken one a request, then all is well."""

    reply: str = "It shows a red star [1], and nothing else."
    models: tuple[str, ...] = ("tiny",)
    key: str = ""
    faults: list[str] = field(default_factory=list)
    delay: float = 0.0
    likelihoods: Callable[[str], Mapping[str, float]] | None = None
    """Probabilities of the first token, by the text of the prompt; None where the server tells none."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)


class QuietServer(ThreadingHTTPServer):
    """A server that does not mind when its clients go."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that has gone is no error
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class OpenAIServer:
    """The server on a free port of this machine, in a ``with`` block."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self._server = QuietServer(("127.0.0.1", port), type("Handler", (_Handler,), {"script": self.script}))
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    script: Script
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self._authorised():
            return
        if self.path != "/v1/models":
            self._json(404, {"detail": "Not Found"})
            return
        self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.script.models]})

    def do_POST(self) -> None:
        script = self.script
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script.requests.append(body)
        script.headers.append(dict(self.headers))
        if not self._authorised():
            return
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self._json(404, {"detail": "Not Found"})
            return
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
        self.send_response(200)
        if "logprobs" in body:
            self._body(json.dumps({"choices": [_first_token(tokens[0], body, self.script)]}).encode())
            return
        if fault == "no stream":
            text = "".join(tokens)
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            self._body(json.dumps({"choices": [choice | {"index": 0, "finish_reason": "stop"}]}).encode())
            return
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

    def _authorised(self) -> bool:
        if self.script.key and self.headers.get("Authorization") != f"Bearer {self.script.key}":
            self._json(401, {"error": {"message": f"Incorrect key: {self.headers.get('Authorization')}"}})
            return False
        return True

    def _json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self._body(json.dumps(value).encode())

    def _body(self, data: bytes) -> None:
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


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
