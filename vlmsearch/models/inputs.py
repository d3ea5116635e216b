"""What every encoder of bundles shares: texts to token ids, images to pixels.

A runtime only has to run a tower on a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase, Sequence as NormalizerSequence

from vlmsearch.errors import (
    ConfigError,
    InvalidInputError,
    TextTruncatedWarning,
    apply_to_each,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import LENGTH_STEP, Bundle, TextInput, TextPrompt, padded_length
from vlmsearch.models.tokenizers import TextTokenizer, read_tokenizer, token_row
from vlmsearch.types import ImageSource, Role, Vectors

Ids = NDArray[np.int32]
Pixels = NDArray[np.uint8]
_STEPS = ((64, LENGTH_STEP), (128, 2 * LENGTH_STEP), (1 << 30, 4 * LENGTH_STEP))
"""The multiples that texts are padded to for an engine, each up to a length: few shapes have to be captured."""


def open_tokenizer(bundle: Bundle) -> TextTokenizer:
    """Return the bundle's tokenizer, which neither cuts nor pads, and lower-cases where the bundle says so."""
    tokenizer = read_tokenizer(bundle.read("tokenizer.json"), str(bundle.folder))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if bundle.text.lower:
        lower_case(tokenizer)
    return TextTokenizer(tokenizer, bundle.name, (bundle.text.query.ids, bundle.text.document.ids))


def lower_case(tokenizer: Tokenizer) -> None:
    """Have a tokenizer lower-case texts first.

    Its special tokens are found before that, as they are written.
    """
    own = [tokenizer.normalizer] if tokenizer.normalizer else []
    tokenizer.normalizer = NormalizerSequence([Lowercase(), *own])


def to_pixels(image: ImageSource, preprocess: Preprocess, limits: ImageLimits = DEFAULT_LIMITS) -> Pixels:
    """Return pixels as a model takes them, uint8 (size, size, 3).

    InvalidInputError for an image that cannot be used.
    """
    from vlmsearch.media.images import opened_image  # here: a search for words loads no Pillow

    with opened_image(image, at_least=preprocess.at_least, limits=limits) as upright:
        return preprocess.apply(upright)


def check_length(bundle: Bundle, vectors: Vectors) -> Vectors:
    """Return vectors that a model gave.

    ConfigError where they are not of the length that its bundle says.
    """
    if vectors.shape[1:] != (bundle.space.dim,):
        raise ConfigError(
            f"{bundle.name} says that its vectors have {bundle.space.dim} numbers, and its model gives the shape "
            f"{vectors.shape[1:]}: build it again"
        )
    return vectors


def prompted(texts: Sequence[str], form: TextInput, role: Role) -> list[str]:
    """Return texts with the prompt of their role before them, as they are tokenised."""
    prompt = form.prompt(role).text
    return [prompt + text for text in texts] if prompt else list(texts)


def token_rows(texts: Sequence[str], form: TextInput, tokenizer: TextTokenizer, role: Role) -> list[list[int]]:
    """Return all ids of each text as its tower gets them, cut where too long.

    The prompt and special tokens are included.
    """
    return [tower_ids(ids, form, role) for ids in tokenizer.ids(texts, [form.prompt(role)] * len(texts))]


def tower_ids(ids: Sequence[int], form: TextInput, role: Role) -> list[int]:
    """Return all ids that a tower gets of those of a text with its prompt."""
    return [*form.prefix, *ids[: form.room(role) + len(form.prompt(role).ids)], *form.suffix]


def token_arrays(rows: Sequence[Sequence[int]], form: TextInput) -> tuple[Ids, Ids]:
    """Return rows of ids padded to one length, and their mask: int32 (n, length) both.

    The length is that of the longest row, or what the tower is filled up to: then nothing is masked.
    """
    ids = np.full((len(rows), form.fill or max(map(len, rows))), form.pad, np.int32)
    mask = np.full_like(ids, form.fill is not None)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = token_row(row)
        mask[i, : len(row)] = 1
    return ids, mask


def engine_length(length: int, longest: int) -> int:
    """Return the columns that texts of ``length`` tokens are padded to.

    A multiple of 8, later of 16 and 32, or ``longest``, which is a multiple of 8 itself.
    """
    step = next(step for limit, step in _STEPS if length <= limit)
    return min(padded_length(length, step), longest)


def pad_texts(ids: Ids, mask: Ids, form: TextInput) -> tuple[Ids, Ids]:
    """Return ids and mask with columns of padding and of 0 added.

    They get a length of `engine_length`.
    """
    rows, length = ids.shape
    target = form.fill or engine_length(length, form.longest)
    if target == length:
        return ids, mask
    longer, seen = np.full((rows, target), form.pad, np.int32), np.zeros((rows, target), np.int32)
    longer[:, :length] = ids
    seen[:, :length] = mask
    return longer, seen


def warn_truncated(model: str, counts: Iterable[int], room: int, *, stacklevel: int) -> None:
    """Warn of each query that has more tokens than its model reads.

    Args:
        model: What the model is called.
        counts: How many tokens each query has.
        room: How many the model reads.
        stacklevel: As that of `warnings.warn`, from the caller of this.
    """
    for tokens in counts:
        if tokens > room:
            message = f"the query has {tokens} tokens and {model} reads {room}: the rest was not used"
            warnings.warn(message, TextTruncatedWarning, stacklevel=stacklevel + 1)


def cut_vectors(vectors: Vectors, dim: int) -> Vectors:
    """Return the first ``dim`` numbers of unit vectors, scaled to length one.

    Vectors of that length are returned as they are.

    >>> cut_vectors(np.array([[0.6, 0.0, 0.8]], np.float32), 2)
    array([[1., 0.]], dtype=float32)
    """
    if vectors.shape[1] == dim:
        return vectors
    rows = vectors[:, :dim]
    unit: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


_LONG = 512
"""Tokens up to which the length of texts does not make a batch smaller."""


@dataclass(frozen=True)
class BatchLimits:
    """The limits of the batches of texts that a runtime gets.

    Args:
        items: Maximum number of texts of a batch.
        tokens: Maximum number of tokens of a batch with its padding, for a runtime that is fastest with what fits its
            cache. A longer text is a batch of its own.
        cores: Number of batches that are computed at once. As many texts or more are dealt out evenly among them.
        unpadded: Number of tokens from which a text is only together with others of its length. Such a batch needs no
            mask.
    """

    items: int
    tokens: int | None = None
    cores: int = 1
    unpadded: int | None = None


def split_batches(lengths: Sequence[int], limits: BatchLimits) -> Iterator[slice]:
    """Yield where batches of texts begin and end.

    Args:
        lengths: How many tokens each text has, ascending.
        limits: How large a batch may be.

    >>> list(split_batches([4, 5, 8, 8, 9], BatchLimits(32, tokens=16, unpadded=8)))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    cores = limits.cores if len(lengths) >= limits.cores else 1
    max_tokens = limits.tokens and min(limits.tokens, -(-sum(lengths) // cores))
    start = 0
    for end, length in enumerate(lengths):
        count = end - start + 1
        is_full = count > limits.items or (max_tokens is not None and count * length > max_tokens)
        is_full = is_full or count * length**2 > limits.items * _LONG**2  # attention needs the square
        is_longer = limits.unpadded is not None and length >= limits.unpadded and length > lengths[start]
        if end > start and (is_full or is_longer):
            yield slice(start, end)
            start = end
    if start < len(lengths):
        yield slice(start, len(lengths))


class TextBatches:
    """A tokenizer of one bundle that forms batches of like lengths.

    So little is computed on padding.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._input = bundle.text
        self._tokenizer = open_tokenizer(bundle)

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        limits: BatchLimits,
        run: Callable[[Sequence[tuple[Ids, Ids]]], Iterable[Vectors]],
        prompt: str | None = None,
    ) -> Vectors:
        """Return one unit vector a text, (len(texts), dim).

        A text is cut where it is longer than the model reads; of queries, a warning says so. ``run`` gives the vectors
        of each batch, in order. ``prompt`` replaces the model's own.
        """
        form = self._input
        if prompt is not None:
            form = replace(form, query=TextPrompt(prompt), document=TextPrompt(prompt))
        whole = self._tokenizer.ids(texts, [form.prompt(role)] * len(texts))
        if role == "query":
            counts = [len(ids) - len(form.query.ids) for ids in whole]
            warn_truncated(self._bundle.name, counts, form.room(role), stacklevel=4)
        rows = [tower_ids(ids, form, role) for ids in whole]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        places = [order[place] for place in split_batches([form.fill or len(rows[i]) for i in order], limits)]
        vectors = np.empty((len(rows), self._bundle.space.dim), np.float32)
        for place, batch in zip(places, run([token_arrays([rows[i] for i in place], form) for place in places])):
            vectors[place] = check_length(self._bundle, batch)
        return vectors

    def count_tokens(self, texts: Sequence[str], role: Role) -> list[int]:
        """Return how many tokens each text has, its prompt aside."""
        return [self._own_tokens(ids, role) for ids in self._token_ids(texts, [role] * len(texts))]

    def known_letters(self, texts: Sequence[str]) -> float | None:
        """Return the share of letters in tokens that mean something; None without letters."""
        return self._tokenizer.known_letters(texts)

    def decode_tokens(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of some token ids, special tokens left out.

        InvalidBatchError names those with an unknown id.
        """
        tokenizer = self._tokenizer.raw
        known = tokenizer.get_vocab_size()

        def check(row: Sequence[int]) -> Sequence[int]:
            wrong = next((id for id in row if not 0 <= id < known), None)
            if wrong is not None:
                name = self._bundle.name
                raise InvalidInputError("invalid", f"{wrong} is not a token of {name}, which has {known:,}")
            return row

        ending = getattr(tokenizer.model, "end_of_word_suffix", None)  # of CLIP's, which has no decoder for it
        texts = tokenizer.decode_batch(apply_to_each(check, rows))
        return [text.replace(ending, " ").strip() if ending else text for text in texts]

    def _token_ids(self, texts: Sequence[str], roles: Sequence[Role]) -> list[list[int]]:
        """Return the ids of whole texts, each with the prompt of its role."""
        return self._tokenizer.ids(texts, [self._input.prompt(role) for role in roles])

    def _own_tokens(self, ids: Sequence[int], role: Role) -> int:
        """Return how many of a text's ids are not those of its prompt."""
        return max(len(ids) - len(self._input.prompt(role).ids), 0)
