"""A stand-in for TensorRT-LLM's engine, which says the prompt again and again, from the seed's token on.

As the original, it streams the new tokens alone and repeats the prompt before a whole answer, unless it is told not to;
fills rows up with the padding beyond their lengths; and ends with its end token or a list of others, each included.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.without = config["parameters"]["exclude_input_in_output"]["string_value"] == "true"

    def execute(self, requests):
        answers = [self._answer(request) for request in requests]
        if not self.decoupled:
            return [responses[-1] for responses in answers]
        for request, responses in zip(requests, answers):
            sender = request.get_response_sender()
            for response in responses[:-1]:
                sender.send(response)
            sender.send(responses[-1], FINAL)
        return None

    def _answer(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if given.get("stop", np.zeros(1)).any():
            return [_response([[]], 0)]
        prompt, length = given["input_ids"][0].tolist(), int(given["input_lengths"].ravel()[0])
        assert len(prompt) == length
        beams = [
            self._beam(prompt, given, first) for first in range(int(given.get("beam_width", np.ones(1)).ravel()[0]))
        ]
        pad = int(given["pad_id"].ravel()[0])
        if given.get("streaming", np.zeros(1)).any():
            assert len(beams) == 1
            return [_response([beams[0][at : at + 2]], pad) for at in range(0, len(beams[0]), 2)]
        return [_response([beam if self.without else prompt + beam for beam in beams], pad)]

    def _beam(self, prompt, given, first):
        bad, stops = (_lists(given.get(f"{name}_words_list")) for name in ("bad", "stop"))
        stops.append([int(given["end_id"].ravel()[0])])
        ids, at = [], first + int(given.get("seed", np.zeros(1)).ravel()[0])
        while len(ids) < int(given["request_output_len"].ravel()[0]) and not any(_ends(ids, stop) for stop in stops):
            token, at = prompt[at % len(prompt)], at + 1
            if not any(_ends([*ids, token], word) for word in bad):
                ids.append(token)
        return ids


def _lists(array):
    """The lists of an array [1, 2, N]: all ids, and where each list ends."""
    if array is None:
        return []
    ids, stops = array[0].tolist()
    stops = [stop for stop in stops if stop >= 0]
    return [ids[begin:end] for begin, end in zip([0, *stops], stops)]


def _ends(ids, word):
    return ids[-len(word) :] == word


def _response(rows, pad):
    lengths = np.array([[len(row) for row in rows]], np.int32)
    filled = np.full((1, len(rows), lengths.max() + 3), pad, np.int32)
    for place, row in enumerate(rows):
        filled[0, place, : len(row)] = row
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("output_ids", filled), pb_utils.Tensor("sequence_length", lengths)]
    )
