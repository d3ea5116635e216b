"""The process in which TensorRT-LLM lives: ``python -m vlmsearch.generators.tensorrt_llm.worker FD``.

Requests are lines of JSON on standard input, answers lines of JSON on the file descriptor ``FD``; what TensorRT-LLM
prints goes to standard error. The first line says what to load. The process ends with its input.

The LLM API has moved: `Api` knows its places and names from 0.12 to 1.x.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

_PLACES = ("tensorrt_llm", "tensorrt_llm.llmapi", "tensorrt_llm.hlapi")
_ENGINES = "tensorrt_llm._tensorrt_engine"
"""Where LLM takes engines and converted checkpoints from 1.0 on; before, LLM took everything."""
_LIMITS = ("max_tokens", "max_new_tokens")
_SEEDS = ("seed", "random_seed")
_END_SECONDS = 5.0
"""How long TensorRT-LLM may take to end."""


class Api:
    """LLM and SamplingParams as the installed release has them."""

    def __init__(self, *, engines: bool) -> None:
        found: dict[str, Any] = {}
        for module in map(_module, _PLACES):
            for name in ("LLM", "SamplingParams"):
                if name not in found and hasattr(module, name):
                    found[name] = getattr(module, name)
        place = _module(_ENGINES) if engines else None
        if len(found) < 2:
            raise ImportError("tensorrt_llm has no LLM API; it came with 0.12")
        self.llm: Callable[..., Any] = getattr(place, "LLM", found["LLM"])
        self._params: Callable[..., Any] = found["SamplingParams"]
        self._names = frozenset(inspect.signature(self._params).parameters)

    def params(self, options: Mapping[str, Any], *, chat: bool) -> Any:
        """SamplingParams for `GenerationOptions`; ValueError for what the release has no name for."""
        given: dict[str, Any] = {self._name("max_tokens", _LIMITS): options["max_tokens"]}
        if options["temperature"] == 0:
            given["top_k"] = 1
        else:
            given |= {"temperature": options["temperature"], "top_p": options["top_p"]}
            given |= {} if options["top_k"] is None else {"top_k": options["top_k"]}
        if options["seed"] is not None:
            given[self._name("seed", _SEEDS)] = options["seed"]
        if options["repetition_penalty"] != 1:
            given["repetition_penalty"] = options["repetition_penalty"]
        for ours, theirs in (("stop", "stop"), ("bad_words", "bad")):
            if options[ours]:
                given[self._name(ours, (theirs,))] = list(options[ours])
        if options["beam_width"] > 1:
            given |= self._beams(options["beam_width"])
        if chat and "add_special_tokens" in self._names:
            given["add_special_tokens"] = False  # the template has written them
        return self._params(**given)

    def _beams(self, width: int) -> dict[str, object]:
        if "use_beam_search" in self._names:
            return {"use_beam_search": True, "best_of": width, "n": 1}
        return {self._name("beam_width", ("beam_width",)): width}

    def _name(self, option: str, names: tuple[str, ...]) -> str:
        for name in names:
            if name in self._names:
                return name
        raise ValueError(f"this release of TensorRT-LLM has no option for {option}")


class Worker:
    """Answers requests with one LLM; each generation has a thread of its own."""

    def __init__(self, api: Api, llm: Any, chat: bool | None, send: Callable[[Mapping[str, object]], None]) -> None:
        self._api = api
        self._llm = llm
        self._send = send
        tokenizer = llm.tokenizer
        self._tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self._chat = bool(getattr(self._tokenizer, "chat_template", None)) if chat is None else chat
        self._running: dict[int, Any] = {}
        """Results by request; None before they are there, False where they are not wanted any more."""
        self._lock = threading.Lock()

    def answer(self, request: Mapping[str, Any]) -> None:
        """Do what a request says; `cancel` aborts a generation."""
        id = request["id"]
        with self._lock:
            if request["do"] == "cancel":
                result = self._running.get(id)
                if id in self._running:
                    self._running[id] = False
            else:
                self._running[id] = result = None
        if result:
            result.abort()
        elif request["do"] != "cancel":
            target = self._count if request["do"] == "count" else self._generate
            threading.Thread(target=self._guard, args=(target, id, request), daemon=True).start()

    def close(self) -> None:
        """Let TensorRT-LLM end its own processes."""
        shutdown = getattr(self._llm, "shutdown", None) or getattr(self._llm, "_shutdown", None)
        if shutdown:
            shutdown()

    def _guard(self, target: Callable[[int, Mapping[str, Any]], None], id: int, request: Mapping[str, Any]) -> None:
        try:
            target(id, request)
        except Exception as exc:  # noqa: BLE001 - reported to the parent
            self._send({"id": id, "error": _line(exc), "is_wrong": isinstance(exc, (ValueError, TypeError))})
        finally:
            with self._lock:
                self._running.pop(id, None)

    def _generate(self, id: int, request: Mapping[str, Any]) -> None:
        options = request["options"]
        params = self._api.params(options, chat=self._chat)
        streaming = options["beam_width"] == 1
        result = self._llm.generate_async(self._written(request["prompt"]), params, streaming=streaming)
        with self._lock:
            is_wanted = self._running[id] is None
            self._running[id] = result
        if not is_wanted:
            result.abort()
        shown = text = ""
        for step in result if streaming else [result.result()]:
            text = step.outputs[0].text
            whole = text.rstrip("\ufffd")  # a character whose bytes are not all there
            if len(whole) > len(shown):
                self._send({"id": id, "text": whole[len(shown) :]})
                shown = whole
        if len(text) > len(shown):
            self._send({"id": id, "text": text[len(shown) :]})
        self._send({"id": id, "end": True})

    def _count(self, id: int, request: Mapping[str, Any]) -> None:
        self._send({"id": id, "count": len(self._tokenizer.encode(self._written(request["prompt"])))})

    def _written(self, prompt: str) -> str:
        """Return the prompt as the model expects it."""
        if not self._chat:
            return prompt
        message = [{"role": "user", "content": prompt}]
        text: str = self._tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return text


def context_of(location: str, llm: Any) -> int | None:
    """Return the most tokens of prompt and answer.

    Of an engine, of the LLM's arguments, or of the model's configuration.
    """
    try:
        config = json.loads((Path(location) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    built = config.get("build_config", {})
    old = [built.get("max_input_len"), built.get("max_output_len")]  # before 0.11
    found = (
        built.get("max_seq_len"),
        sum(old) if all(isinstance(size, int) for size in old) else None,
        getattr(getattr(llm, "args", None), "max_seq_len", None),
        config.get("max_position_embeddings"),
        config.get("n_positions"),
    )
    return next((size for size in found if isinstance(size, int)), None)


def is_for_engines(location: str) -> bool:
    """Return whether a folder holds engines, or a checkpoint that has been converted for them."""
    return any(path for form in ("rank*.engine", "rank*.safetensors") for path in Path(location).glob(form))


def main() -> None:
    """Load, say that it is loaded or why it is not, and answer until the input ends."""
    lock = threading.Lock()
    os.set_inheritable(int(sys.argv[1]), False)
    out = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def send(message: Mapping[str, object]) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()
    try:
        worker, context = _load(requests.get() or {}, send)
    except Exception as exc:  # noqa: BLE001 - reported to the parent
        send({"failed": _line(exc)})
        out.close()
        os._exit(1)  # threads of TensorRT-LLM may hang
    send({"ready": True, "context": context})
    while (request := requests.get()) is not None:
        worker.answer(request)
    worker.close()
    os._exit(0)


def _load(setting: Mapping[str, Any], send: Callable[[Mapping[str, object]], None]) -> tuple[Worker, int | None]:
    location: str = setting["location"]
    api = Api(engines=is_for_engines(location))
    given = {"model": location, "tokenizer": setting["tokenizer"]}
    if setting["tensor_parallel"] > 1:
        given["tensor_parallel_size"] = setting["tensor_parallel"]
    llm = api.llm(**{name: value for name, value in given.items() if value is not None})
    return Worker(api, llm, setting["chat"], send), context_of(location, llm)


def _read(lines: TextIO, requests: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Requests as they come; the end of the input is the end of this process, also while something hangs."""
    for line in lines:
        requests.put(json.loads(line))
    requests.put(None)
    time.sleep(_END_SECONDS)
    os._exit(0)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if name == "tensorrt_llm" or not (exc.name or "").startswith("tensorrt_llm."):
            raise
        return None


def _line(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {' '.join(str(exc).split())[:500]}"


if __name__ == "__main__":
    main()
