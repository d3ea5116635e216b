"""A stand-in for TensorRT-LLM's llmapi model with pictures, which answers with their number and sizes.

As the original, it reads the input only where it is told that its model is multimodal, takes http and data URLs alone,
fails at what is no image, and streams the whole text so far. It takes three pictures. Who asks for it slowly waits.
"""

import base64
import io
import json
import time

import numpy as np
import PIL.Image
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
MAX_PICTURES = 3


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.is_multimodal = config["parameters"]["multimodal"]["string_value"] == "true"

    def execute(self, requests):
        if not self.decoupled:
            return [self._last(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            last = self._last(request)
            if not last.has_error():
                sender.send(_response(b"It"))
            if b"slowly" in request.inputs()[0].as_numpy()[0]:
                time.sleep(5)
            sender.send(last, FINAL)
        return None

    def _last(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if given.get("stop", np.zeros(1)).any():
            return _response(b"")
        assert given["text_input"].shape == (1,), "the real one takes a single prompt"
        assert given["sampling_param_exclude_input_from_output"].all(), "the real one repeats the prompt"
        urls = given.get("image_url", []) if self.is_multimodal else []
        try:
            sizes = [_open(url.decode()).size for url in urls]
        except (OSError, ValueError) as exc:
            return _failure(exc)
        if len(sizes) > MAX_PICTURES:
            return _failure(f"At most {MAX_PICTURES} image(s) may be provided in one request.")
        places = given["text_input"][0].decode().count("(picture ")
        text = f"It has {len(sizes)} pictures in {places} places: {sizes} [1]."
        return _response(text.encode())


def _open(url):
    if not url.startswith(("http:", "https:", "data:")):
        raise ValueError(f"Unsupported image_url {url[:20]!r}")
    image = PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(";base64,")[2])))
    image.load()
    return image


def _failure(reason):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"Error generating request: {reason}"))


def _response(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text], np.object_))])
