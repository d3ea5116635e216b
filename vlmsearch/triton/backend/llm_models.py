"""The models of a language model's repository for Triton's Python backend, with the tensors of TensorRT-LLM's.

Importable inside a Triton server alone, which brings ``triton_python_backend_utils``. A ``model.py`` names one of the
classes here `TritonPythonModel`, the interface that Triton asks for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from vlmsearch.errors import VlmsearchError
from vlmsearch.generators.local.transformers import context_of, decode_tokens, load_model, load_tokenizer
from vlmsearch.triton.backend.llm_engine import BatchingEngine
from vlmsearch.triton.backend.llm_requests import Arrays, read_tasks
from vlmsearch.triton.backend.models import parameters, refused
from vlmsearch.triton.client.words import to_word_list

_TEXTS = ("QUERY", "BAD_WORDS_DICT", "STOP_WORDS_DICT")
_LISTS = (("BAD_WORDS_DICT", "BAD_WORDS_IDS"), ("STOP_WORDS_DICT", "STOP_WORDS_IDS"))
_FAMILY = "nv_trt_llm_request_metrics"
_WORD = " a"


class PreprocessingModel:
    """Prompts and word lists to token ids, as TensorRT-LLM's ``preprocessing``."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer."""
        given = parameters(args)
        self._tokenizer = load_tokenizer(given["tokenizer_dir"])
        self._most_bytes = int(given["max_text_bytes"])
        self._special = given["add_special_tokens"] == "true"
        end = self._tokenizer.eos_token_id
        self._end = 0 if end is None else end
        self._pad = self._end if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            return pb_utils.InferenceResponse(self._tensors(request))
        except ValueError as exc:
            return refused(exc)

    def _tensors(self, request: Any) -> list[Any]:
        given = {name: pb_utils.get_input_tensor_by_name(request, name) for name in _TEXTS}
        encoded = {name: tensor.as_numpy() for name, tensor in given.items() if tensor is not None}
        size = sum(len(item) for array in encoded.values() for item in array.reshape(-1))
        if size > self._most_bytes:
            raise ValueError(f"prompt and words have {size:,} bytes; this server takes {self._most_bytes:,}")
        queries = _rows(encoded["QUERY"])
        lengths = pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy()
        ends, pads = (self._given(request, name, len(queries)) for name in ("END_ID", "PAD_ID"))
        prompts = [self._encode(query[0], special=self._special) for query in queries]
        ids = np.full((len(prompts), max(map(len, prompts))), self._pad, np.int32)
        for row, prompt in zip(ids, prompts):
            row[: len(prompt)] = prompt
        sizes = np.array([[len(prompt)] for prompt in prompts], np.int32)
        tensors = {"INPUT_ID": ids, "REQUEST_INPUT_LEN": sizes, "REQUEST_OUTPUT_LEN": lengths.astype(np.int32)}
        tensors |= {"OUT_END_ID": ends, "OUT_PAD_ID": pads}
        for source, target in _LISTS:
            lists = _rows(encoded[source]) if source in encoded else [[]] * len(prompts)
            tensors[target] = to_word_list(
                [[self._encode(word, special=False) for word in row if word] for row in lists]
            )
        return [pb_utils.Tensor(name, array) for name, array in tensors.items()]

    def _encode(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids

    def _given(self, request: Any, name: str, count: int) -> NDArray[np.int32]:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None:
            given: NDArray[np.int32] = tensor.as_numpy().astype(np.int32)
            return given
        return np.full((count, 1), self._end if name == "END_ID" else self._pad, np.int32)


class PythonLanguageModel:
    """Token ids to token ids, as TensorRT-LLM's ``tensorrt_llm``, by a model of transformers in a `BatchingEngine`."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model and start the engine."""
        config, given = json.loads(args["model_config"]), parameters(args)
        gpu = args["model_instance_kind"] == "GPU"
        device = f"cuda:{args['model_instance_device_id']}" if gpu else "cpu"
        model, self._tokenizer = load_model(given["model"], device=device, dtype=given["dtype"])  # type: ignore[arg-type]
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._exclude = given["exclude_input_in_output"] == "true"
        self._most_beams = int(given["max_beam_width"])
        self._context = context_of(model, self._tokenizer)
        self._vocabulary = model.get_input_embeddings().num_embeddings
        self._gauges = self._make_gauges(config["name"], args["model_version"])
        self._engine = BatchingEngine(model, self._decode, most=int(given["max_num_sequences"]), note=self._note)

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        """Decoupled: responses as texts are made. Otherwise one response a request, all made together."""
        replies = [_Reply(request, decoupled=self._decoupled) for request in requests]
        for request, reply in zip(requests, replies):
            self._start(request, reply)
        return None if self._decoupled else [reply.wait() for reply in replies]

    def finalize(self) -> None:
        """End the texts under way."""
        self._engine.close()

    def _start(self, request: Any, reply: _Reply) -> None:
        try:
            arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            if arrays.get("stop", np.zeros(1)).any():
                if request.request_id():
                    self._engine.stop(request.request_id())
                reply.send(None, final=True)
                return
            tasks = read_tasks(
                arrays,
                id=request.request_id(),
                reply=reply,
                decode=self._decode,
                context=self._context,
                vocabulary=self._vocabulary,
                most_beams=self._most_beams,
                exclude=self._exclude,
                streams=self._decoupled,
            )
        except (VlmsearchError, ValueError) as exc:
            reply.fail(str(exc), pb_utils.TritonError.INVALID_ARG)
            return
        for task in tasks:
            self._engine.submit(task)

    def _decode(self, tokens: Sequence[int]) -> str:
        return decode_tokens(self._tokenizer, tokens)

    def _make_gauges(self, model: str, version: str) -> list[Any]:
        """Return the metric that TensorRT-LLM has too: requests by what they are doing."""
        self._family = pb_utils.MetricFamily(
            name=_FAMILY, description="TRT LLM request metrics", kind=pb_utils.MetricFamily.GAUGE
        )
        labels = {"model": model, "version": version}
        return [self._family.Metric(labels=labels | {"request_type": kind}) for kind in ("active", "waiting")]

    def _note(self, active: int, waiting: int) -> None:
        for gauge, value in zip(self._gauges, (active, waiting)):
            gauge.set(value)


class PostprocessingModel:
    """Token ids to text, as TensorRT-LLM's ``postprocessing``."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer, and see whether it drops the space before a first word."""
        self._tokenizer = load_tokenizer(parameters(args)["tokenizer_dir"])
        word = self._tokenizer(_WORD, add_special_tokens=False)["input_ids"]
        self._before = [] if decode_tokens(self._tokenizer, word) == _WORD else word
        self._dropped = len(decode_tokens(self._tokenizer, self._before))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tokens, lengths = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("TOKENS_BATCH", "SEQUENCE_LENGTH")
        )
        texts = [
            [self._decode(row[:length]) for row, length in zip(beams, sizes)] for beams, sizes in zip(tokens, lengths)
        ]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))])

    def _decode(self, tokens: NDArray[np.int32]) -> bytes:
        """Return the text of one beam; of a streamed piece, with the space before it."""
        text = decode_tokens(self._tokenizer, [*self._before, *tokens.tolist()])
        return text[self._dropped :].encode()


class _Reply:
    """The way back to the client of one request."""

    def __init__(self, request: Any, *, decoupled: bool) -> None:
        self._request = request
        self._sender = request.get_response_sender() if decoupled else None
        self._done = threading.Event()
        self._response: Any = None
        self._closed = False

    def is_cancelled(self) -> bool:
        return bool((self._sender or self._request).is_cancelled())

    def send(self, arrays: Arrays | None, *, final: bool) -> None:
        """Send one response, none where ``arrays`` is None; nothing after the final one."""
        tensors = None if arrays is None else [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        self._put(None if tensors is None else pb_utils.InferenceResponse(tensors), final=final)

    def fail(self, message: str, code: Any = None) -> None:
        """Send an error, which is the end."""
        error = pb_utils.TritonError(message, code or pb_utils.TritonError.INTERNAL)
        self._put(pb_utils.InferenceResponse(error=error), final=True)

    def wait(self) -> Any:
        """Return the response of a model that is not decoupled."""
        self._done.wait()
        return self._response or pb_utils.InferenceResponse(error=pb_utils.TritonError("the text was ended"))

    def _put(self, response: Any, *, final: bool) -> None:
        if self._closed:
            return
        self._closed = final
        if self._sender is None:
            self._response = response or self._response
            if final:
                self._done.set()
            return
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0
        if response is None:
            self._sender.send(flags=flags)
        else:
            self._sender.send(response, flags)


def _rows(array: NDArray[Any]) -> list[list[str]]:
    """Return rows of strings; ValueError for bytes that are not UTF-8."""
    return [[item.decode() for item in row] for row in array.reshape(len(array), -1)]
