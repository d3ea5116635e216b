"""What the stand-ins of TensorRT-LLM's releases share: a model whose tokens are three characters.

``STANDIN`` says what goes wrong: ``hang``, ``abort``, ``segv``, ``exit`` or ``raise`` at import, ``die`` and ``stall``
after two tokens, ``load`` when the model is loaded. ``STANDIN_LOG`` is a file for what was called, ``STANDIN_PID``
one for the number of the process.
"""

from __future__ import annotations

import ctypes
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FAULT = os.environ.get("STANDIN", "")
MAX_SEQ_LEN = 512


def note(text: str) -> None:
    if log := os.environ.get("STANDIN_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def at_import() -> None:
    if place := os.environ.get("STANDIN_PID"):
        Path(place).write_text(str(os.getpid()))
    print("[TensorRT-LLM] a banner on standard output")
    print("[TensorRT-LLM] about to initialise MPI", file=sys.stderr, flush=True)
    if FAULT == "hang":
        time.sleep(1000)
    if FAULT == "abort":
        os.abort()
    if FAULT == "segv":
        ctypes.string_at(0)
    if FAULT == "exit":
        os._exit(3)
    if FAULT == "raise":
        raise RuntimeError("libmpi.so.40: cannot open shared object file")


class HfTokenizer:
    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template

    def encode(self, text: str) -> list[int]:
        return [hash(text[start : start + 3]) for start in range(0, len(text), 3)]

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


class Tokenizer:
    """As TensorRT-LLM wraps one of transformers."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        self.tokenizer = tokenizer


class Output:
    def __init__(self) -> None:
        self.text = ""


class Result:
    """The result of a request: iterated in one thread, aborted from another."""

    def __init__(self, tokens: list[str], streaming: bool) -> None:
        self.outputs = [Output()]
        self._aborted = threading.Event()
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._done = False
        self._streaming = streaming
        threading.Thread(target=self._run, args=(tokens,), daemon=True).start()

    def _run(self, tokens: list[str]) -> None:
        for number, token in enumerate(tokens):
            if self._aborted.wait(float(os.environ.get("STANDIN_DELAY", "0"))):
                note("aborted")
                break
            if FAULT == "die" and number == 2:
                print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
                os.abort()
            if FAULT == "stall" and number == 2:
                return
            self._queue.put(token)
        self._queue.put(None)

    def __iter__(self) -> Iterator[Result]:
        assert self._streaming
        return self

    def __next__(self) -> Result:
        if self._done:
            raise StopIteration
        self._step()
        return self

    def result(self) -> Result:
        while not self._done:
            self._step()
        return self

    def abort(self) -> None:
        self._aborted.set()

    def _step(self) -> None:
        token = self._queue.get()
        if token is None:
            self._done = True
        else:
            self.outputs[0].text += token


def load(model: str, tokenizer: str | None, **rest: Any) -> Tokenizer:
    note(f"load {Path(model).name} tokenizer={tokenizer} {rest}")
    if FAULT == "load":
        raise ValueError("the engine was built for another GPU")
    template = Path(model, "chat_template.jinja")
    return Tokenizer(HfTokenizer(template.read_text() if template.is_file() else None))


def run(prompt: str, params: Any, limit: int, seed: int | None, bad: list[str] | None, streaming: bool) -> Result:
    tokens = len(HfTokenizer(None).encode(prompt))
    if tokens + limit > MAX_SEQ_LEN:
        raise ValueError(f"The sum of prompt length ({tokens}) and max_tokens ({limit}) should not exceed max_seq_len")
    reply = f"It shows a red star [1] — ünï \U0001f436, of {len(prompt)} characters."
    words = reply.split(" ")
    if params.top_k != 1:
        random.Random(seed or 0).shuffle(words)
    text = " ".join(words)
    for word in bad or ():
        text = text.replace(word, "")
    note(f"generate {params} streaming={streaming}")
    return Result([text[start : start + 3] for start in range(0, len(text), 3)][:limit], streaming)
