"""Language models of the Hugging Face hub, in process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from vlmsearch.errors import ModelUnavailableError, one_line
from vlmsearch.generators.local.decoding import Cache
from vlmsearch.generators.local.generator import LocalGenerator
from vlmsearch.generators.local.hub import ONE_AT_A_TIME, load_checkpoint, quiet
from vlmsearch.generators.local.rows import RowsCache
from vlmsearch.models.generator import generator_folder
from vlmsearch.models.tokenizers import no_panics


def load_tokenizer(location: str, *, revision: str | None = None) -> Any:
    """Return the tokenizer of a name, a folder or the hub; ModelUnavailableError where it is not to be had."""
    return load_checkpoint(AutoTokenizer.from_pretrained, location, generator_folder(location), revision=revision)


def decode_tokens(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Return the text of token ids, without special tokens, and with the spaces that they have."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


Dtype = Literal["float32", "float16", "bfloat16"]
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
_UNLIMITED = 2**30
"""Tokenizers without a limit say a number beyond this."""


class TransformersGenerator(LocalGenerator):
    """A causal language model of transformers: ``transformers:gpt2`` of the hub, or a path: ``transformers:./folder``.

    ``device`` is PyTorch's, ``revision`` that of the hub. A prompt is put into the tokenizer's chat template where it
    has one, unless ``chat`` is false. No code of the model's repository is run.
    """

    def __init__(
        self,
        location: str,
        *,
        device: str = "cpu",
        dtype: Dtype = "float32",
        revision: str | None = None,
        chat: bool = True,
    ) -> None:
        model, self._tokenizer = load_model(location, device=device, dtype=dtype, revision=revision)
        self._chat = chat and bool(getattr(self._tokenizer, "chat_template", None))
        self._lock = threading.Lock()
        super().__init__(location, TransformersModel(model, self._tokenizer))

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt, in the chat template of a model that has one."""
        with no_panics(self.name), self._lock:  # a tokenizer of the hub is changed by its calls
            if self._chat:
                turns = [{"role": "user", "content": prompt}]
                encoding = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
            else:
                encoding = self._tokenizer(prompt)
        return list(encoding["input_ids"])

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

    def open(self) -> Cache:
        """Return a new text."""
        return RowsCache(self.model)


def load_model(location: str, *, device: str, dtype: Dtype, revision: str | None = None) -> tuple[Any, Any]:
    """Return a causal language model, ready, and its tokenizer; ModelUnavailableError where they are not to be had."""
    folder = generator_folder(location)
    tokenizer = load_tokenizer(location, revision=revision)
    kind = getattr(torch, dtype)
    with ONE_AT_A_TIME, quiet() if folder else nullcontext():
        model = load_checkpoint(AutoModelForCausalLM.from_pretrained, location, folder, dtype=kind, revision=revision)
    try:
        return model.eval().to(device), tokenizer
    except (AssertionError, RuntimeError) as exc:  # the former where PyTorch was built without CUDA
        raise ModelUnavailableError(
            f"transformers:{location} cannot be put on device={device}: {one_line(exc)}"
        ) from exc


def context_of(model: Any, tokenizer: Any) -> int:
    """Return the most tokens that a model reads."""
    lengths = [getattr(model.config, name, None) for name in _LENGTHS] + [tokenizer.model_max_length]
    return min(int(length) for length in lengths if length and length < _UNLIMITED)


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a text."""
    ids: set[int] = set()
    for end in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        ids.update(end if isinstance(end, list) else [] if end is None else [end])
    return frozenset(ids)
