"""An encoder with the interface of sentence-transformers: what calls ``model.encode`` takes it as its model.

The interface is that of `sentence_transformers.SentenceTransformer` (https://www.sbert.net); the package itself is not
needed, and torch only where tensors are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, cast, get_args

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.plain import is_image_array
from vlmsearch.encoders.base import Encoder, TakesPrompts
from vlmsearch.errors import ConfigError, InvalidBatchError
from vlmsearch.types import ImageSource, Role, Space, Vectors

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Input: TypeAlias = Union[str, ImageSource]
"""A string is a text; an image is a path, encoded bytes or a decoded image."""
Rows: TypeAlias = "Union[NDArray[np.float32], torch.Tensor]"


class SentenceModel:
    """A model with the methods of sentence-transformers over one space of an encoder.

    It takes texts and images.

    Vectors are of length one, so that their dot product is the cosine. A string is a text, never a path.

    Args:
        encoder: The encoder; it stays open as long as this is used.
        space: The name of one of its spaces with texts; needed where it has several.

    Raises:
        ConfigError: There is no such space, or there are several and none is named.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("mock:") as encoder:
        ...     model = SentenceModel(encoder, space="minilm")
        ...     vectors = model.encode(["a dog in the snow", "a blue car"])
        ...     cosines = model.similarity(model.encode_query("dog"), vectors)
        >>> vectors.shape, cosines.shape, int(cosines.argmax())
        ((2, 128), (1, 2), 0)
    """

    similarity_fn_name = "cosine"
    """The name of the measure of `similarity` in sentence-transformers."""

    def __init__(self, encoder: Encoder, *, space: str | None = None) -> None:
        self.encoder = encoder
        self.space = choose_space(encoder, space)

    def encode(
        self,
        inputs: Input | Iterable[Input],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = True,
        truncate_dim: int | None = None,
    ) -> Rows:
        """Return the vectors of texts and images.

        ``show_progress_bar``, ``convert_to_numpy`` and ``normalize_embeddings`` are taken and change nothing: there is
        no bar, and vectors are always of length one.

        Args:
            inputs: One text or image, or several of them, which may be mixed.
            prompt_name: ``query`` for a query, ``document`` for a document, which is the default.
            prompt: A text to put before each text, in place of the prompt of the model itself; "" for nothing.
            batch_size: The number of inputs that are encoded at once.
            show_progress_bar: Without effect.
            convert_to_numpy: Without effect.
            convert_to_tensor: Whether to return a tensor of torch, on the CPU, in place of an array.
            normalize_embeddings: Without effect.
            truncate_dim: The length to cut vectors to, for models that were trained for it (Matryoshka).

        Returns:
            Float32 of shape (n, dim), or (dim,) for one input alone.

        Raises:
            ConfigError: An image is given, and the space has none; or there is no prompt of that name, or the encoder
                takes none.
            InvalidBatchError: Some inputs cannot be used; those of the first such batch are named, by their places.
            BackendError: The model failed.

        Example:
            >>> from vlmsearch.registry import open_encoder
            >>> with open_encoder("mock:") as encoder:
            ...     SentenceModel(encoder, space="clip").encode("a dog").shape
            (176,)
        """
        is_one = isinstance(inputs, (str, bytes)) or is_image_array(inputs) or not isinstance(inputs, Iterable)
        given = cast("Iterable[Input]", [inputs] if is_one else inputs)
        if prompt is None and prompt_name not in (None, *get_args(Role)):
            raise ConfigError(f"`prompt_name` is query or document, not {prompt_name!r}: give the text as `prompt`")
        role: Role = "query" if prompt_name == "query" else "document"
        rows = self.vectors(given, role=role, batch_size=batch_size, prompt=prompt)
        if truncate_dim is not None:
            rows = rows[:, :truncate_dim]
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        vectors = rows[0] if is_one else rows
        if not convert_to_tensor:
            return vectors
        import torch

        return torch.from_numpy(vectors)

    def encode_query(self, inputs: Input | Iterable[Input], *, prompt_name: str | None = None, **options: Any) -> Rows:
        """Return the vectors of queries; see `encode`.

        Args:
            inputs: One text or image, or several of them.
            prompt_name: That of `encode`, here ``query`` by default.
            **options: Those of `encode`.

        Returns:
            Float32 of shape (n, dim), or (dim,) for one input alone.
        """
        return self.encode(inputs, prompt_name=prompt_name or "query", **options)

    def encode_document(
        self, inputs: Input | Iterable[Input], *, prompt_name: str | None = None, **options: Any
    ) -> Rows:
        """Return the vectors of documents; see `encode`.

        Args:
            inputs: One text or image, or several of them.
            prompt_name: That of `encode`.
            **options: Those of `encode`.

        Returns:
            Float32 of shape (n, dim), or (dim,) for one input alone.
        """
        return self.encode(inputs, prompt_name=prompt_name, **options)

    def vectors(
        self, inputs: Iterable[Input], *, role: Role, batch_size: int = 32, prompt: str | None = None
    ) -> Vectors:
        """Return the vectors of texts and images as an array.

        Args:
            inputs: Any number of them.
            role: Whether the texts are queries or documents.
            batch_size: The number of inputs that are encoded at once.
            prompt: A text to put before each text, in place of the prompt of its role.

        Returns:
            Float32 of shape (len(inputs), dim), each row of length one.

        Raises:
            ConfigError: An image is given, and the space has none; or a prompt, and the encoder takes none.
            InvalidBatchError: Some inputs cannot be used; those of the first such batch are named, by their places.
            BackendError: The model failed.
        """
        inputs = list(inputs)
        rows = np.zeros((len(inputs), self.space.dim), np.float32)
        for start in range(0, len(inputs), batch_size):
            batch = dict(enumerate(inputs[start : start + batch_size], start))
            texts = {place: item for place, item in batch.items() if isinstance(item, str)}
            images = {place: item for place, item in batch.items() if not isinstance(item, str)}
            if images and "image" not in self.space.modalities:
                raise ConfigError(f"the space {self.space.name} of {self.encoder.fingerprint} has texts alone")
            self._fill(rows, texts, lambda some: self._encode_texts(some, role, prompt))
            self._fill(rows, images, self.encoder.encode_images)
        return rows

    def _encode_texts(self, texts: Sequence[str], role: Role, prompt: str | None) -> Mapping[str, Vectors]:
        if prompt is None:
            return self.encoder.encode_texts(texts, role=role)
        if not isinstance(self.encoder, TakesPrompts):
            raise ConfigError(f"{self.encoder.fingerprint} takes no prompt: its texts have those of its own")
        return self.encoder.encode_prompted(texts, prompt=prompt)

    def _fill(
        self, rows: Vectors, inputs: Mapping[int, T], encode: Callable[[Sequence[T]], Mapping[str, Vectors]]
    ) -> None:
        """Write the vectors of inputs to their places."""
        places = list(inputs)
        try:
            if places:
                rows[places] = encode(list(inputs.values()))[self.space.name]
        except InvalidBatchError as exc:
            raise InvalidBatchError({places[item]: error for item, error in exc.items.items()}) from exc

    def similarity(self, first: Rows, second: Rows) -> Rows:
        """Return the cosine of each vector with each other.

        Args:
            first: An array or tensor of shape (n, dim) or (dim,), of rows of length one.
            second: The same with m rows.

        Returns:
            What is given, an array or a tensor, of shape (n, m).
        """
        return first.reshape(-1, first.shape[-1]) @ second.reshape(-1, second.shape[-1]).T

    def similarity_pairwise(self, first: Rows, second: Rows) -> Rows:
        """Return the cosine of each vector with that in the same place.

        Args:
            first: An array or tensor of shape (n, dim), of rows of length one.
            second: The same.

        Returns:
            What is given, an array or a tensor, of shape (n,).
        """
        return (first * second).sum(-1)

    def get_sentence_embedding_dimension(self) -> int:
        """Return the length of the vectors.

        Returns:
            The dimension of the space.
        """
        return self.space.dim


def choose_space(encoder: Encoder, name: str | None, among: Sequence[Space] | None = None) -> Space:
    """Return the space with this name, or the only one; by default of those with texts.

    ConfigError where there is no such space, or several.
    """
    candidates = [space for space in encoder.spaces if "text" in space.modalities] if among is None else among
    spaces = {space.name: space for space in candidates}
    if name is None and len(spaces) == 1:
        return next(iter(spaces.values()))
    if name not in spaces:
        given = "there are several" if name is None else f"not {name!r}"
        known = [f"{space.name} ({' and '.join(sorted(space.modalities))}, {space.dim})" for space in spaces.values()]
        raise ConfigError(f"`space` is one of those of {encoder.fingerprint}, {', '.join(known)}: {given}")
    return spaces[name]
