"""Token ids to token ids: the tensors of TensorRT-LLM's ``tensorrt_llm``, and a model of transformers behind them."""

import json
import sys
import threading
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.errors import VlmsearchError
from vlmsearch.generators.local.transformers import context_of, decode_tokens, load_model
from vlmsearch.triton.backend.llm_engine import BatchingEngine
from vlmsearch.triton.backend.llm_requests import read_tasks

FAMILY = "nv_trt_llm_request_metrics"


class TritonPythonModel:
    """Triton's interface to `BatchingEngine`."""

    def initialize(self, args):
        """Load the model and start the engine."""
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        gpu = args["model_instance_kind"] == "GPU"
        device = f"cuda:{args['model_instance_device_id']}" if gpu else "cpu"
        model, self.tokenizer = load_model(given["model"], device=device, dtype=given["dtype"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.exclude = given["exclude_input_in_output"] == "true"
        self.most_beams = int(given["max_beam_width"])
        self.context = context_of(model, self.tokenizer)
        self.vocabulary = model.get_input_embeddings().num_embeddings
        self.gauges = self._gauges(config["name"], args["model_version"])
        self.engine = BatchingEngine(model, self._decode, most=int(given["max_num_sequences"]), note=self._note)

    def execute(self, requests):
        """Decoupled: responses as texts are made. Otherwise one response a request, all made together."""
        replies = [_Reply(request, self.decoupled) for request in requests]
        for request, reply in zip(requests, replies):
            self._start(request, reply)
        return None if self.decoupled else [reply.wait() for reply in replies]

    def finalize(self):
        """End the texts under way."""
        self.engine.close()

    def _start(self, request, reply):
        try:
            arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            if arrays.get("stop", np.zeros(1)).any():
                if request.request_id():
                    self.engine.stop(request.request_id())
                reply.send(None, final=True)
                return
            tasks = read_tasks(
                arrays,
                id=request.request_id(),
                reply=reply,
                decode=self._decode,
                context=self.context,
                vocabulary=self.vocabulary,
                most_beams=self.most_beams,
                exclude=self.exclude,
                streams=self.decoupled,
            )
        except (VlmsearchError, ValueError) as exc:
            reply.fail(str(exc), pb_utils.TritonError.INVALID_ARG)
            return
        for task in tasks:
            self.engine.submit(task)

    def _decode(self, tokens):
        return decode_tokens(self.tokenizer, tokens)

    def _gauges(self, model, version):
        """The metric that TensorRT-LLM has too: requests by what they are doing."""
        self.family = pb_utils.MetricFamily(
            name=FAMILY, description="TRT LLM request metrics", kind=pb_utils.MetricFamily.GAUGE
        )
        labels = {"model": model, "version": version}
        return [self.family.Metric(labels=labels | {"request_type": kind}) for kind in ("active", "waiting")]

    def _note(self, active, waiting):
        for gauge, value in zip(self.gauges, (active, waiting)):
            gauge.set(value)


class _Reply:
    """The way back to the client of one request."""

    def __init__(self, request, decoupled):
        self._request = request
        self._sender = request.get_response_sender() if decoupled else None
        self._done = threading.Event()
        self._response = None
        self._closed = False

    def is_cancelled(self):
        return (self._sender or self._request).is_cancelled()

    def send(self, arrays, *, final):
        """Send one response, none where ``arrays`` is None; nothing after the final one."""
        tensors = None if arrays is None else [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        self._put(None if tensors is None else pb_utils.InferenceResponse(tensors), final=final)

    def fail(self, message, code=None):
        """Send an error, which is the end."""
        error = pb_utils.TritonError(message, code or pb_utils.TritonError.INTERNAL)
        self._put(pb_utils.InferenceResponse(error=error), final=True)

    def wait(self):
        """The response of a model that is not decoupled."""
        self._done.wait()
        return self._response or pb_utils.InferenceResponse(error=pb_utils.TritonError("the text was ended"))

    def _put(self, response, *, final):
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
