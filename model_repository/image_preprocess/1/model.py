"""Encoded images to pixels. An image that cannot be used has a status, and its batch mates have their pixels."""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.media import Preprocess
from vlmsearch.serving.protocol import ENCODED, PARTIAL, PIXELS, STATUS


class TritonPythonModel:
    """Triton's interface to an `ImageStage` or a `GpuImageStage`."""

    def initialize(self, args):
        """Read the parameters of config.pbtxt."""
        given = {name: value["string_value"] for name, value in json.loads(args["model_config"])["parameters"].items()}
        preprocess = Preprocess(**json.loads(given["preprocess"]))
        limits = {"max_bytes": int(given["max_image_bytes"]), "threads": int(given["threads"]) or None}
        if args["model_instance_kind"] == "GPU":
            from vlmsearch.serving.gpu_stage import GpuImageStage

            self.stage = GpuImageStage(preprocess, device=int(args["model_instance_device_id"]), **limits)
            return
        from vlmsearch.serving.stages import ImageStage

        self.stage = ImageStage(preprocess, **limits)

    def execute(self, requests):
        """One response a request, all their images decoded together."""
        batches = [pb_utils.get_input_tensor_by_name(request, ENCODED).as_numpy()[:, 0] for request in requests]
        pixels, statuses = self.stage.run([image for batch in batches for image in batch])
        responses, start = [], 0
        for request, batch in zip(requests, batches):
            stop = start + len(batch)
            responses.append(_respond(request, pixels[start:stop], statuses[start:stop]))
            start = stop
        return responses

    def finalize(self):
        """Stop the threads."""
        self.stage.close()


def _respond(request, pixels, statuses):
    bad = next((item for item, status in enumerate(statuses) if status), None)
    if bad is not None and not json.loads(request.parameters() or "{}").get(PARTIAL):
        message = f"image {bad}: {statuses[bad]} (with the parameter {PARTIAL} the other images get their vectors)"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
    encoded = np.array([status.encode() for status in statuses], dtype=np.object_)
    return pb_utils.InferenceResponse([pb_utils.Tensor(PIXELS, pixels), pb_utils.Tensor(STATUS, encoded[:, None])])
