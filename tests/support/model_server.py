"""A server of models that speaks every form of embeddings and re-ranking, strictly, and goes wrong as it is told to.

Its vectors are those of the space ``clip`` of `MockEncoder`, and its scores those of `MockReranker`, so that what comes
back can be told from anything else.
"""

from __future__ import annotations

import base64
import io
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import PIL.Image
from vlmsearch_mocks import MockEncoder, MockReranker

from tests.support.openai_server import StandIn, refusal
from tests.support.scripted_http import QuietHandler
from vlmsearch.types import Document, Vectors

DIM = MockEncoder().spaces[0].dim
MAX_WORDS = 1000
"""Words of a text that the model reads; more are refused."""
MODEL = "org/Model-1"
REFUSED_SIZE = (7, 7)
"""Size of an image that the re-ranker takes for broken."""


class RefusalError(Exception):
    """A request that the server does not take."""


@dataclass
class Script:
    """What the server does.

    ``faults`` are taken one a request, then all is well: see `refusal`. ``change`` is applied to every answer.
    """

    form: str = "openai"
    faults: list[str] = field(default_factory=list)
    change: Callable[[Any], Any] = lambda answer: answer
    dims: Sequence[int] = (DIM, 32)
    """Lengths that it cuts vectors to; none where ``dimensions`` is ignored."""
    refuses: str = ""
    """Word that no text may have."""
    most: int = 2048
    """Inputs of a request."""
    logits: bool = False
    max_images: int = 1
    """Images of a document that the re-ranker reads; 0 where it reads texts alone."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 0
    """Largest number of requests at a time."""
    under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    wait: threading.Barrier | None = None


class ModelServer(StandIn):
    """The server on a free port of this machine."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        super().__init__(_Handler, self.script)

    @property
    def url(self) -> str:
        return self.root if self.script.form == "tei" else f"{self.root}/v1"


class _Handler(QuietHandler):
    script: Script

    def answer(self) -> None:
        script = self.script
        body = json.loads(self.body())
        with script.lock:
            script.requests.append(body)
            fault = script.faults.pop(0) if script.faults else ""
            script.under_way += 1
            script.at_once = max(script.at_once, script.under_way)
        try:
            if script.wait is not None:
                script.wait.wait(30)
            self._answer(body, fault)
        finally:
            with script.lock:
                script.under_way -= 1

    def _answer(self, body: dict[str, Any], fault: str) -> None:
        if error := refusal(fault):
            self._json(error[0], {"error": {"message": error[1]}}, error[2])
            return
        routes = {"/v1/embeddings": self._embed, "/v1/rerank": _rerank, "/embed": self._embed, "/rerank": _rerank}
        route = routes.get(self.path)
        is_tei = not self.path.startswith("/v1")
        if route is None or is_tei != (self.script.form == "tei"):
            self._json(404, {"detail": "Not Found"})
            return
        try:
            answer = route(body) if route == self._embed else _rerank(body, self.script)
        except RefusalError as exc:
            status = 413 if is_tei and "tokens" in str(exc) else 400
            self._json(status, {"error": str(exc)} if is_tei else {"error": {"message": str(exc)}})
            return
        self._json(200, self.script.change(answer))

    def _embed(self, body: dict[str, Any]) -> Any:
        script = self.script
        kind, items = _READERS[script.form](body)
        if len(items) > script.most:
            raise RefusalError(f"batch size {len(items)} > maximum allowed batch size {script.most}")
        _check_texts([item for item in items if isinstance(item, str)], script)
        encoder = MockEncoder()
        rows = encoder.encode_texts(items)["clip"] if kind == "text" else encoder.encode_images(items)["clip"]
        vectors = _cut(rows, body.get("dimensions"), script) * 3.0  # the model leaves that to its users
        if script.form == "tei":
            return vectors.tolist()
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(vectors.tolist())]
        return {"object": "list", "data": data[::-1], "model": body["model"], "usage": {"prompt_tokens": 1}}

    def _json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send(status, data, {"Content-Type": "application/json", **(headers or {})})


def _cut(vectors: Vectors, dim: int | None, script: Script) -> Vectors:
    if dim is None or not script.dims:
        return vectors
    if dim not in script.dims:
        raise RefusalError("Model does not support matryoshka representation, changing output dimensions")
    return vectors[:, :dim]


def _check_texts(texts: Sequence[str], script: Script) -> None:
    longest = max((len(text.split()) for text in texts), default=0)
    if longest > MAX_WORDS:
        raise RefusalError(f"`inputs` must have less than {MAX_WORDS} tokens. Given: {longest}")
    if script.refuses and any(script.refuses in text for text in texts):
        raise RefusalError("an input is refused by policy")


def _only(body: Mapping[str, Any], *names: str) -> None:
    if unknown := body.keys() - {*names}:
        raise RefusalError(f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}")
    if "model" in names and body.get("model") != MODEL:
        raise RefusalError(f"The model `{body.get('model')}` does not exist")


def decoded(url: str) -> PIL.Image.Image:
    """The image of a data URL."""
    kind, _, data = url.partition(",")
    if kind != "data:image/jpeg;base64":
        raise RefusalError(f"not a data URL: {url[:30]}")
    return PIL.Image.open(io.BytesIO(base64.b64decode(data, validate=True)))


def _read_openai(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "model", "input", "encoding_format", "dimensions")
    return "text", body["input"]


def _read_infinity(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "model", "input", "encoding_format", "dimensions", "modality")
    return _of_kind(body["modality"], body["input"])


def _read_nim(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "model", "input", "encoding_format", "dimensions", "modality", "input_type", "truncate")
    if body["input_type"] not in ("query", "passage") or body["truncate"] not in ("NONE", "START", "END"):
        raise RefusalError("input_type and truncate")
    if body["modality"] == "image" and body["input_type"] != "passage":
        raise RefusalError("images are passages")
    return _of_kind(body["modality"], body["input"])


def _read_jina(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "model", "input", "task", "dimensions")
    if body["task"] not in ("retrieval.query", "retrieval.passage"):
        raise RefusalError("task")
    kinds = {kind for item in body["input"] for kind in item}
    if kinds == {"text"}:
        return "text", [item["text"] for item in body["input"]]
    return "image", [decoded(f"data:image/jpeg;base64,{item['image']}") for item in body["input"]]


def _read_vllm(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "model", "messages", "encoding_format", "dimensions", "continue_final_message", "add_special_tokens")
    messages = body["messages"]
    if messages[0]["role"] == "system":
        if messages[-1] != {"role": "assistant", "content": [{"type": "text", "text": ""}]}:
            raise RefusalError("the conversation ends with what the model says")
        messages = messages[1:-1]
    [message] = messages
    [part] = message["content"]
    if part["type"] == "text":
        return "text", [part["text"]]
    return "image", [decoded(part["image_url"]["url"])]


def _read_tei(body: dict[str, Any]) -> tuple[str, list[Any]]:
    _only(body, "inputs", "normalize", "truncate", "dimensions", "prompt_name")
    return "text", body["inputs"]


def _of_kind(kind: str, items: list[str]) -> tuple[str, list[Any]]:
    return kind, items if kind == "text" else [decoded(url) for url in items]


_READERS: dict[str, Callable[[dict[str, Any]], tuple[str, list[Any]]]] = {
    "openai": _read_openai,
    "infinity": _read_infinity,
    "nim": _read_nim,
    "jina": _read_jina,
    "vllm": _read_vllm,
    "tei": _read_tei,
}


def _rerank(body: dict[str, Any], script: Script) -> Any:
    is_tei = script.form == "tei"
    if is_tei:
        _only(body, "query", "texts", "raw_scores", "truncate")
        documents = body["texts"]
    else:
        _only(body, "model", "query", "documents", "top_n")
        documents = body["documents"]
    if len(documents) > script.most:
        raise RefusalError(f"batch size {len(documents)} > maximum allowed batch size {script.most}")
    contents = [_content(document) for document in documents]
    if not script.max_images and any(image for _, image in contents):
        raise RefusalError("At most 0 image(s) may be provided in one prompt.")
    if any(image and image.size == REFUSED_SIZE for _, image in contents):
        raise RefusalError("cannot process the image")
    _check_texts([text for text, _ in contents], script)
    given = MockReranker().score(body["query"], [Document("x", text=text or "red") for text, _ in contents])
    scores = [1 / (1 + math.exp(-6 * ((score or 0) - 0.5))) for score in given]
    if script.logits:
        scores = np.log(np.array(scores) / (1 - np.array(scores))).tolist()
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    if is_tei:
        return [{"index": i, "score": scores[i]} for i in order]
    return {"id": "1", "results": [{"index": i, "relevance_score": scores[i]} for i in order[: body["top_n"]]]}


def _content(document: Any) -> tuple[str, PIL.Image.Image | None]:
    if isinstance(document, str):
        return document, None
    parts = {part["type"]: part for part in document["content"]}
    image = decoded(parts["image_url"]["image_url"]["url"]) if "image_url" in parts else None
    return parts.get("text", {"text": ""})["text"], image
