"""What can be chosen about a model repository, checked before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vlmsearch.errors import ConfigError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.models.bundle import Precision, Tower
from vlmsearch.triton.repository.releases import DEFAULT_RELEASE, NEWEST_RELEASE, Release, find_release

Platform = Literal["python", "onnxruntime", "tensorrt"]
Runtime = Literal["onnxruntime", "tensorrt"]
Device = Literal["cpu", "gpu"]

_WHOLE = re.compile(r"\d+\.\d+\.\d+(\.\d+)?")
_MAX_NUMBER = 2**31 - 1
"""The largest number that every field of Triton's messages holds."""


@dataclass(frozen=True)
class Queue:
    """The queue and the batching of every model.

    ``delay_us`` is how long a batch may wait to become one of the ``preferred`` sizes (or full), in microseconds.
    ``limit`` is how many requests may wait (0: any number), ``timeout_ms`` for how long (0: for ever, unless the
    request says otherwise).
    """

    preferred: tuple[int, ...] = ()
    delay_us: int = 0
    limit: int = 1024
    timeout_ms: int = 0


@dataclass(frozen=True)
class RepoOptions:
    """Choices about a repository.

    ``runtime`` is what runs the towers inside the Python backend: ONNX Runtime, or TensorRT with an engine.
    ``decode`` is where JPEGs are decoded; on a GPU by nvImageCodec. ``release`` is by default that of the server which
    `vlmsearch triton install` brings for ``platform`` python, and the newest for the others, which it cannot run.
    ``tensorrt`` is the version of TensorRT in its container, if it is not known: a plan is for one version alone.
    ``precision`` defaults to INT8 on the CPU and float32 on a GPU; without it an engine is the one that was built.
    ``instances`` and ``threads`` (0: all cores) are a tower's; of a tower that decodes on the GPU there are three
    unless told, so that one decodes while another computes. ``image_limits`` are those of the images that are
    decoded, ``max_text_bytes`` that of all texts of a request together. ``reranker`` is the name or folder of a
    re-ranker that is served as well, on the CPU.
    """

    platform: Platform = "python"
    runtime: Runtime = "onnxruntime"
    decode: Device = "cpu"
    release: str | None = None
    tensorrt: str = ""
    precision: Precision | None = None
    device: Device | None = None
    gpus: tuple[int, ...] = ()
    max_batch_size: int = 64
    queue: Queue = Queue()
    instances: int | None = None
    threads: int = 0
    warmup: bool = True
    response_cache: bool = False
    image_limits: ImageLimits = SERVER_LIMITS
    max_text_bytes: int = 256 * 2**10
    reranker: str = ""

    @property
    def found_release(self) -> Release:
        """Return the release that it is for."""
        return find_release(self.release or (DEFAULT_RELEASE if self.platform == "python" else NEWEST_RELEASE))

    @property
    def found_tensorrt(self) -> str:
        """Return the version of TensorRT in its container.

        ConfigError where it is not known and was not given.
        """
        release = self.found_release
        version = self.tensorrt.partition("+")[0] or release.tensorrt  # "+cuda13.0" is how containers write it
        if not version:
            raise ConfigError(
                f"the TensorRT of Triton {release.name} is not known here, and a plan is for one version alone: give "
                f"`tensorrt`, which `docker run --rm {release.image} printenv TRT_VERSION` prints"
            )
        return version

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
        return self.device or ("gpu" if self.engines else "cpu")

    @property
    def found_precision(self) -> Precision:
        """Return the precision of the ONNX models."""
        return self.precision or ("int8" if self.found_device == "cpu" else "fp32")


def check_options(options: RepoOptions) -> None:
    """Raise ConfigError for the first choice that cannot be."""
    _ = options.found_release
    queue = options.queue
    check_numbers(
        ("max_batch_size", options.max_batch_size, 1),
        ("instances", 1 if options.instances is None else options.instances, 1),
        ("threads", options.threads, 0),
        ("max_text_bytes", options.max_text_bytes, 1),
        ("delay_us", queue.delay_us, 0),
        ("limit", queue.limit, 0),
        ("timeout_ms", queue.timeout_ms, 0),
        *(("gpus", gpu, 0) for gpu in options.gpus),
    )
    rules = (
        (
            all(1 <= size <= options.max_batch_size for size in queue.preferred),
            f"`preferred` is from 1 to `max_batch_size` ({options.max_batch_size})",
        ),
        (not options.engines or options.found_device == "gpu", "platform tensorrt runs on a GPU"),
        (
            options.runtime == "onnxruntime" or options.platform == "python",
            "`runtime=tensorrt` is for `platform=python`; `platform=tensorrt` runs engines in Triton's own backend",
        ),
        (not options.gpus or "gpu" in (options.found_device, options.decode), "`gpus` needs `device=gpu`"),
    )
    for holds, message in rules:
        if not holds:
            raise ConfigError(message)
    if options.platform == "tensorrt" and not _WHOLE.fullmatch(options.found_tensorrt):
        raise ConfigError(f"`tensorrt` is a whole version, such as 10.11.0.33, not {options.tensorrt!r}")


def check_numbers(*numbers: tuple[str, int, int]) -> None:
    """Raise ConfigError for the first number below its minimum or above 2^31 - 1.

    Each has its name before it and its minimum after it.

    Each has its name before it.
    """
    for name, number, minimum in numbers:
        if not minimum <= number <= _MAX_NUMBER:
            bound = f"at least {minimum}" if number < minimum else f"at most {_MAX_NUMBER}"
            raise ConfigError(f"`{name}` is {bound}, not {number}")
