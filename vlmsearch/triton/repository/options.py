"""What can be chosen about a model repository, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vlmsearch.errors import ConfigError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.models.bundle import Precision, Tower
from vlmsearch.triton.repository.releases import DEFAULT_RELEASE, NEWEST_RELEASE, Release, find_release

Platform = Literal["python", "onnxruntime", "tensorrt"]
Runtime = Literal["onnxruntime", "tensorrt"]
Device = Literal["cpu", "gpu"]
AcceleratorPrecision = Literal["FP32", "FP16", "BF16", "INT8"]

INT32, UINT32, INT64, UINT64 = 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1
"""The largest numbers that fields of Triton's messages hold."""


@dataclass(frozen=True)
class Queue:
    """How requests wait and are put together, in every model.

    ``delay_us`` is how long a batch may wait to become one of the ``preferred`` sizes (or full), in microseconds.
    ``limit`` is how many requests may wait (0: any number), ``timeout_ms`` for how long (0: for ever, unless the
    request says otherwise). With ``priorities``, requests are of priority 1 (first) to that number.
    """

    preferred: tuple[int, ...] = ()
    delay_us: int = 0
    limit: int = 1024
    timeout_ms: int = 0
    priorities: int = 0


@dataclass(frozen=True)
class RepoOptions:
    """How a repository is made.

    ``runtime`` is what runs the towers inside the Python backend: ONNX Runtime, or TensorRT with an engine.
    ``decode`` is where JPEGs are decoded; on a GPU by nvImageCodec. ``release`` is by default that of the server which
    `vlmsearch triton install` brings for ``platform`` python, and the newest for the others, which it cannot run.
    ``precision`` defaults to INT8 on the CPU and float32 on a GPU; without it an engine is the one that was built.
    ``instances`` and ``threads`` (0: all cores) are a tower's; of a tower that decodes on the GPU there are three
    unless told, so that one decodes while another computes. ``accelerate`` compiles with TensorRT inside ONNX
    Runtime, in the precision it names. ``versions`` is ``latest:N``, ``all`` or ``specific:N,M``; ``version`` is
    the number that the models are written as. ``cuda_graphs`` are for TensorRT plans, ``max_inflight`` limits the
    ensemble (0: no limit), ``image_limits`` the images that it decodes, ``max_text_bytes`` all texts of a request
    together. ``reranker`` is the name or folder of a re-ranker that is served as well, on the CPU.
    """

    platform: Platform = "python"
    runtime: Runtime = "onnxruntime"
    decode: Device = "cpu"
    release: str | None = None
    precision: Precision | None = None
    device: Device | None = None
    gpus: tuple[int, ...] = ()
    max_batch_size: int = 64
    queue: Queue = Queue()
    instances: int | None = None
    threads: int = 0
    accelerate: AcceleratorPrecision | None = None
    warmup: bool = True
    response_cache: bool = False
    versions: str = "latest:1"
    version: int = 1
    cuda_graphs: bool = True
    max_inflight: int = 0
    image_limits: ImageLimits = SERVER_LIMITS
    max_text_bytes: int = 256 * 2**10
    reranker: str = ""

    @property
    def found_release(self) -> Release:
        """Return the release that it is for."""
        return find_release(self.release or (DEFAULT_RELEASE if self.platform == "python" else NEWEST_RELEASE))

    @property
    def engines(self) -> bool:
        """Return whether the towers are TensorRT engines."""
        return self.platform == "tensorrt" or self.runtime == "tensorrt"

    @property
    def decodes_in_tower(self) -> bool:
        """Return whether the image tower decodes by itself, so that pixels stay on the GPU."""
        return self.decode == "gpu" and self.runtime == "tensorrt"

    def found_instances(self, tower: Tower) -> int:
        """Return how often a tower is there on each device."""
        return self.instances or (3 if self.decodes_in_tower and tower == "image" else 1)

    @property
    def found_device(self) -> Device:
        """Return where the towers run."""
        return self.device or ("gpu" if self.engines or self.accelerate else "cpu")

    @property
    def found_precision(self) -> Precision:
        """Return the precision of the ONNX models."""
        return self.precision or ("int8" if self.found_device == "cpu" else "fp32")


def check_options(options: RepoOptions) -> None:
    """Raise ConfigError for the first choice that cannot be."""
    _ = options.found_release
    check_numbers(_numbers(options))
    rules = (
        (options.max_text_bytes >= 1, "`max_text_bytes` is at least 1"),
        (
            all(1 <= size <= options.max_batch_size for size in options.queue.preferred),
            f"`preferred` is from 1 to `max_batch_size` ({options.max_batch_size})",
        ),
        (not options.engines or options.found_device == "gpu", "platform tensorrt runs on a GPU"),
        (
            options.runtime == "onnxruntime" or options.platform == "python",
            "`runtime=tensorrt` is for `platform=python`; `platform=tensorrt` runs engines in Triton's own backend",
        ),
        (
            not options.accelerate or (options.platform == "onnxruntime" and options.found_device == "gpu"),
            "`accelerate` is TensorRT inside ONNX Runtime: it needs `platform=onnxruntime` and a GPU",
        ),
        (
            not options.gpus or "gpu" in (options.found_device, options.decode),
            "`gpus` needs `device=gpu`",
        ),
        (
            options.accelerate != "INT8" or options.found_precision == "qdq",
            "`accelerate=INT8` needs a model with explicit quantisation: `precision=qdq`",
        ),
    )
    for holds, message in rules:
        if not holds:
            raise ConfigError(message)


def check_numbers(numbers: Iterable[tuple[str, int, int, int]]) -> None:
    """Raise ConfigError for the first number, by its name, that is less than its least or more than its most."""
    for name, number, least, most in numbers:
        if not least <= number <= most:
            bound = f"at least {least}" if number < least else f"at most {most}"
            raise ConfigError(f"`{name}` is {bound}, not {number}")


def _numbers(options: RepoOptions) -> tuple[tuple[str, int, int, int], ...]:
    queue = options.queue
    return (
        ("max_batch_size", options.max_batch_size, 1, INT32),
        ("instances", 1 if options.instances is None else options.instances, 1, INT32),
        ("threads", options.threads, 0, INT32),
        ("version", options.version, 1, INT64),
        ("max_inflight", options.max_inflight, 0, UINT32),
        ("delay_us", queue.delay_us, 0, UINT64),
        ("limit", queue.limit, 0, UINT32),
        ("timeout_ms", queue.timeout_ms, 0, UINT64 // 1000),
        ("priorities", queue.priorities, 0, UINT64),
        *(("gpus", gpu, 0, INT32) for gpu in options.gpus),
    )
