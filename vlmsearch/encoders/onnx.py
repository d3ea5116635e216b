"""ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from vlmsearch._util.machine import available_cores
from vlmsearch.encoders.base import BatchSizes
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import (
    UNPADDED,
    Bundle,
    Precision,
    Tower,
    find_bundles,
)
from vlmsearch.models.inputs import BatchLimits, Ids, Pixels
from vlmsearch.models.session import (
    IMAGE_SHARE,
    TOKENS_AT_ONCE,
    Arrays,
    CoresSession,
    OnnxSession,
    Place,
    check_threads,
    gpu_index,
)
from vlmsearch.types import Vectors

_BATCH, _GPU_BATCH = 32, 128
_CHARACTERS = 4
"""Characters of a token in English, about."""


class OnnxEncoder(BundleEncoder):
    """Bundles on ONNX Runtime: ``onnx:demo``, ``onnx:NAME``, ``onnx:ORG/NAME`` of the hub or ``onnx:/folder``.

    A ``+`` joins models: one of images and one of texts, as ``onnx:google/siglip2-base-patch16-224+all-minilm-l6-v2``.

    ``device`` is ``cpu``, ``cuda`` or ``cuda:N``; ModelUnavailableError says why a GPU cannot be used, and what mends
    it. ``precision`` is that of the models: where the bundles have it, INT8 on
    the CPU by default and FP16 on a GPU, else float32. ``threads`` are the cores for a batch (by default all that
    the process may use). ``batch_size`` is the maximum number of items computed at once (32, on a GPU 128).
    ``dim`` is how many numbers of each vector are kept, for models that were trained to be cut (Matryoshka).
    """

    def __init__(
        self,
        location: str,
        *,
        precision: Literal["int8", "fp32", "fp16"] | None = None,
        threads: int | None = None,
        batch_size: int | None = None,
        device: str = "cpu",
        dim: int | None = None,
    ) -> None:
        check_threads(threads)
        cores, gpu = threads or available_cores(), gpu_index(device)
        bundles = find_bundles(location)
        size = batch_size if batch_size is not None else _BATCH if gpu is None else _GPU_BATCH
        super().__init__(bundles, batch_size=size, workers=cores, dim=dim)
        self.device = device
        self.precision = precision or _usual_precision(bundles, "int8" if gpu is None else "fp16")
        if self.precision == "int8" and gpu is not None:
            raise ConfigError("ONNX Runtime has no INT8 on a GPU: use precision=fp16, or the encoder tensorrt:")
        if gpu is None:
            self.text_limits = BatchLimits(size, tokens=TOKENS_AT_ONCE, cores=cores, unpadded=UNPADDED)
            characters = _CHARACTERS * TOKENS_AT_ONCE * cores
            self.batch_sizes = BatchSizes(min(size, IMAGE_SHARE * cores), size, characters)
        self._sessions = {
            (bundle.name, tower): _on_cpu(bundle, tower, self.precision, cores)
            if gpu is None
            else OnnxSession(bundle.model(tower, self.precision), Place(cores, gpu), _named(bundle, tower))
            for bundle in self.bundles
            for tower in bundle.towers
        }
        self.providers = next(iter(self._sessions.values())).providers
        """The execution providers that ONNX Runtime really bound, most preferred first."""

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels."""
        return self._run(bundle, "image", {"pixels": pixels})

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids."""
        return self._run(bundle, "text", {"input_ids": ids, "attention_mask": mask})

    def run_text_batches(self, bundle: Bundle, batches: Sequence[tuple[Ids, Ids]]) -> Iterable[Vectors]:
        """Yield the vectors of each batch of token ids and their mask, in order. Each core of a CPU computes one."""
        session = self._session(bundle, "text")
        if isinstance(session, OnnxSession):
            return super().run_text_batches(bundle, batches)
        return session.run_each([{"input_ids": ids, "attention_mask": mask} for ids, mask in batches])

    def _session(self, bundle: Bundle, tower: Tower) -> CoresSession | OnnxSession:
        sessions = self._sessions
        self.check_open()
        return sessions[bundle.name, tower]

    def _run(self, bundle: Bundle, tower: Tower, inputs: Arrays) -> Vectors:
        return self._session(bundle, tower).run(inputs)

    def close(self) -> None:
        """Stop the threads, and let go of the models and their memory."""
        super().close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if isinstance(session, CoresSession):
                session.close()


def _on_cpu(bundle: Bundle, tower: Tower, file: Precision, cores: int) -> CoresSession:
    return CoresSession(partial(bundle.mapped, tower, file), _named(bundle, tower), threads=cores)


def _named(bundle: Bundle, tower: Tower) -> str:
    return f"{bundle.name}'s {tower} tower"


def _usual_precision(bundles: Sequence[Bundle], wanted: Literal["int8", "fp16"]) -> Literal["int8", "fp32", "fp16"]:
    return wanted if all(wanted in bundle.precisions for bundle in bundles) else "fp32"
