"""What an encoder is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from vlmsearch._util.closable import Closable
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import ImageSource, Modality, RelevanceFit, Role, Space, Vectors

if TYPE_CHECKING:
    from vlmsearch.media.preprocess import Preprocess
    from vlmsearch.models.domain import Domain


@dataclass(frozen=True)
class BatchSizes:
    """The sizes of the batches that an encoder computes fastest.

    Attributes:
        images: How many images a batch has at most.
        texts: How many texts a batch has at most.
        characters: How many characters these texts have at most together; a longer text is a batch of its own.
        calls: How many calls at a time the encoder gains from.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("mock:") as encoder:
        ...     encoder.batch_sizes.texts
        32
    """

    images: int = 32
    texts: int = 32
    characters: int = 16384
    calls: int = 1


class Encoder(Closable, ABC):
    """Turn texts and images into vectors of length one, an array for each space. Several threads may use one encoder.

    Subclasses set ``fingerprint`` and ``spaces``, and implement both methods.

    Example:
        >>> import numpy as np
        >>> class Letters(Encoder):
        ...     fingerprint = "letters:1"
        ...     spaces = (Space("letters", 26, frozenset({"text"})),)
        ...     def encode_texts(self, texts, *, role="document"):
        ...         counts = [[1 + text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]
        ...         rows = np.array(counts, np.float32).reshape(len(texts), 26)
        ...         return {"letters": rows / np.linalg.norm(rows, axis=1, keepdims=True)}
        ...     def encode_images(self, images):
        ...         return {}
        >>> with Letters() as encoder:
        ...     encoder.encode_texts(["a dog", "a car"])["letters"].shape
        (2, 26)
    """

    fingerprint: str
    """Model, revision, preprocessing and tokenizer; the same on every runtime and in every precision."""
    spaces: tuple[Space, ...]
    """The spaces it encodes into; their names are the keys of what the methods return."""
    relevance: Mapping[tuple[str, Modality], RelevanceFit] = MappingProxyType({})
    """Per space and modality of the document: what its cosine with a text says of their relevance, where it was fitted.

    Search judges fields without a fit by how far a cosine stands out from those of the index.
    """

    domains: Mapping[tuple[str, Modality], Domain] = MappingProxyType({})
    """Per space and modality of the document: the inputs that the model is made for, if it records them.

    Search says of an index that is unlike them that its scores are uncalibrated.
    """

    batch_sizes: BatchSizes = BatchSizes()
    """Sizes of the batches that it computes fastest."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Encode texts into every space that takes text.

        A text longer than a model reads is cut. For a query, a TextTruncatedWarning says how much was read; documents
        are split into passages before: see `MeasuresTexts`.

        Args:
            texts: Any number of them.
            role: Whether they are queries or documents.

        Returns:
            Float32 arrays of shape (len(texts), dim) by the names of the spaces, each row of length one.

        Raises:
            InvalidBatchError: Some texts cannot be used (they are not valid Unicode, or larger than a server takes);
                all of them are named.
            BackendError: The model or its server failed.
        """

    def known_letters(self, texts: Sequence[str]) -> float | None:
        """Return the share of letters that the model reads in tokens which mean something.

        Those are whole words, and parts of four letters or more; in other scripts than Latin, of two. A model that
        never learnt a language reads small pieces, single letters, or nothing of it. The model is that of the texts
        that text queries ask: see `compared_spaces`.

        Args:
            texts: Any number of them.

        Returns:
            A number from 0 to 1; None where there is no such model, or its tokenizer is not at hand.

        Example:
            >>> from vlmsearch.registry import open_encoder
            >>> with open_encoder("onnx:demo") as encoder:
            ...     encoder.known_letters(["красный круг"])
            0.0
        """
        return None

    @abstractmethod
    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Encode images into every space that takes images.

        Args:
            images: Any number of them: paths, encoded bytes or decoded images.

        Returns:
            Float32 arrays of shape (len(images), dim) by the names of the spaces, each row of length one.

        Raises:
            InvalidBatchError: Some images cannot be used; all of them are named, with the vectors of the others where
                they were computed before that was known.
            BackendError: The model or its server failed.
        """


@runtime_checkable
class PreparesImages(Protocol):
    """An encoder that reads, decodes and resizes an image ahead of its batch.

    Indexing calls it from several threads while a batch is being encoded.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> isinstance(open_encoder("mock:"), PreparesImages)
        False
    """

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Prepare one image.

        Args:
            image: The image.
            limits: How large it may be.

        Returns:
            What `Encoder.encode_images` takes with the least work left, and makes the same vectors of.

        Raises:
            InvalidInputError: The image cannot be used, unless that shows only when it is encoded.
        """


@runtime_checkable
class ResizesImages(Protocol):
    """Resize images in a way that can be done without the encoder, as on another machine.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("onnx:demo") as encoder:
        ...     encoder.preprocess.size
        64
    """

    preprocess: Preprocess | None
    """The steps; None where it encodes no images, or its server resizes them."""


@runtime_checkable
class TakesPrompts(Protocol):
    """An encoder that puts any prompt before texts, in place of its model's own.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("onnx:demo") as encoder:
        ...     vectors = encoder.encode_prompted(["circle"], prompt="a red ")
        >>> isinstance(encoder, TakesPrompts), sorted(vectors)
        (True, ['clip', 'minilm'])
    """

    def encode_prompted(self, texts: Sequence[str], *, prompt: str) -> dict[str, Vectors]:
        """Encode texts into every space that takes text.

        Args:
            texts: Any number of them.
            prompt: What stands before each, "" for nothing.

        Returns:
            Float32 arrays of shape (len(texts), dim) by the names of the spaces, each row of length one.

        Raises:
            InvalidBatchError: Some texts cannot be used; all of them are named.
            BackendError: The model failed.
        """


@runtime_checkable
class TokenizesTexts(Protocol):
    """Have the tokenizers of one's models at hand, and know how their vectors may be cut.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("onnx:demo") as encoder:
        ...     counts = encoder.count_tokens(["a red circle", "blue"], space=encoder.spaces[0].name)
        >>> isinstance(encoder, TokenizesTexts), counts
        (True, [3, 1])
    """

    shorter: Mapping[str, tuple[int, ...]]
    """By space, the lengths that its vectors may be cut to: those that its model was trained for (Matryoshka)."""

    def count_tokens(self, texts: Sequence[str], *, space: str, role: Role = "document") -> list[int]:
        """Count the tokens of texts, without those that the model puts before and after them.

        Args:
            texts: Any number of them.
            space: Whose model counts.
            role: What they are encoded as.

        Returns:
            How many each has, also where the model reads fewer.

        Raises:
            InvalidBatchError: Some texts are not valid Unicode.
        """

    def decode_tokens(self, rows: Sequence[Sequence[int]], *, space: str) -> list[str]:
        """Turn token ids into texts.

        Args:
            rows: The ids of each text; those of special tokens are left out.
            space: Whose model has these tokens.

        Returns:
            The texts.

        Raises:
            InvalidBatchError: Some rows have an id that is not a token of the model.
        """


@runtime_checkable
class MeasuresTexts(Protocol):
    """An encoder that knows how much of a text it reads.

    The model is that of the texts that text queries ask: see `compared_spaces`. Of several, it is the one that reads
    least.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("onnx:demo") as encoder:
        ...     counts = encoder.text_tokens(["a red circle", "blue " * 100])
        >>> isinstance(encoder, MeasuresTexts), encoder.text_window, counts
        (True, 62, [3, 100])
    """

    text_window: int
    """Tokens that the model reads of a document's text, its prompt aside.

    It is 0 where no texts are encoded.
    """

    def text_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of documents' texts, without those that the model puts before and after them.

        Args:
            texts: Any number of them.

        Returns:
            How many each has, also where the model reads fewer.

        Raises:
            InvalidBatchError: Some texts are not valid Unicode.
            BackendError: The model's server failed.
        """


def compared_spaces(spaces: Sequence[Space]) -> list[Space]:
    """Return the spaces in which a text query is compared with texts.

    They are those of texts alone, which are far better at it; where there are none, those with images.
    """
    texts = [space for space in spaces if "text" in space.modalities]
    return [space for space in texts if "image" not in space.modalities] or texts


def prepared_image(encoder: Encoder, image: ImageSource, limits: ImageLimits) -> ImageSource:
    """Return what `Encoder.encode_images` takes, of an image within the limits; InvalidInputError for any other."""
    if isinstance(encoder, PreparesImages):
        return encoder.prepare_image(image, limits)
    from vlmsearch.media.images import open_image  # here: `import vlmsearch` loads no Pillow

    return open_image(image, limits=limits)
