"""Language models that see pictures, on ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.generators.base import GenerationOptions, Picture
from vlmsearch.generators.local.decoding import Cache, LanguageModel
from vlmsearch.generators.local.graph import BundleGenerator, OnnxModel, open_session
from vlmsearch.generators.pictures import images_in
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

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Return the text in pieces; see `SeesPictures`."""
        images = images_in(parts, self.name, self.max_pictures)
        tokens = self.encode_parts(parts)
        pieces = self.continue_tokens(tokens, options, lambda model: _Sighted(model, images))
        if on_usage is not None:
            on_usage(len(tokens))
        return pieces

    def encode_parts(self, parts: Sequence[str | Picture]) -> list[int]:
        """Return the token ids of a prompt; image tokens stand for its pictures."""
        tokens: list[int] = []
        text = ""
        for part in parts:
            if isinstance(part, Picture):
                tokens += [*self.encode(text), *[self._input.token] * self._input.tokens]
                text = ""
            else:
                text += part
        return [*tokens, *self.encode(text)]


class _VisionModel(OnnxModel):
    """The graphs of a bundle that sees pictures."""

    def __init__(self, bundle: GeneratorBundle, pictures: PictureInput, threads: int) -> None:
        super().__init__(bundle, threads)
        self._side = pictures.side
        self._tower = open_session(bundle.folder / VISION_GRAPH, bundle.name, threads)

    def look(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Return the embeddings of all pictures (count, width)."""
        size = (self._side, self._side)
        pixels = np.stack([np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC)) for image in images])
        try:
            embeddings: NDArray[np.float32] = self._tower.run(["embeddings"], {"pixels": pixels})[0]
        except Exception as exc:
            raise BackendError(f"ONNX Runtime failed: {exc}") from exc
        return embeddings.reshape(-1, embeddings.shape[-1])


class _Sighted:
    """A model whose prompt has pictures; see `vlmsearch.generators.local.decoding.LanguageModel`."""

    def __init__(self, model: LanguageModel, images: Sequence[Image.Image]) -> None:
        self.context, self.ends = model.context, model.ends
        self._model = model
        self._images = images

    def open(self) -> Cache:
        """Return a new text."""
        if not self._images or not isinstance(self._model, _VisionModel):
            return self._model.open()
        return self._model.open(self._model.look(self._images))
