"""Language models that see pictures, on ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import override

from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.generators.base import Picture
from vlmsearch.generators.local.graph import BundleGenerator, OnnxModel, open_session
from vlmsearch.models.generator import VISION_GRAPH, GeneratorBundle, PictureInput, open_generator_bundle
from vlmsearch.models.session import check_threads


class OnnxVisionGenerator(BundleGenerator):
    """A LLaVA on ONNX Runtime: ``onnx:demo-vlm``; implements `CountsTokens` and `SeesPictures`.

    ``threads`` is how many cores one step is spread over. Pictures of other shapes are stretched to a square.
    """

    def __init__(self, location: str, *, threads: int = 1) -> None:
        check_threads(threads)
        bundle = open_generator_bundle(location)
        if bundle.pictures is None:
            raise ConfigError(f"{location} sees no pictures: open it as onnx:{location}")
        self._input = bundle.pictures
        self.max_pictures = bundle.pictures.max_count
        self.max_side = bundle.pictures.side
        super().__init__(bundle, _VisionModel(bundle, bundle.pictures, threads))
        self._tokenizer.encode_special_tokens = True  # a source that writes <image> shows none

    def picture_tokens(self, width: int, height: int) -> int:
        """Return how many tokens a picture takes, which is the same for all; see `SeesPictures`."""
        return self._input.tokens

    @override
    def read_parts(self, parts: Sequence[str | Picture]) -> tuple[list[int], list[Image.Image]]:
        """Return the token ids of a prompt, with image tokens for its pictures, and the pictures."""
        tokens: list[int] = []
        images: list[Image.Image] = []
        text = ""
        for part in parts:
            if isinstance(part, Picture):
                tokens += [*self.encode(text), *[self._input.token] * self._input.tokens]
                images.append(part.image)
                text = ""
            else:
                text += part
        return [*tokens, *self.encode(text)], images


class _VisionModel(OnnxModel):
    """The graphs of a bundle that sees pictures."""

    def __init__(self, bundle: GeneratorBundle, pictures: PictureInput, threads: int) -> None:
        super().__init__(bundle, threads)
        self._side = pictures.side
        self._width = bundle.heads * bundle.size
        self._tower = open_session(bundle.folder / VISION_GRAPH, bundle.name, threads)

    @override
    def look(self, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
        if not pictures:
            return np.zeros((0, self._width), np.float32)
        size = (self._side, self._side)
        resized = (picture.convert("RGB").resize(size, Image.Resampling.BICUBIC) for picture in pictures)
        pixels = np.stack([np.asarray(picture) for picture in resized])
        try:
            embeddings: NDArray[np.float32] = self._tower.run(["embeddings"], {"pixels": pixels})[0]
        except Exception as exc:
            raise BackendError(f"ONNX Runtime failed: {exc}") from exc
        return embeddings.reshape(-1, self._width)
