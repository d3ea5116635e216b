"""Encoded images to pixels, or to vectors where a plan lies beside this file.

An image that cannot be used has a status, and its batch mates have what they came for.
"""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.media.images import Preprocess
from vlmsearch.media.limits import ImageLimits
from vlmsearch.triton.backend.memory import keep_memory
from vlmsearch.triton.client.protocol import EMBEDDING, ENCODED, PIXELS, STATUS, refusal


class TritonPythonModel:
    """Triton's interface to an `ImageStage`, a `GpuImageStage` or an `EncodedTower`."""

    def initialize(self, args):
        """Read the parameters of config.pbtxt."""
        keep_memory()
        given = {name: value["string_value"] for name, value in json.loads(args["model_config"])["parameters"].items()}
        preprocess = Preprocess(**json.loads(given["preprocess"]))
        how = {"limits": ImageLimits(**json.loads(given["image_limits"])), "threads": int(given["threads"]) or None}
        plan, device = Path(__file__).parent / "model.plan", int(args["model_instance_device_id"])
        self.output = EMBEDDING if plan.exists() else PIXELS
        if plan.exists():
            from vlmsearch.triton.backend.encoded_tower import EncodedTower

            self.stage = EncodedTower(plan, preprocess, device=device, **how)
            return
        if args["model_instance_kind"] == "GPU":
            from vlmsearch.triton.backend.gpu_stage import GpuImageStage

            self.stage = GpuImageStage(preprocess, device=device, **how)
            return
        from vlmsearch.triton.backend.stages import ImageStage

        self.stage = ImageStage(preprocess, **how)

    def execute(self, requests):
        """One response a request, all their images taken together."""
        batches = [pb_utils.get_input_tensor_by_name(request, ENCODED).as_numpy()[:, 0] for request in requests]
        rows, statuses = self.stage.run([image for batch in batches for image in batch])
        responses, start = [], 0
        for request, batch in zip(requests, batches):
            stop = start + len(batch)
            responses.append(self._respond(request, rows[start:stop], statuses[start:stop]))
            start = stop
        return responses

    def finalize(self):
        """Stop the threads, and free what the GPU holds."""
        self.stage.close()

    def _respond(self, request, rows, statuses):
        message = refusal(statuses, request.parameters())
        if message:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        encoded = np.array([status.encode() for status in statuses], dtype=np.object_)
        tensors = [pb_utils.Tensor(self.output, rows), pb_utils.Tensor(STATUS, encoded[:, None])]
        return pb_utils.InferenceResponse(tensors)
