"""What language models behind Triton call things: TensorRT-LLM's ensemble, its ``llmapi`` model, and token ids.

Names are read off the model's configuration, since they changed between versions: ``random_seed`` and ``min_length``
became ``seed`` and ``min_tokens`` in TensorRT-LLM 1.x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2

from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.triton.client.words import to_word_list

DialectName = Literal["ensemble", "llmapi", "tokens"]
Arrays = dict[str, NDArray[np.generic]]
Words = Callable[[str], list[int]]
"""How a word becomes token ids."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "sampling_param_max_tokens", "request_output_len"),
    "temperature": ("temperature", "sampling_param_temperature"),
    "top_k": ("top_k", "sampling_param_top_k", "runtime_top_k"),
    "top_p": ("top_p", "sampling_param_top_p", "runtime_top_p"),
    "repetition_penalty": ("repetition_penalty", "sampling_param_repetition_penalty"),
    "seed": ("seed", "random_seed", "sampling_param_seed"),
    "beam_width": ("beam_width",),
    "stop": ("stop_words", "sampling_param_stop", "stop_words_list"),
    "bad_words": ("bad_words", "bad_words_list"),
    "streaming": ("stream", "streaming"),
    "exclude": ("exclude_input_in_output", "sampling_param_exclude_input_from_output"),
}
_ASKED = {"repetition_penalty": 1.0, "beam_width": 1, "bad_words": (), "seed": None}
"""Options that a model may lack as long as they are what they are by default."""
_TYPES: Mapping[str, type[np.generic]] = {
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_UINT64": np.uint64,
    "TYPE_FP32": np.float32,
    "TYPE_BOOL": np.bool_,
    "TYPE_STRING": np.object_,
}


@dataclass(frozen=True)
class Input:
    """An input of a model: Triton's name of its type, and its shape without the batch."""

    kind: str
    dims: tuple[int, ...]
    optional: bool = True


@dataclass(frozen=True)
class Dialect:
    """How to ask one model; ``batches`` says whether shapes begin with a batch."""

    model: str
    kind: DialectName
    inputs: Mapping[str, Input]
    batches: bool

    @classmethod
    def of(cls, model: str, inputs: Mapping[str, Input], *, batches: bool) -> Dialect:
        """Return the dialect of a model with these inputs; ConfigError if it is not a language model."""
        if "sampling_param_max_tokens" in inputs:
            kind: DialectName = "llmapi"
        elif {"text_input", "max_tokens"} <= inputs.keys():
            kind = "ensemble"
        elif {"input_ids", "request_output_len"} <= inputs.keys():
            kind = "tokens"
        else:
            raise ConfigError(
                f"{model} is not a language model: it has the inputs {', '.join(sorted(inputs))}. TensorRT-LLM's "
                "models are `ensemble`, and `tensorrt_llm` as llmapi or with a tokenizer "
                "(?model=tensorrt_llm&tokenizer=FILE)"
            )
        return cls(model, kind, inputs, batches)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the output with the text, or those with the token ids, which are filled up, and how many there are."""
        return ("output_ids", "sequence_length") if self.kind == "tokens" else ("text_output",)

    @property
    def is_cumulative(self) -> bool:
        """Return whether each piece of a stream has all that came before it."""
        return self.kind == "llmapi"

    @property
    def may_echo(self) -> bool:
        """Return whether the model cannot be told to leave the prompt out."""
        return self._name("exclude") is None

    def request(
        self, prompt: str | Sequence[int], options: GenerationOptions, *, streaming: bool, words: Words | None = None
    ) -> Arrays:
        """Return the inputs that ask for a text; ConfigError names an option that the model does not have."""
        values = self._values(options, streaming)
        arrays = self._prompt(prompt)
        for option, value in values.items():
            name = self._name(option)
            if name is None:
                if option in _ASKED and value != _ASKED[option]:
                    raise ConfigError(f"{self.model} of the server has no {option}")
                continue
            if value is None or value == ():
                continue
            if self.kind == "tokens" and isinstance(value, tuple):
                if words is not None:
                    arrays[name] = to_word_list([[words(word) for word in value]])
                continue
            arrays[name] = self._array(name, value if isinstance(value, tuple) else (value,))
        return arrays

    def tokens(self, end: int) -> Arrays:
        """Return what a model of token ids is also told: the token that ends a text."""
        return {name: self._array(name, (end,)) for name in ("end_id", "pad_id") if name in self.inputs}

    def _values(self, options: GenerationOptions, streaming: bool) -> Mapping[str, object]:
        likeliest = options.temperature == 0
        return {
            "max_tokens": options.max_tokens,
            "temperature": None if likeliest else options.temperature,
            "top_k": 1 if likeliest else options.top_k or 0,
            "top_p": None if likeliest else options.top_p,
            "repetition_penalty": options.repetition_penalty,
            "seed": None if options.seed is None else options.seed % 2**64,
            "beam_width": options.beam_width,
            "stop": options.stop,
            "bad_words": options.bad_words,
            "streaming": streaming,
            "exclude": True,
        }

    def _prompt(self, prompt: str | Sequence[int]) -> Arrays:
        if isinstance(prompt, str):
            return {"text_input": self._array("text_input", (prompt,))}
        length = self._array("input_lengths", (len(prompt),))
        return {"input_ids": self._array("input_ids", tuple(prompt)), "input_lengths": length}

    def _name(self, option: str) -> str | None:
        return next((name for name in _NAMES[option] if name in self.inputs), None)

    def _array(self, name: str, values: tuple[object, ...]) -> NDArray[np.generic]:
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        array: NDArray[np.generic] = np.array(encoded, _type_of(self.model, name, self.inputs[name]))
        return array[None] if self.batches else array


def inputs_of(config: model_config_pb2.ModelConfig) -> dict[str, Input]:
    """Return the inputs of a model."""
    return {
        tensor.name: Input(model_config_pb2.DataType.Name(tensor.data_type), tuple(tensor.dims), tensor.optional)
        for tensor in config.input
    }


def stop_request(model: str, inputs: Mapping[str, Input], *, batches: bool) -> Arrays:
    """Return what ends the text of the request with the same id, as TensorRT-LLM has it.

    Nothing where a model has no such.
    """
    if "stop" not in inputs:
        return {}
    needed = {name: given for name, given in inputs.items() if name == "stop" or not given.optional}
    shapes = {name: tuple(max(size, 1) for size in given.dims) for name, given in needed.items()}
    arrays: Arrays = {name: np.ones(shapes[name], _type_of(model, name, given)) for name, given in needed.items()}
    arrays |= {name: np.full(shapes[name], b"stop", np.object_) for name in needed if arrays[name].dtype == np.object_}
    return {name: array[None] for name, array in arrays.items()} if batches else arrays


def _type_of(model: str, name: str, given: Input) -> type[np.generic]:
    if given.kind not in _TYPES:
        raise ConfigError(f"{name} of {model} is {given.kind}; this version sends {', '.join(_TYPES)}")
    return _TYPES[given.kind]
