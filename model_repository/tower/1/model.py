"""One tower: pixels or token ids to unit vectors. The requests of a batch are computed together."""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.triton.backend.memory import keep_memory
from vlmsearch.triton.client.protocol import EMBEDDING


class TritonPythonModel:
    """Triton's interface to an `EngineTower` or an `OnnxTower`."""

    def initialize(self, args):
        """Load what lies beside this file: a TensorRT plan or an ONNX model."""
        keep_memory()
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.names = [tensor["name"] for tensor in config["input"]]
        folder, device = Path(__file__).parent, int(args["model_instance_device_id"])
        if (folder / "model.plan").exists():
            from vlmsearch.triton.backend.engine_tower import EngineTower

            self.tower = EngineTower(folder / "model.plan", device_id=device)
            return
        from vlmsearch.triton.backend.towers import OnnxTower

        self.tower = OnnxTower(
            folder / "model.onnx",
            device="gpu" if args["model_instance_kind"] == "GPU" else "cpu",
            device_id=device,
            threads=int(given["threads"]) or None,
        )

    def execute(self, requests):
        """One response a request; where a request cannot be computed, the others of its batch still are."""
        given = [
            {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.names}
            for request in requests
        ]
        try:
            vectors = self.tower.run({name: np.concatenate([arrays[name] for arrays in given]) for name in self.names})
        except Exception as exc:
            if len(given) == 1:
                return [_refuse(exc)]
            return [self._alone(arrays) for arrays in given]
        stops = np.cumsum([len(arrays[self.names[0]]) for arrays in given])[:-1]
        return [_response(part) for part in np.split(vectors, stops)]

    def _alone(self, arrays):
        try:
            return _response(self.tower.run(arrays))
        except Exception as exc:
            return _refuse(exc)


def _response(vectors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(EMBEDDING, vectors)])


def _refuse(error):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{error}", pb_utils.TritonError.INVALID_ARG))
