"""UTF-8 texts to the token ids of every text tower; encoded images are handed on."""

import json
import sys
from pathlib import Path

import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.models.bundle import open_bundle
from vlmsearch.triton.backend.memory import keep_memory
from vlmsearch.triton.backend.stages import TextStage
from vlmsearch.triton.client.protocol import (
    ENCODED,
    FINGERPRINT,
    IMAGE,
    MISMATCH,
    PIECE,
    TEXT,
    ids_tensor,
    mask_tensor,
    texts_too_large,
    tokens_tensor,
)


class TritonPythonModel:
    """Triton's interface to one `TextStage` a space."""

    def initialize(self, args):
        """Open the tokenizers that lie beside this file."""
        keep_memory()
        given = json.loads(args["model_config"])["parameters"]
        self.fingerprint = given[FINGERPRINT]["string_value"]
        self.max_bytes = int(given["max_text_bytes"]["string_value"])
        folder = Path(__file__).parent / "bundles"
        bundles = [open_bundle(folder / name) for name in json.loads(given["bundles"]["string_value"])]
        self.stages = {bundle.space.name: TextStage(bundle) for bundle in bundles}

    def execute(self, requests):
        """One response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        try:
            expected = json.loads(request.parameters() or "{}").get(FINGERPRINT, self.fingerprint)
            if expected != self.fingerprint:
                raise ValueError(f"{MISMATCH}{self.fingerprint}, not {expected}")
            tensors = self._tokens(request)
        except ValueError as exc:
            error = pb_utils.TritonError(str(exc), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        images = pb_utils.get_input_tensor_by_name(request, IMAGE)
        if images is not None:
            tensors.append(pb_utils.Tensor(ENCODED, images.as_numpy()))
        return pb_utils.InferenceResponse(tensors)

    def _tokens(self, request):
        """The arrays of every space; none without texts. ValueError says what is wrong with the texts."""
        given = pb_utils.get_input_tensor_by_name(request, TEXT)
        if given is None:
            return []
        encoded = given.as_numpy()[:, 0]
        if refused := texts_too_large(sum(map(len, encoded)), self.max_bytes):
            raise ValueError(refused)
        meant = pb_utils.get_input_tensor_by_name(request, PIECE)
        pieces = None if meant is None else meant.as_numpy()[:, 0].tolist()
        if pieces and min(pieces) < 0:
            raise ValueError(f"{PIECE} is 0 or more, not {min(pieces)}")
        texts = _texts(encoded, repeated=pieces is not None)
        tensors = []
        for space, stage in self.stages.items():
            tokens = stage.run(texts, pieces)
            tensors.append(pb_utils.Tensor(ids_tensor(space), tokens.ids))
            tensors.append(pb_utils.Tensor(mask_tensor(space), tokens.mask))
            tensors.append(pb_utils.Tensor(tokens_tensor(space), tokens.counts[:, None]))
        return tensors


def _texts(encoded, *, repeated):
    """The texts; an empty one is wrong, or where they may be ``repeated`` the one before it."""
    texts = []
    for item, raw in enumerate(encoded):
        if raw:
            try:
                texts.append(raw.decode())
            except UnicodeDecodeError as exc:
                message = f"text {item}: invalid: it is not UTF-8 ({exc.reason} at byte {exc.start})"
                raise ValueError(message) from None
        elif repeated and texts:
            texts.append(texts[-1])
        else:
            raise ValueError(f"text {item}: empty: it has no characters")
    return texts
