"""TensorRT engines, in process."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.extras import install_command
from vlmsearch._util.machine import available_cores
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import (
    BackendError,
    ConfigError,
    InvalidInputError,
    MissingDependencyError,
)
from vlmsearch.media.images import read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.bundle import Bundle, Tower, find_builder, find_bundles
from vlmsearch.models.inputs import Ids, Pixels, pad_texts
from vlmsearch.models.recipe import read_batches
from vlmsearch.tensorrt.engine.cuda import find_gpu
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.plans import EnginePrecision, Plan, read_or_discard, read_plan
from vlmsearch.tensorrt.engine.runtime import this_machine
from vlmsearch.types import ImageSource, Vectors

if TYPE_CHECKING:
    from vlmsearch.tensorrt.engine.images import GpuImages

_Key = tuple[str, Tower]
_FEW = 16  # images that the CPU decodes sooner
_HIGHEST_LEVEL = 5
_importing = threading.Lock()


class DecoderFallbackWarning(UserWarning):
    """A warning that the CPU decodes JPEGs, because nvImageCodec cannot."""


class TensorRTEncoder(BundleEncoder):
    """Bundles as TensorRT engines on one GPU: ``tensorrt:default``, ``tensorrt:NAME`` or ``tensorrt:/folder``.

    Engines are built once for this GPU and this TensorRT, and kept. ``precision`` is that of the engines, ``auto`` the
    fastest that is accurate enough. ``profile`` is the smallest, usual and largest batch of a smaller engine, as
    ``1,8,32``, which needs less memory than that of the recipe. ``level`` is TensorRT's optimization level, 0 to 5.
    ``batch_size`` is the maximum number of items that are computed at once, ``contexts`` the number of batches.
    ``decode`` says where JPEGs are decoded: on the CPU or the GPU (``auto``: many, if nvImageCodec is there). ``dim``
    is how many numbers of each vector are kept, for models that were trained to be cut (Matryoshka).

    ModelUnavailableError where there is no GPU or no driver, QualityError where no engine is accurate enough.
    """

    def __init__(
        self,
        location: str,
        *,
        device: int = 0,
        precision: EnginePrecision = "int8",
        profile: str | None = None,
        level: int | None = None,
        batch_size: int = 256,
        contexts: int = 2,
        decode: Literal["auto", "gpu", "cpu"] = "auto",
        dim: int | None = None,
    ) -> None:
        check_counts(contexts=contexts)
        if level is not None and not 0 <= level <= _HIGHEST_LEVEL:
            raise ConfigError(f"level is from 0 to {_HIGHEST_LEVEL}, not {level}")
        self.gpu = find_gpu(device)
        super().__init__(find_bundles(location), batch_size=batch_size, workers=available_cores(), dim=dim)
        self.precision: EnginePrecision = precision
        self._profile = None if profile is None else read_batches(profile)
        if self._profile and batch_size < self._profile[0]:
            raise ConfigError(f"batch_size is at least {self._profile[0]} with profile={profile}, not {batch_size}")
        self._level = level
        self._contexts = contexts
        self._decode = decode
        self._engines: dict[_Key, Engine] = {}
        self._jpegs: GpuImages | None = None
        try:
            for bundle in self.bundles:
                for tower in bundle.towers:
                    self._engines[bundle.name, tower] = self._engine(bundle, tower)
            self._jpegs = self._open_decoder()
        except BaseException:
            self.close()
            raise

    @property
    def engines(self) -> Mapping[_Key, Engine]:
        """Return the engines that are at work, by bundle and tower."""
        return dict(self._engines)

    @property
    def memory(self) -> int:
        """Bytes of GPU memory that the engines hold."""
        return sum(engine.memory for engine in self.engines.values())

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels."""
        return self._engine_of(bundle, "image").run({"pixels": pixels})

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids."""
        longer, seen = pad_texts(ids, mask, bundle.text)
        return self._engine_of(bundle, "text").run({"input_ids": longer, "attention_mask": seen})

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the image space; see `Encoder.encode_images`. The GPU decodes JPEGs if ``decode`` says so."""
        bundle, jpegs = self._picture, self._jpegs
        few = self._decode == "auto" and len(images) < _FEW
        if bundle is None or jpegs is None or few:
            return super().encode_images(images)
        vectors = np.empty((len(images), bundle.space.dim), np.float32)
        engine = self._engine_of(bundle, "image")
        bad: dict[int, InvalidInputError] = {}
        start = 0
        for pixels in jpegs.batches(images, bad):
            stop = start + pixels.shape[0]
            vectors[start:stop] = engine.run_device({"pixels": pixels})
            start = stop
        return self._image_vectors(bundle, np.delete(vectors, list(bad), axis=0) if bad else vectors, bad)

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Return what is left to do with it on the GPU: the bytes of a JPEG, else the image as the model sees it."""
        if self._jpegs is None or not isinstance(image, Path | bytes):
            return super().prepare_image(image, limits)
        from vlmsearch.tensorrt.engine.jpeg import read_header

        data = read_image(image, limits) if isinstance(image, Path) else image
        jpeg = read_header(data) if len(data) <= limits.encoded_bytes else None
        if jpeg and jpeg.width * jpeg.height <= limits.pixels:
            return data
        return super().prepare_image(data, limits)

    def close(self) -> None:
        """Free the GPU's memory, and stop the decoding threads."""
        super().close()
        engines, self._engines = self._engines, {}
        jpegs, self._jpegs = self._jpegs, None
        if jpegs:
            jpegs.close()
        for engine in engines.values():
            engine.close()

    def _engine_of(self, bundle: Bundle, tower: Tower) -> Engine:
        engine = self._engines.get((bundle.name, tower))
        if engine is None:
            raise BackendError("the encoder is closed")
        return engine

    def _engine(self, bundle: Bundle, tower: Tower) -> Engine:
        """Return the engine of a tower, which is built with progress shown where there is none."""
        device, build = self.gpu.index, find_builder("engine")

        def find() -> Plan:
            plan = build(
                bundle, tower, precision=self.precision, profile=self._profile, level=self._level, device=device
            )
            return cast("Plan", plan)

        plan, here = find(), this_machine(device)
        data = read_or_discard(plan, here=here)
        if data is None:
            data = read_plan(find(), here=here)
        return Engine(data, device=device, contexts=self._contexts, max_batch=self._batch_size)

    def _open_decoder(self) -> GpuImages | None:
        if self._decode == "cpu" or self._picture is None or self._picture.preprocess is None:
            return None
        try:
            decoder = _gpu_images()
            return decoder(self._picture.preprocess, pool=self._pool, device=self.gpu.index, batch=self._batch_size)
        except ModuleNotFoundError as exc:
            if self._decode == "gpu":
                raise MissingDependencyError(
                    f"decode=gpu needs nvImageCodec, which is not installed: {install_command('nvimgcodec')}"
                ) from exc
        except BackendError as exc:
            if self._decode == "gpu":
                raise
            warnings.warn(f"JPEGs are decoded on the CPU: {exc}", DecoderFallbackWarning, stacklevel=4)
        return None


def _gpu_images() -> type[GpuImages]:
    """Return what decodes on the GPU; BackendError where nvImageCodec is installed and lacks a library."""
    try:
        with _importing:  # a failed import is no module yet for a thread that waited for it
            from vlmsearch.tensorrt.engine.images import GpuImages
    except ModuleNotFoundError:
        raise
    except ImportError as exc:
        raise BackendError(f"nvImageCodec cannot be loaded: {exc}") from exc
    return GpuImages
