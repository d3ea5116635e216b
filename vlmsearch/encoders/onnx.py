"""ONNX Runtime, in process."""

from __future__ import annotations

from typing import Literal

import onnxruntime as ort

from vlmsearch.bundles import Bundle, find_bundles
from vlmsearch.encoders.towers import BundleEncoder, Ids, Pixels, available_cores
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.types import Vectors


class OnnxEncoder(BundleEncoder):
    """Bundles on ONNX Runtime: ``onnx:demo``, ``onnx:NAME`` or ``onnx:/folder``.

    ``precision`` is that of the models, ``threads`` how many cores a batch is spread over (all that the process may
    use by default), ``batch_size`` the most items that are computed at once.
    """

    def __init__(
        self,
        location: str,
        *,
        precision: Literal["int8", "fp32"] = "int8",
        threads: int | None = None,
        batch_size: int = 32,
        device: Literal["cpu"] = "cpu",
    ) -> None:
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is at least 1, not {threads}")
        cores = threads or available_cores()
        super().__init__(find_bundles(location), batch_size=batch_size, workers=cores)
        self.device = device
        self._sessions = {
            (bundle.name, tower): _session(bundle.model(tower, precision), cores, bundle.name)
            for bundle in self.bundles
            for tower in bundle.towers
        }

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that ONNX Runtime really bound, most preferred first."""
        return tuple(next(iter(self._sessions.values())).get_providers())

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels."""
        return self._run(self._sessions[bundle.name, "image"], {"pixels": pixels})

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids."""
        return self._run(self._sessions[bundle.name, "text"], {"input_ids": ids, "attention_mask": mask})

    def _run(self, session: ort.InferenceSession, inputs: dict[str, Pixels | Ids]) -> Vectors:
        try:
            vectors: Vectors = session.run(["embedding"], inputs)[0]
        except Exception as exc:
            raise BackendError(f"ONNX Runtime failed: {exc}") from exc
        return vectors


def _session(model: bytes, threads: int, name: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait actively between batches would take the cores from those that decode the next one.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as exc:
        raise BackendError(f"ONNX Runtime cannot load {name}: {exc}") from exc
