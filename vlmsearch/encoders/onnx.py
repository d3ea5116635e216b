"""ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from vlmsearch._util.gpu import Provider
from vlmsearch._util.machine import available_cores
from vlmsearch.encoders.base import BatchSizes
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import (
    UNPADDED,
    Bundle,
    Precision,
    Tower,
    cache_folder,
    find_bundles,
    model_file,
)
from vlmsearch.models.inputs import BatchLimits, Ids, Pixels
from vlmsearch.models.session import (
    IMAGE_SHARE,
    TOKENS_AT_ONCE,
    Arrays,
    CoresSession,
    OnnxSession,
    Place,
    SessionProfile,
    check_threads,
    gpu_index,
)
from vlmsearch.types import Vectors

_BATCH, _GPU_BATCH = 32, 128
_USUAL_LENGTH = 32
_CHARACTERS = 4
"""How many characters a token has, about, in English."""


class OnnxEncoder(BundleEncoder):
    """Bundles on ONNX Runtime: ``onnx:demo``, ``onnx:NAME``, ``onnx:ORG/NAME`` of the hub or ``onnx:/folder``.

    A ``+`` joins models: one of images and one of texts, as ``onnx:google/siglip2-base-patch16-224+all-minilm-l6-v2``.

    ``device`` is ``cpu``, ``cuda`` or ``cuda:N``; ModelUnavailableError says why a GPU cannot be used, and what mends
    it. ``provider`` is what runs a model on a GPU: CUDA, or TensorRT inside ONNX Runtime, which compiles the model
    when it is first used and keeps the engine. ``precision`` is that of the models: where the bundles have it, INT8 on
    the CPU by default and FP16 on a GPU, else float32. ``threads`` is how many cores a batch is spread over (all that
    the process may use by default), ``batch_size`` the most items that are computed at once (32, on a GPU 128).
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
        provider: Provider = "cuda",
        dim: int | None = None,
    ) -> None:
        check_threads(threads)
        cores, gpu = threads or available_cores(), gpu_index(device)
        bundles = find_bundles(location)
        size = batch_size if batch_size is not None else _BATCH if gpu is None else _GPU_BATCH
        super().__init__(bundles, batch_size=size, workers=cores, dim=dim)
        self.device = device
        self.precision = precision or _usual_precision(bundles, "int8" if gpu is None else "fp16")
        file = _file(self.precision, None if gpu is None else provider)
        if gpu is None:
            self.text_limits = BatchLimits(size, tokens=TOKENS_AT_ONCE, cores=cores, unpadded=UNPADDED)
            characters = _CHARACTERS * TOKENS_AT_ONCE * cores
            self.batch_sizes = BatchSizes(min(size, IMAGE_SHARE * cores), size, characters)
        self._sessions = {
            (bundle.name, tower): _on_cpu(bundle, tower, file, cores)
            if gpu is None
            else _on_gpu(bundle, tower, file, Place(cores, gpu, provider, precision=self.precision), size)
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
        """Vectors of each batch of token ids and their mask, in order; on a CPU each core computes a batch."""
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
    return CoresSession(partial(bundle.model, tower, file), _named(bundle, tower), threads=cores)


def _on_gpu(bundle: Bundle, tower: Tower, file: Precision, place: Place, most: int) -> OnnxSession:
    model = bundle.model(tower, file)
    if place.provider == "tensorrt":  # which finds an engine by the graph's names, whatever the weights and scales are
        digest = bundle.files[model_file(tower, file)].sha256[:32]
        cache = cache_folder() / "onnxruntime" / digest / f"{tower}-{place.precision}-{most}"
        place = replace(place, profile=_profile(bundle, tower, most), cache=cache)
    return OnnxSession(model, place, _named(bundle, tower))


def _named(bundle: Bundle, tower: Tower) -> str:
    return f"{bundle.name}'s {tower} tower"


def _usual_precision(bundles: Sequence[Bundle], wanted: Literal["int8", "fp16"]) -> Literal["int8", "fp32", "fp16"]:
    return wanted if all(wanted in bundle.precisions for bundle in bundles) else "fp32"


def _file(precision: Literal["int8", "fp32", "fp16"], provider: Provider | None) -> Precision:
    """Return the precision of the files to load: INT8 on a GPU is the model with explicit quantisation."""
    if precision == "int8" and provider == "cuda":
        raise ConfigError(
            "ONNX Runtime's CUDA provider has no INT8: use precision=fp16, provider=tensorrt or the encoder tensorrt:"
        )
    return "qdq" if precision == "int8" and provider else precision


def _profile(bundle: Bundle, tower: Tower, most: int) -> SessionProfile:
    sizes = (1, min(_BATCH, most), most)
    if tower == "image" and bundle.preprocess:
        side = bundle.preprocess.size
        least, usual, greatest = ((size, side, side, 3) for size in sizes)
        return SessionProfile({"pixels": (least, usual, greatest)})
    longest = bundle.text.fill or bundle.text.max_tokens
    shortest = bundle.text.fill or len(bundle.text.prefix) + len(bundle.text.suffix)
    lengths = (max(shortest, 1), min(max(_USUAL_LENGTH, shortest), longest), longest)
    few, some, many = zip(sizes, lengths)
    return SessionProfile(dict.fromkeys(("input_ids", "attention_mask"), (few, some, many)))
