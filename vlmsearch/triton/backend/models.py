"""The models of a repository for Triton's Python backend: tensors in, tensors out.

Importable inside a Triton server alone, which brings ``triton_python_backend_utils``. A ``model.py`` names one of the
classes here `TritonPythonModel`, the interface that Triton asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import open_bundle
from vlmsearch.triton.backend.memory import keep_memory
from vlmsearch.triton.backend.stages import ImageStage, TextStage
from vlmsearch.triton.client.protocol import (
    EMBEDDING,
    ENCODED,
    FINGERPRINT,
    IMAGE,
    MISMATCH,
    NO_IMAGE,
    PIXELS,
    ROLE,
    STATUS,
    TEXT,
    ids_tensor,
    mask_tensor,
    refusal,
    text_model,
    texts_too_large,
    tokens_tensor,
)
from vlmsearch.types import Role, Vectors


class TowerModel:
    """One tower: pixels or token ids to unit vectors. The requests of a batch are computed together."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load what lies beside model.py: a TensorRT plan or an ONNX model."""
        keep_memory()
        self._names = [tensor["name"] for tensor in json.loads(args["model_config"])["input"]]
        folder, device = version_folder(args), int(args["model_instance_device_id"])
        if (folder / "model.plan").exists():
            from vlmsearch.triton.backend.engine import open_engine

            self._run = open_engine(folder / "model.plan", device).run
            return
        from vlmsearch.triton.backend.towers import OnnxTower

        self._run = OnnxTower(
            folder / "model.onnx",
            device="gpu" if args["model_instance_kind"] == "GPU" else "cpu",
            device_id=device,
            threads=int(parameters(args)["threads"]) or None,
        ).run

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request.

        Where a request cannot be computed, the others of its batch still are.
        """
        given = [{name: _array(request, name) for name in self._names} for request in requests]
        try:
            vectors = self._run({name: np.concatenate([arrays[name] for arrays in given]) for name in self._names})
        except Exception as exc:  # noqa: BLE001 - of whatever kind, it is the client's answer
            if len(given) == 1:
                return [refused(exc)]
            return [self._alone(arrays) for arrays in given]
        stops = np.cumsum([len(arrays[self._names[0]]) for arrays in given])[:-1]
        return [self._response(part) for part in np.split(vectors, stops)]

    def _alone(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        try:
            return self._response(self._run(arrays))
        except Exception as exc:  # noqa: BLE001 - as above
            return refused(exc)

    def _response(self, vectors: Vectors) -> Any:
        return pb_utils.InferenceResponse([pb_utils.Tensor(EMBEDDING, vectors)])


class ImageModel:
    """Encoded images to pixels, or to vectors where a plan lies beside model.py.

    An image that cannot be used has a status, and its batch mates have what they came for.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the parameters of config.pbtxt."""
        keep_memory()
        given = parameters(args)
        preprocess = Preprocess(**json.loads(given["preprocess"]))
        limits, threads = ImageLimits(**json.loads(given["image_limits"])), int(given["threads"]) or None
        plan, device = version_folder(args) / "model.plan", int(args["model_instance_device_id"])
        self._output = EMBEDDING if plan.exists() else PIXELS
        self._stage: Any
        if plan.exists():
            from vlmsearch.triton.backend.gpu import EncodedTower

            self._stage = EncodedTower(plan, preprocess, device=device, limits=limits, threads=threads)
        elif args["model_instance_kind"] == "GPU":
            from vlmsearch.triton.backend.gpu import GpuImageStage

            self._stage = GpuImageStage(preprocess, device=device, limits=limits, threads=threads)
        else:
            self._stage = ImageStage(preprocess, limits=limits, threads=threads)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request, all their images taken together."""
        batches = [_array(request, ENCODED)[:, 0] for request in requests]
        rows, statuses = self._stage.run([image for batch in batches for image in batch])
        responses, start = [], 0
        for request, batch in zip(requests, batches):
            stop = start + len(batch)
            if batch[0].startswith(NO_IMAGE):
                responses.append(refused(batch[0][len(NO_IMAGE) :].decode(errors="replace")))
            else:
                responses.append(self._respond(request, rows[start:stop], statuses[start:stop]))
            start = stop
        return responses

    def finalize(self) -> None:
        """Stop the threads, and free what the GPU holds."""
        self._stage.close()

    def _respond(self, request: Any, rows: NDArray[Any], statuses: Sequence[str]) -> Any:
        message = refusal(statuses, request.parameters())
        if message:
            return refused(message)
        encoded = np.array([status.encode() for status in statuses], dtype=np.object_)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(self._output, rows), pb_utils.Tensor(STATUS, encoded[:, None])]
        )


class TextModel:
    """UTF-8 texts to the token ids of every text tower; encoded images are handed on."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the tokenizers that lie beside model.py."""
        keep_memory()
        given = parameters(args)
        self._fingerprint, self._max_bytes = given[FINGERPRINT], int(given["max_text_bytes"])
        folder = version_folder(args) / "bundles"
        bundles = [open_bundle(folder / name) for name in json.loads(given["bundles"])]
        self._stages = {bundle.space.name: TextStage(bundle) for bundle in bundles}
        names = ((text_model(bundle.space).upper(), tokens_tensor(bundle.space.name)) for bundle in bundles)
        self._outputs = ", ".join(name for pair in names for name in pair)
        self._pictures = any(bundle.preprocess for bundle in bundles)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            expected = json.loads(request.parameters() or "{}").get(FINGERPRINT, self._fingerprint)
            if expected != self._fingerprint:
                raise ValueError(f"{MISMATCH}{self._fingerprint}, not {expected}")  # noqa: TRY301
            tensors = self._tokens(request)
        except ValueError as exc:
            return refused(exc)
        images = pb_utils.get_input_tensor_by_name(request, IMAGE)
        if images is not None:
            tensors.append(pb_utils.Tensor(ENCODED, images.as_numpy()))
        elif tensors and self._pictures:
            tensors.append(pb_utils.Tensor(ENCODED, self._no_images(len(tensors[0].as_numpy()))))
        return pb_utils.InferenceResponse(tensors)

    def _no_images(self, count: int) -> NDArray[Any]:
        """Return what stands for the images of texts alone: Triton computes it where their vectors are asked for.

        A request that names no outputs asks for all.
        """
        told = f"the request has no IMAGE: name the outputs that you want, of {self._outputs}"
        return np.full((count, 1), NO_IMAGE + told.encode(), np.object_)

    def _tokens(self, request: Any) -> list[Any]:
        """Return the arrays of every space; none without texts. ValueError says what is wrong with the texts."""
        given = pb_utils.get_input_tensor_by_name(request, TEXT)
        if given is None:
            return []
        encoded = given.as_numpy()[:, 0]
        if too_large := texts_too_large(sum(map(len, encoded)), self._max_bytes):
            raise ValueError(too_large)
        texts = _texts(encoded)
        roles = _roles(pb_utils.get_input_tensor_by_name(request, ROLE), len(texts))
        tensors = []
        for space, stage in self._stages.items():
            tokens = stage.run(texts, roles)
            tensors.append(pb_utils.Tensor(ids_tensor(space), tokens.ids))
            tensors.append(pb_utils.Tensor(mask_tensor(space), tokens.mask))
            tensors.append(pb_utils.Tensor(tokens_tensor(space), tokens.counts[:, None]))
        return tensors


def version_folder(args: Mapping[str, str]) -> Path:
    """Return the folder of the model's version, where model.py lies."""
    return Path(args["model_repository"], args["model_version"])


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of config.pbtxt."""
    given = json.loads(args["model_config"])["parameters"]
    return {name: value["string_value"] for name, value in given.items()}


def refused(why: object) -> Any:
    """Return the response to a request that the client has to change."""
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(why), pb_utils.TritonError.INVALID_ARG))


def _array(request: Any, name: str) -> NDArray[Any]:
    array: NDArray[Any] = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
    return array


def _roles(given: Any | None, count: int) -> list[Role]:
    """Return what each text is encoded as; ValueError for anything but a role."""
    if given is None:
        return ["document"] * count
    known: dict[bytes, Role] = {b"query": "query", b"document": "document"}
    names = given.as_numpy()[:, 0].tolist()
    if wrong := [role for role in names if role not in known]:
        raise ValueError(f"{ROLE} is query or document, not {wrong[0]!r}")
    return [known[role] for role in names]


def _texts(encoded: Sequence[bytes]) -> list[str]:
    """Return the texts; ValueError names one that is not UTF-8."""
    texts: list[str] = []
    for item, raw in enumerate(encoded):
        try:
            texts.append(raw.decode())
        except UnicodeDecodeError as exc:
            message = f"text {item}: invalid: it is not UTF-8 ({exc.reason} at byte {exc.start})"
            raise ValueError(message) from None
    return texts
