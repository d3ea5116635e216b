"""The forms in which servers take texts and images to encode, and give vectors back.

- OpenAI: its API reference, ``/v1/embeddings``; also vLLM with texts, Ollama and llama.cpp.
- vLLM: ``examples/pooling/embed/vision_embedding_online.py`` in https://github.com/vllm-project/vllm
- infinity: https://github.com/michaelfeil/infinity
- NIM: the API reference of the NeMo Retriever embedding NIM, https://docs.nvidia.com/nim/nemo-retriever
- Jina: https://api.jina.ai/openapi.json
- text-embeddings-inference: https://github.com/huggingface/text-embeddings-inference
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from vlmsearch.openai_api.api import in_order
from vlmsearch.types import Modality, Vectors

Form: TypeAlias = Literal["openai", "vllm", "infinity", "nim", "jina", "tei"]
Body: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Inputs:
    """The inputs of one request.

    Attributes:
        model: Name by which the server knows the model.
        modality: Whether they are texts or images.
        items: Texts, or images as data URLs.
        role: What the server is told about their use; "" for nothing.
        prompt: Instruction for the model; "" for none. It is part of the texts already, except in a chat.
        dim: Length that the server cuts vectors to; None for whole ones.
    """

    model: str
    modality: Modality
    items: Sequence[str]
    role: str
    prompt: str
    dim: int | None


@dataclass(frozen=True)
class RequestForm:
    """A form of requests.

    Attributes:
        body: Function that makes the body of a request.
        path: Path below the base URL.
        has_images: Whether it has a place for images.
        is_chat: Whether a request is a conversation about one item.
        roles: What the server is told about queries and documents unless the user says otherwise.
        hint: End of the message where the server has nothing under the path.
    """

    body: Callable[[Inputs], Body]
    path: str = "embeddings"
    has_images: bool = True
    is_chat: bool = False
    roles: tuple[str, str] = ("", "")
    hint: str = "the base URL usually ends in /v1"


def _openai(inputs: Inputs) -> Body:
    return {
        "model": inputs.model,
        "input": list(inputs.items),
        "encoding_format": "float",
        **_given(dimensions=inputs.dim, input_type=inputs.role),
    }


def _infinity(inputs: Inputs) -> Body:
    return {**_openai(inputs), "modality": inputs.modality}


def _nim(inputs: Inputs) -> Body:
    return {**_openai(inputs), "modality": inputs.modality, "truncate": "NONE"}


def _jina(inputs: Inputs) -> Body:
    items = [item.partition(",")[2] if inputs.modality == "image" else item for item in inputs.items]
    return {
        "model": inputs.model,
        "input": [{inputs.modality: item} for item in items],
        **_given(dimensions=inputs.dim, task=inputs.role),
    }


def _vllm(inputs: Inputs) -> Body:
    """Return a conversation. With a prompt it is that of Qwen3-VL-Embedding, which begins the model's own message."""
    [item] = inputs.items
    text: Body = {"type": "text", "text": item}
    image: Body = {"type": "image_url", "image_url": {"url": item}}
    messages = [{"role": inputs.role, "content": [text if inputs.modality == "text" else image]}]
    body: Body = {"model": inputs.model, "encoding_format": "float", **_given(dimensions=inputs.dim)}
    if not inputs.prompt:
        return {**body, "messages": messages}
    system = {"role": "system", "content": [{"type": "text", "text": inputs.prompt}]}
    reply = {"role": "assistant", "content": [{"type": "text", "text": ""}]}
    return {
        **body,
        "messages": [system, *messages, reply],
        "continue_final_message": True,
        "add_special_tokens": True,
    }


def _tei(inputs: Inputs) -> Body:
    settings = _given(dimensions=inputs.dim, prompt_name=inputs.role)
    return {"inputs": list(inputs.items), "normalize": True, "truncate": False, **settings}


def _given(**values: object) -> Body:
    return {name: value for name, value in values.items() if value not in (None, "")}


REQUEST_FORMS: Mapping[Form, RequestForm] = {
    "openai": RequestForm(_openai, has_images=False),
    "vllm": RequestForm(_vllm, is_chat=True, roles=("user", "user")),
    "infinity": RequestForm(_infinity, hint="check the base URL"),
    "nim": RequestForm(_nim, roles=("query", "passage")),
    "jina": RequestForm(_jina, roles=("retrieval.query", "retrieval.passage")),
    "tei": RequestForm(_tei, "embed", has_images=False, hint="the base URL ends before /embed"),
}


def vectors_of(answer: Any, form: Form, count: int) -> Vectors:
    """Return the vectors of an answer, in the order of the inputs.

    Args:
        answer: JSON of the server.
        form: Form of the request.
        count: Number of the inputs.

    Returns:
        Float32 of shape (count, dim), each row of length one.

    Raises:
        ValueError: It is not an answer of that form; the message says how.
    """
    rows = answer if form == "tei" else in_order(answer, "data", ["embedding"], count, "vectors")
    if not isinstance(rows, list) or len(rows) != count:
        raise ValueError(f"a list of {count} vectors")
    rows = [_numbers(row) for row in rows]
    if not all(isinstance(row, list) and row and set(map(type, row)) <= {float, int} for row in rows):
        raise ValueError("a list of vectors")
    try:
        with np.errstate(over="ignore"):  # a number beyond float32 is not finite
            vectors = np.array(rows, np.float32)
    except (ValueError, OverflowError) as exc:  # rows of several lengths, or an integer beyond all floats
        raise ValueError("a list of vectors of one length") from exc
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not norms.all():
        raise ValueError("a list of vectors that are finite and not zero")
    unit: Vectors = vectors / norms
    return unit


def _numbers(row: object) -> object:
    """Return the numbers of a vector, which some servers send in base64 unasked."""
    if isinstance(row, str):
        with suppress(ValueError):
            return np.frombuffer(b64decode(row, validate=True), "<f4").tolist()
    return row
