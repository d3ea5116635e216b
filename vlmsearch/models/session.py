"""One ONNX model on ONNX Runtime: on the cores of a CPU, or bound to a GPU."""

from __future__ import annotations

import contextlib
import io
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.closable import Closable
from vlmsearch._util.ort import ort
from vlmsearch._util.threads import Workers
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError
from vlmsearch.models.mapped import MappedModel
from vlmsearch.types import Vectors

Arrays = Mapping[str, NDArray[np.generic]]
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_WARNING, _FATAL = 2, 4
_MAX_THREADS = 1024
_NO_FOLDER = "/dev/null/models-are-one-file"


def check_threads(threads: int | None) -> None:
    """ConfigError for a number of threads that nobody means."""
    check_bounds(1, _MAX_THREADS, threads=threads)


def gpu_index(device: str) -> int | None:
    """Return the number of the GPU that ``cuda`` or ``cuda:N`` names, None for ``cpu``.

    ConfigError for anything else.
    """
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if not match:
        raise ConfigError(f"a device is cpu, cuda or cuda:N, not {device!r}")
    return None if device == "cpu" else int(match[1] or 0)


@dataclass(frozen=True)
class Place:
    """A place to run a model: ``threads`` of the CPU, or the GPU ``index``."""

    threads: int
    index: int | None = None

    @property
    def providers(self) -> list[tuple[str, dict[str, str]]]:
        """Return ONNX Runtime's providers with their options, most preferred first."""
        cuda = {
            "device_id": str(self.index),
            "use_tf32": "0",  # float32 means float32; FP16 is there for speed
            "cudnn_conv_algo_search": "HEURISTIC",  # the exhaustive search would begin again for every new batch size
        }
        return [(_CPU, {})] if self.index is None else [(_CUDA, cuda), (_CPU, {})]


Model = bytes | str | MappedModel
"""A model: its file, the path of that, or the file with its large tensors left on the disk."""


def session_file(options: ort.SessionOptions, model: Model) -> bytes | str:
    """Return the argument of ONNX Runtime for a model.

    One in memory reads other files in no place but its own folder.
    """
    if isinstance(model, str):
        return model
    folder = str(model.folder) if isinstance(model, MappedModel) else _NO_FOLDER
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return model.graph if isinstance(model, MappedModel) else model


class OnnxSession:
    """A model ready to run, from several threads if need be.

    ``name`` is what errors call it.

    ModelUnavailableError says why a GPU that was asked for was not bound, and what mends it: there is no silent
    fall to the CPU.
    """

    def __init__(self, model: Model, place: Place, name: str) -> None:
        self._name, self._index = name, place.index
        options = ort.SessionOptions()
        options.intra_op_num_threads = place.threads
        options.log_severity_level = 3 if place.index is None else _FATAL  # a provider that fails is diagnosed here
        # Threads that wait actively between batches would take the cores from those that decode the next one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = session_file(options, model)
        if place.index is not None:
            if _CUDA not in ort.get_available_providers():
                raise _not_bound(place.index, name, f"this ONNX Runtime has no {_CUDA}")
            _preload()
        try:
            with _quiet(place.index is not None):
                self._session = ort.InferenceSession(file, options, providers=place.providers, enable_fallback=0)
        except Exception as exc:
            if _NO_FOLDER in str(exc) or "xternal data" in str(exc):
                raise ConfigError(f"{name} reads its weights from other files, which no bundle does") from exc
            if place.index is not None:
                raise _not_bound(place.index, name, str(exc)) from exc
            raise BackendError(f"ONNX Runtime cannot load {name}: {exc}") from exc
        self._output: str = self._session.get_outputs()[0].name
        if place.index is not None and _CUDA not in self.providers:
            raise _not_bound(place.index, name, "")

    @property
    def providers(self) -> tuple[str, ...]:
        """Return the execution providers that are really bound, most preferred first."""
        return tuple(self._session.get_providers())

    def run(self, inputs: Arrays) -> Vectors:
        """Return what the model gives, such as unit vectors: float32 (n, dim); BackendError where it fails."""
        try:
            vectors: Vectors = self._on_gpu(inputs) if self._index is not None else self._on_cpu(inputs)
        except Exception as exc:
            raise BackendError(f"ONNX Runtime failed: {self._name}: {exc}") from exc
        return vectors

    def _on_cpu(self, inputs: Arrays) -> Vectors:
        vectors: Vectors = self._session.run([self._output], dict(inputs))[0]
        return vectors

    def _on_gpu(self, inputs: Arrays) -> Vectors:
        """Inputs go to the GPU and only the vectors come back."""
        binding = self._session.io_binding()
        for name, array in inputs.items():
            given = np.ascontiguousarray(array)
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(given, "cuda", self._index))
        binding.bind_output(self._output, "cuda", self._index)
        self._session.run_with_iobinding(binding)
        vectors: Vectors = binding.get_outputs()[0].numpy()
        return vectors


def _not_bound(index: int, name: str, said: str) -> ModelUnavailableError:
    from vlmsearch._util.gpu import gpu_fault

    fault, mend = gpu_fault(index, said)
    advice = f": {mend}" if mend else ""
    return ModelUnavailableError(f"ONNX Runtime cannot run {name} on GPU {index}: {fault}{advice}")


@contextlib.contextmanager
def _quiet(wanted: bool) -> Iterator[None]:
    """Silence ONNX Runtime while a session is made.

    What it says of providers would come before the diagnosis.
    """
    if not wanted:
        yield
        return
    ort.set_default_logger_severity(_FATAL)
    try:
        yield
    finally:
        ort.set_default_logger_severity(_WARNING)


def _preload() -> None:
    """Load the CUDA and cuDNN that lie in wheels, which the loader would not find."""
    preload = getattr(ort, "preload_dlls", None)
    if preload:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find, which may lie elsewhere
            preload()


IMAGE_SHARE, TOKENS_AT_ONCE = 4, 256
"""Images, and tokens of texts, that one core computes at a time: they fit its cache."""


class CoresSession(Closable):
    """A model on ``threads`` cores, ready to run from several threads; ``load`` gives it.

    A single item is spread over all cores. A batch is dealt out instead, `IMAGE_SHARE` items a core at a time, and of
    several batches each core gets one. So no core waits for the others after every layer. The vectors are the same.
    That takes a second session, from the first such batch on; tensors that stay on the disk are shared.
    """

    def __init__(self, load: Callable[[], Model], name: str, *, threads: int) -> None:
        self._load, self._name, self._threads = load, name, threads
        self._spread = OnnxSession(load(), Place(threads), name)
        self._single: OnnxSession | None = None
        self._lock = threading.Lock()
        self._pool = Workers(threads, name="vlmsearch-onnx", owner=name)

    @property
    def providers(self) -> tuple[str, ...]:
        """Return the execution providers that are really bound."""
        return self._spread.providers

    def run(self, inputs: Arrays) -> Vectors:
        """Return what the model gives, such as unit vectors: float32 (n, dim); BackendError where it fails."""
        count = len(next(iter(inputs.values())))
        if self._threads == 1 or count < 2 * self._threads:
            return self._spread.run(inputs)
        shares = math.ceil(count / (IMAGE_SHARE * self._threads)) * self._threads
        parts = zip(*(np.array_split(array, shares) for array in inputs.values()))
        return np.concatenate(list(self._pool.map(self._one_core().run, (dict(zip(inputs, part)) for part in parts))))

    def run_each(self, batches: Sequence[Arrays]) -> Iterable[Vectors]:
        """Return what the model gives for each of several batches, in order.

        Each core computes one unless there are few.
        """
        if self._threads == 1 or len(batches) < self._threads:
            return map(self.run, batches)
        return self._pool.map(self._one_core().run, batches)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()

    def _one_core(self) -> OnnxSession:
        with self._lock:
            if self._single is None:
                self._single = OnnxSession(self._load(), Place(1), self._name)
            return self._single
