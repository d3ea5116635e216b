"""A stand-in for TensorRT-LLM's llmapi model: its tensors, whole texts so far in a stream, and a real GPT-2.

As the original, it has its policy from model.yaml where Triton lets models complete their configuration. It notes how
many tokens each text took.
"""

import json
import threading
from pathlib import Path

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
PARAM = "sampling_param_"
ENDLESS = 100
"""More tokens than these are made in any case, unless they are stopped."""


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        file = Path(__file__).with_name("model.yaml")
        given = yaml.safe_load(file.read_text())["triton_config"] if file.exists() else {}
        if given:
            config.set_max_batch_size(given["max_batch_size"])
            config.set_model_transaction_policy({"decoupled": given["decoupled"]})
        return config

    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.model = AutoModelForCausalLM.from_pretrained(BUNDLE, dtype=torch.float32).eval()  # noqa: F821
        self.tokenizer = AutoTokenizer.from_pretrained(BUNDLE)  # noqa: F821
        self.stopped = set()

    def execute(self, requests):
        if not self.decoupled:
            senders = [_Once() for _ in requests]
            for request, sender in zip(requests, senders):
                self._answer(request, sender)
            return [sender.response for sender in senders]
        for request in requests:
            threading.Thread(target=self._answer, args=(request, request.get_response_sender())).start()
        return None

    def _answer(self, request, sender):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if given.get("stop", np.zeros(1)).any():
            self.stopped.add(request.request_id())
            sender.send(flags=FINAL)
            return
        assert given["text_input"].shape == (1,), "the real one takes a single prompt"
        if given.get(f"{PARAM}top_k", np.ones(1))[0] != 1:
            message = "seed {} temperature {:.1f}".format(
                *(given[f"{PARAM}{name}"][0] for name in ("seed", "temperature"))
            )
            sender.send(_text(message), FINAL)
            return
        self._write(given, request, sender)

    def _write(self, given, request, sender):
        """The likeliest text, token by token."""
        prompt = given["text_input"][0].decode()
        shown = "" if given.get(f"{PARAM}exclude_input_from_output", np.zeros(1))[0] else prompt
        stops = [word.decode() for word in given.get(f"{PARAM}stop", ())]
        ids = self.tokenizer(prompt)["input_ids"]
        start = len(ids)
        most = int(given[f"{PARAM}max_tokens"][0])
        for _ in range(most):
            with torch.inference_mode():
                token = int(self.model(torch.tensor([ids])).logits[0, -1].argmax())
            ended = token == self.tokenizer.eos_token_id and most <= ENDLESS
            if ended or request.request_id() in self.stopped:
                break
            ids.append(token)
            text = self.tokenizer.decode(ids[start:])
            if any(word in text for word in stops):
                break
            if given.get("streaming", np.zeros(1))[0]:
                sender.send(_text(shown + text))
        with Path(__file__).with_name("made").open("a") as notes:
            notes.write(f"{len(ids) - start}\n")
        sender.send(_text(shown + self.tokenizer.decode(ids[start:])), FINAL)


class _Once:
    """Keeps the last response."""

    def send(self, response=None, flags=0):
        self.response = response or _text("")


def _text(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text.encode()], np.object_))])
