"""The transformers library itself: the reference that bundles are measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, CLIPConfig, CLIPModel

from vlmsearch._util.files import expand_home, is_path
from vlmsearch._util.machine import available_cores
from vlmsearch.building.checkpoint import image_settings, sentence_modules
from vlmsearch.building.derive import find_or_derive
from vlmsearch.building.families import openclip
from vlmsearch.building.fetch import as_bundle, checkpoint_folder
from vlmsearch.building.load import load_checkpoint, read_config
from vlmsearch.building.weights import Json, is_checkpoint, weight_files
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import BackendError, ConfigError, one_line
from vlmsearch.generators.local.hub import ONE_AT_A_TIME, quiet
from vlmsearch.models.bundle import Bundle, built_folder, bundle_names, open_bundle
from vlmsearch.models.inputs import Ids, Pixels
from vlmsearch.models.recipe import Recipe
from vlmsearch.types import Vectors


class TorchEncoder(BundleEncoder):
    """Checkpoints on PyTorch in float32: ``torch:NAME`` as in a recipe, or ``torch:/folder`` with a checkpoint.

    ``name`` is what a checkpoint in a folder is called in the fingerprint, by default as the folder is; give that of
    the bundle to search an index that the bundle made. ``device`` is PyTorch's. ``dim`` is how many numbers of each
    vector are kept, for models whose recipe says that they were trained to be cut (Matryoshka).
    """

    def __init__(
        self,
        location: str,
        *,
        name: str | None = None,
        batch_size: int = 32,
        device: str = "cpu",
        dim: int | None = None,
    ) -> None:
        located = [_locate(model, name) for model in bundle_names(location)]
        super().__init__(
            [
                as_bundle(load_checkpoint(folder, recipe.prompts, recipe.max_tokens), recipe)
                for folder, recipe in located
            ],
            batch_size=batch_size,
            workers=available_cores(),
            dim=dim,
        )
        self._references = {recipe.name: load_reference(folder, device) for folder, recipe in located}

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels."""
        return self._reference(bundle).images(pixels)

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids."""
        return self._reference(bundle).texts(ids, mask)

    def close(self) -> None:
        """Stop the threads, and let go of the models and their memory."""
        super().close()
        self._references = {}

    def _reference(self, bundle: Bundle) -> Reference:
        references = self._references
        self.check_open()
        return references[bundle.name]


class Reference(Protocol):
    """A checkpoint as transformers computes it, in float32 unless it was loaded in another precision."""

    def images(self, pixels: Pixels) -> Vectors:
        """Unit vectors of pixels, uint8 (n, size, size, 3)."""

    def texts(self, ids: Ids, mask: Ids) -> Vectors:
        """Unit vectors of token ids and their mask, both int32 (n, length)."""

    def values(self, values: NDArray[np.float32]) -> Vectors:
        """Unit vectors of what the image processor gives, (n, 3, size, size)."""

    def pixel_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what `images` gives, on the device and in the model's own precision."""

    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return what `texts` gives, on the device."""


def load_reference(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Reference:
    """Return the reference of a two-tower or sentence-transformers checkpoint.

    BackendError with transformers' own reason.
    """
    try:
        kind, _ = read_config(folder)
        with quiet():
            return TwoTowers(folder, device, dtype) if kind in _PROCESSORS else _Sentences(folder, device, dtype)
    except Exception as exc:
        raise BackendError(f"transformers cannot load {folder}: {one_line(exc)}") from exc


def load_sentence_transformer(folder: Path, max_tokens: int) -> Any:
    """Return a checkpoint as sentence-transformers has it, in float32; BackendError with its own reason."""
    try:
        with quiet(), ONE_AT_A_TIME:
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32}
            )
    except Exception as exc:
        raise BackendError(f"sentence-transformers cannot load {folder}: {one_line(exc)}") from exc
    model.max_seq_length = max_tokens
    return model


def image_processor(folder: Path) -> Callable[..., Any]:
    """Return the checkpoint's own image processor, of the kind that computes with Pillow."""
    kind, config = read_config(folder)
    name = _PROCESSORS[str(kind)]
    with_pillow = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
    if kind == "open_clip":
        return cast("Callable[..., Any]", with_pillow(**openclip.image_settings(folder, config)))
    return cast("Callable[..., Any]", with_pillow.from_pretrained(folder))


_PROCESSORS = {"clip": "CLIPImageProcessor", "open_clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}
"""The image processor of each family of two towers."""


class TwoTowers:
    """A checkpoint of two towers in transformers; one in OpenCLIP's layout as transformers' CLIP."""

    def __init__(self, folder: Path, device: str, dtype: torch.dtype) -> None:
        kind, config = read_config(folder)
        self._masked = kind != "siglip"
        with ONE_AT_A_TIME:
            if kind == "open_clip":
                model: Any = _as_clip(folder, config).to(dtype)
            else:
                _check_size(folder, partial(_described, folder, AutoModel))
                model = AutoModel.from_pretrained(folder, dtype=dtype, trust_remote_code=False)
        self._model = model.eval().to(device)
        prep = openclip.image_settings(folder, config) if kind == "open_clip" else image_settings(folder)
        self._mean, self._std = (np.array(prep[key], np.float32) for key in ("image_mean", "image_std"))
        self._mean_and_std = [torch.from_numpy(values).to(device, dtype) for values in (self._mean, self._std)]
        self._device = device

    def images(self, pixels: Pixels) -> Vectors:
        """Unit vectors of pixels, uint8 (n, size, size, 3)."""
        values = (pixels * np.float32(1 / 255) - self._mean) / self._std
        return self.values(np.ascontiguousarray(values.transpose(0, 3, 1, 2)))

    def values(self, values: NDArray[np.float32]) -> Vectors:
        """Unit vectors of what the image processor gives, (n, 3, size, size)."""
        with torch.inference_mode():
            return _array(self._image_vectors(torch.from_numpy(values).to(self._device)))

    def texts(self, ids: Ids, mask: Ids) -> Vectors:
        """Unit vectors of token ids and their mask, both int32 (n, length)."""
        with torch.inference_mode():
            return _array(self.token_vectors(*_inputs(ids, mask, self._device)))

    def pixel_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what `images` gives, on the device and in the model's own precision."""
        mean, std = self._mean_and_std
        return self._image_vectors(((pixels.to(self._model.dtype) / 255 - mean) / std).permute(0, 3, 1, 2))

    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return what `texts` gives, on the device."""
        masked = {"attention_mask": mask} if self._masked else {}
        return _features(self._model.get_text_features(input_ids=ids, **masked))

    def _image_vectors(self, values: torch.Tensor) -> torch.Tensor:
        return _features(self._model.get_image_features(pixel_values=values))


def _check_size(folder: Path, make: Callable[[], Any]) -> None:
    """Raise ConfigError where a configuration describes a model with more weights than the files have bytes.

    Transformers makes up what the files lack, so that a few bytes of settings would take any amount of memory.
    """
    with torch.device("meta"):
        described = sum(weight.numel() for weight in make().parameters())
    held = sum(file.stat().st_size for file in weight_files(folder))
    if described > held:
        raise ConfigError(f"its configuration describes {described:,} weights, and its files have {held:,} bytes")


def _described(folder: Path, kind: type[Any]) -> Any:
    """Return the model that a configuration describes, without its weights."""
    return kind.from_config(AutoConfig.from_pretrained(folder, trust_remote_code=False))


def _as_clip(folder: Path, config: Json) -> Any:
    """Transformers' CLIP with the weights of a checkpoint in OpenCLIP's layout."""
    described = CLIPConfig(**openclip.clip_settings(folder, config))
    _check_size(folder, lambda: CLIPModel(described))
    model: Any = CLIPModel(described)
    tensors = {name: torch.tensor(array) for name, array in load_checkpoint(folder).weights.items()}
    model.load_state_dict(tensors | {"logit_scale": tensors["logit_scale"].reshape(())})
    return model


class _Sentences:
    def __init__(self, folder: Path, device: str, dtype: torch.dtype) -> None:
        with ONE_AT_A_TIME:
            _check_size(folder, partial(_described, folder, AutoModel))
            model: Any = AutoModel.from_pretrained(folder, dtype=dtype, trust_remote_code=False)
        self._model = model.eval().to(device)
        self._pooling = sentence_modules(folder).pooling
        self._device = device

    def images(self, pixels: Pixels) -> Vectors:
        raise ConfigError("this checkpoint encodes no images")

    def texts(self, ids: Ids, mask: Ids) -> Vectors:
        with torch.inference_mode():
            return _array(self.token_vectors(*_inputs(ids, mask, self._device)))

    def values(self, values: NDArray[np.float32]) -> Vectors:
        raise ConfigError("this checkpoint encodes no images")

    def pixel_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        raise ConfigError("this checkpoint encodes no images")

    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        seen = mask.unsqueeze(-1)
        if self._pooling == "cls":
            return _unit(hidden[:, 0])
        return _unit((hidden * seen).sum(dim=1) / seen.sum(dim=1))


class CrossEncoderReference:
    """A cross-encoder in transformers."""

    def __init__(self, folder: Path) -> None:
        try:
            with quiet(), ONE_AT_A_TIME:
                _check_size(folder, partial(_described, folder, AutoModelForSequenceClassification))
                model: Any = AutoModelForSequenceClassification.from_pretrained(
                    folder, dtype=torch.float32, trust_remote_code=False
                )
        except Exception as exc:
            raise BackendError(f"transformers cannot load {folder}: {one_line(exc)}") from exc
        self._model = model.eval()

    def logits(self, inputs: Mapping[str, NDArray[np.generic]]) -> Vectors:
        """Return the numbers of token ids, their types and their mask, each int32 (n, length): float32 (n, 1)."""
        with torch.inference_mode():
            given = {name: torch.from_numpy(array.astype(np.int64)) for name, array in inputs.items()}
            if self._model.config.type_vocab_size < 2:  # RoBERTa
                del given["token_type_ids"]
            return _array(self._model(**given).logits.float())


def _inputs(ids: Ids, mask: Ids, device: str) -> Iterator[torch.Tensor]:
    return (torch.from_numpy(array.astype(np.int64)).to(device) for array in (ids, mask))


def _features(output: Any) -> torch.Tensor:
    """Unit vectors of one tower's features: transformers 4 gives them as a tensor, 5 in an output."""
    return _unit(getattr(output, "pooler_output", output))


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows.float(), dim=-1)


def _array(vectors: torch.Tensor) -> Vectors:
    return cast("Vectors", vectors.cpu().numpy())


def _locate(location: str, name: str | None) -> tuple[Path, Recipe]:
    """Return a checkpoint's folder, and the recipe it belongs to."""
    folder = expand_home(location)
    if is_path(location) and is_checkpoint(folder):
        kind, _ = read_config(folder)
        return folder, Recipe(name or folder.resolve().name, "", _space(kind, name), checkpoint=str(folder))
    recipe = find_or_derive(location, kind="encoder")
    if not isinstance(recipe, Recipe):
        raise ConfigError(f"{location} is a re-ranker, which encodes nothing")
    return checkpoint_folder(recipe), recipe


def _space(kind: str | None, name: str | None) -> str:
    """Return the space of a checkpoint in a folder.

    That of the bundle that has its name, or the usual one of its family.
    """
    folder = built_folder(name) if name else None
    if folder is not None:
        return open_bundle(folder).space.name
    return "siglip" if kind == "siglip" else "clip" if kind in _PROCESSORS else "minilm"
