"""Language models of the Hugging Face hub, in process."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from typing_extensions import override

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ModelUnavailableError, one_line
from vlmsearch.generators.base import Picture
from vlmsearch.generators.local.decoding import Cache
from vlmsearch.generators.local.generator import LocalGenerator
from vlmsearch.generators.local.hub import ONE_AT_A_TIME, load_checkpoint, quiet
from vlmsearch.generators.local.rows import Rows, RowsCache
from vlmsearch.generators.local.sighted import SightedRows
from vlmsearch.generators.pictures import MAX_PICTURES, MAX_SIDE
from vlmsearch.models.generator import generator_folder
from vlmsearch.models.tokenizers import no_panics


def load_tokenizer(location: str, *, revision: str | None = None) -> Any:
    """Return the tokenizer of a name, a folder or the hub; ModelUnavailableError without one."""
    return load_checkpoint(AutoTokenizer.from_pretrained, location, generator_folder(location), revision=revision)


def decode_tokens(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Return the text of token ids, without special tokens, and with the spaces that they have."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


Dtype = Literal["float32", "float16", "bfloat16"]
_SIZES = 4096
"""Sizes of pictures whose numbers of tokens are remembered."""
_LACKING = re.compile(r"(?i)torchvision|num2words")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
_UNLIMITED = 2**30
"""Tokenizers without a limit say a number beyond this."""


class TransformersGenerator(LocalGenerator):
    """A language model of transformers: ``transformers:gpt2`` of the hub, or a path: ``transformers:./folder``.

    ``device`` is PyTorch's, ``revision`` that of the hub. A prompt is put into the tokenizer's chat template where it
    has one, unless ``chat`` is false. No code of the model's repository is run.

    A model for images and texts (LLaVA, SmolVLM, Qwen2.5-VL, Qwen3-VL and others) sees pictures where its processor has
    a chat template; ``pictures`` is how many at most.
    """

    def __init__(
        self,
        location: str,
        *,
        device: str = "cpu",
        dtype: Dtype = "float32",
        revision: str | None = None,
        chat: bool = True,
        pictures: int = MAX_PICTURES,
    ) -> None:
        model, self._tokenizer, self._processor = load_model(location, device=device, dtype=dtype, revision=revision)
        self._chat = chat and bool(getattr(self._processor or self._tokenizer, "chat_template", None))
        self._lock = threading.Lock()
        self.max_pictures = pictures if self._processor is not None and self._chat else 0
        self.max_side = MAX_SIDE
        self.picture_tokens = lru_cache(_SIZES)(self._picture_tokens)
        super().__init__(location, TransformersModel(model, self._tokenizer))

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt, in the chat template if there is one."""
        with no_panics(self.name), self._lock:  # a tokenizer of the hub is changed by its calls
            if self._chat:
                turns = [{"role": "user", "content": well_formed(prompt)}]
                encoding = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
            else:
                encoding = self._tokenizer(well_formed(prompt))
        return list(encoding["input_ids"])

    @override
    def read_parts(self, parts: Sequence[str | Picture]) -> tuple[list[int], Any]:
        if not any(isinstance(part, Picture) for part in parts):
            return super().read_parts(parts)
        inputs = self._inputs(parts)
        return inputs["input_ids"][0].tolist(), inputs

    def _inputs(self, parts: Sequence[str | Picture]) -> Any:
        """Return the tensors that the model reads of a prompt with pictures."""
        content = [
            {"type": "image", "image": part.image}
            if isinstance(part, Picture)
            else {"type": "text", "text": well_formed(part)}
            for part in parts
        ]
        with no_panics(self.name), self._lock:
            return self._processor.apply_chat_template(
                [{"role": "user", "content": content}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )

    def _picture_tokens(self, width: int, height: int) -> int:
        """Return how many tokens a picture of this size takes: what a prompt with it has more than one without."""
        with_it = self._inputs(["a", Picture(Image.new("RGB", (width, height)))])["input_ids"]
        return int(with_it.shape[1] - self._inputs(["a"])["input_ids"].shape[1])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        with no_panics(self.name):
            return decode_tokens(self._tokenizer, tokens)


class TransformersModel:
    """A loaded model; see `vlmsearch.generators.local.decoding.LanguageModel`."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.context = context_of(model, tokenizer)
        self.ends = ends_of(model, tokenizer)

    def open(self, pictures: Any = None) -> Cache:
        """Return a new text, with the tensors of a prompt with pictures."""
        return RowsCache(Rows(self.model) if pictures is None else SightedRows(self.model, pictures))


def load_model(location: str, *, device: str, dtype: Dtype, revision: str | None = None) -> tuple[Any, Any, Any]:
    """Return a language model, ready, with its tokenizer and its processor.

    The processor is None for a model of texts alone. ModelUnavailableError where they are not to be had.
    """
    folder = generator_folder(location)
    kind = getattr(torch, dtype)
    # first: of a copy that has other files alone, transformers makes a tokenizer without a word
    tokenizer = load_tokenizer(location, revision=revision)
    with ONE_AT_A_TIME, quiet() if folder else nullcontext():
        config = load_checkpoint(AutoConfig.from_pretrained, location, folder, revision=revision)
        sees = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        loader = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        processor = _load_processor(location, folder, revision) if sees else None
        model = load_checkpoint(loader.from_pretrained, location, folder, dtype=kind, revision=revision)
    try:
        return model.eval().to(device), tokenizer, processor
    except (AssertionError, RuntimeError) as exc:  # the former where PyTorch was built without CUDA
        raise ModelUnavailableError(
            f"transformers:{location} cannot be put on device={device}: {one_line(exc)}"
        ) from exc


def _load_processor(location: str, folder: Path | None, revision: str | None) -> Any:
    try:
        return load_checkpoint(AutoProcessor.from_pretrained, location, folder, revision=revision)
    except ModelUnavailableError as exc:
        if named := _LACKING.search(str(exc)):
            package = named[0].lower()
            raise ModelUnavailableError(
                f"the processor of {location} needs {package}: pip install {package}, the one for your PyTorch"
            ) from exc
        raise


def context_of(model: Any, tokenizer: Any) -> int:
    """Return the maximum number of tokens that a model reads."""
    config = model.config.get_text_config()
    lengths = [getattr(config, name, None) for name in _LENGTHS] + [tokenizer.model_max_length]
    return min(int(length) for length in lengths if length and length < _UNLIMITED)


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a text."""
    ids: set[int] = set()
    for end in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        ids.update(end if isinstance(end, list) else [] if end is None else [end])
    return frozenset(ids)
