"""The tensors of language models behind Triton: TensorRT-LLM's ensemble, its engine alone, and its ``llmapi`` model.

Names are read off the model's configuration, since they changed between versions: ``random_seed`` became ``seed`` in
TensorRT-LLM 1.x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.triton.vocabulary import Vocabulary

Arrays = dict[str, NDArray[np.generic]]

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
_LLMAPI = "sampling_param_max_tokens"
"""The input that only the ``llmapi`` model has."""
_IDS = "input_ids"
"""The input of TensorRT-LLM's engine, which reads token ids and answers with them."""
_ACCUMULATES = "accumulate_tokens"
"""The parameter of ``tensorrt_llm_bls``, which calls the other models by itself."""
_YES = ("true", "1", "t", "y", "yes")
"""Texts that NVIDIA's models take for true."""
_PICTURES = "image_url"
"""The input of the ``llmapi`` model for pictures, with one entry for each: NVIDIA/TensorRT-LLM, pull request 18381."""
_ASKED = {"repetition_penalty": 1.0, "beam_width": 1, "bad_words": (), "seed": None}
"""Options that a model may lack as long as they are what they are by default."""


@dataclass(frozen=True)
class Dialect:
    """The tensors of one model; ``batches`` says whether shapes begin with a batch.

    ``leaves_prompt_out`` says whether the model was told to, whatever a request says. ``core`` is the engine that the
    model calls in a program of its own, or "". ``accumulates`` says whether that program decodes all tokens so far for
    each piece of a stream; one that does not, and an ensemble of Triton, decode the tokens of each piece by themselves.
    """

    model: str
    inputs: Mapping[str, model_config_pb2.ModelInput]
    batches: bool
    leaves_prompt_out: bool = False
    core: str = ""
    accumulates: bool = False
    is_ensemble: bool = False

    @classmethod
    def of(cls, config: model_config_pb2.ModelConfig) -> Dialect:
        """Return the dialect of a model."""
        told = {name: value.string_value for name, value in config.parameters.items()}
        has_program = _ACCUMULATES in told  # NVIDIA's tensorrt_llm_bls
        return cls(
            config.name,
            {tensor.name: tensor for tensor in config.input},
            config.max_batch_size > 0,
            leaves_prompt_out=told.get("exclude_input_in_output", "").lower() in _YES,
            core=(told.get("tensorrt_llm_model_name") or "tensorrt_llm") if has_program else "",
            accumulates=told.get(_ACCUMULATES, "").lower() in _YES,
            is_ensemble=bool(config.ensemble_scheduling.step),
        )

    def check(self, *, has_tokenizer: bool) -> None:
        """Raise ConfigError for another kind of model, or for one of token ids without a tokenizer."""
        if self.reads_ids:
            if not has_tokenizer:
                raise ConfigError(
                    f"{self.model} reads token ids: give the folder of its tokenizer, as {self.model}?tokenizer=FOLDER"
                )
        elif "text_input" not in self.inputs or not self.inputs.keys() & {_LLMAPI, "max_tokens"}:
            raise ConfigError(
                f"{self.model} is not a model of texts: it has the inputs {', '.join(sorted(self.inputs))}. "
                "TensorRT-LLM's models are `ensemble` and `tensorrt_llm`"
            )

    @property
    def reads_ids(self) -> bool:
        """Return whether the model reads token ids, and answers with them."""
        return {_IDS, "input_lengths", "request_output_len"} <= self.inputs.keys()

    @property
    def is_cumulative(self) -> bool:
        """Return whether each piece of a stream has all that came before it."""
        return _LLMAPI in self.inputs or self.accumulates

    @property
    def decodes_apart(self) -> bool:
        """Return whether the tokens of each piece of a stream become text without those before them.

        Spaces and characters of several tokens are lost so: ``postprocessing`` in NVIDIA/TensorRT-LLM keeps no state.
        """
        return self.is_ensemble or (bool(self.core) and not self.accumulates)

    @property
    def may_echo(self) -> bool:
        """Return whether the model cannot be told to leave the prompt out."""
        return self._name("exclude") is None and not self.leaves_prompt_out

    @property
    def has_pictures(self) -> bool:
        """Return whether the model has the input for pictures; it may ignore that: see `TritonGenerator`."""
        tensor = self.inputs.get(_PICTURES)
        return tensor is not None and (tensor.data_type, [*tensor.dims]) == (model_config_pb2.TYPE_STRING, [-1])

    def request(
        self, prompt: str, options: GenerationOptions, *, streaming: bool, pictures: Sequence[str] = ()
    ) -> Arrays:
        """Return the inputs that ask for a text.

        ConfigError names an option that the model does not have. ``pictures`` are URLs.
        """
        arrays = {"text_input": self._array("text_input", (prompt,))}
        if pictures:
            arrays[_PICTURES] = self._array(_PICTURES, tuple(pictures))
        return {**arrays, **self._optional(self._values(options, streaming))}

    def request_of_ids(
        self, prompt: Sequence[int], vocabulary: Vocabulary, options: GenerationOptions, *, streaming: bool
    ) -> Arrays:
        """Return the inputs that ask for the ids of a text; ConfigError as for `request`.

        The first token that ends a text is the model's own; the others are words to stop at.
        """
        end, *ends = vocabulary.ends
        given = {_IDS: tuple(prompt), "input_lengths": (len(prompt),), "end_id": (end,), "pad_id": (end,)}
        values = {
            **self._values(options, streaming),
            "stop": vocabulary.words(options.stop, ends),
            "bad_words": vocabulary.words(options.bad_words),
        }
        arrays = {name: self._array(name, value) for name, value in given.items() if name in self.inputs}
        return {**arrays, **self._optional(values)}

    def _optional(self, values: Mapping[str, object]) -> Arrays:
        """Return the inputs of options; ConfigError names one that the model does not have."""
        arrays: Arrays = {}
        for option, value in values.items():
            name = self._name(option)
            if name is None:
                is_asked = isinstance(value, np.ndarray) or (value is not None and value != _ASKED.get(option, value))
                if is_asked and option in _ASKED:
                    raise ConfigError(f"{self.model} of the server has no {option}")
                continue
            if isinstance(value, np.ndarray):
                arrays[name] = value[None] if self.batches else value
            elif value is not None and value != ():
                arrays[name] = self._array(name, value if isinstance(value, tuple) else (value,))
        return arrays

    def _values(self, options: GenerationOptions, streaming: bool) -> Mapping[str, object]:
        likeliest = not options.temperature
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

    def _name(self, option: str) -> str | None:
        return next((name for name in _NAMES[option] if name in self.inputs), None)

    def stop_request(self) -> Arrays:
        """Return the inputs that end a text by the id of its request."""
        needed = [tensor for name, tensor in self.inputs.items() if name == "stop" or not tensor.optional]
        return {tensor.name: self._array(tensor.name, None) for tensor in needed}

    def _array(self, name: str, values: tuple[object, ...] | None) -> NDArray[np.generic]:
        """Return the tensor of an input with values; one that is merely there with None."""
        tensor = self.inputs[name]
        kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
        type_ = triton_to_np_dtype("BYTES" if kind == "STRING" else kind)
        if type_ is None:
            raise ConfigError(f"{name} of {self.model} is {kind}, which no array holds")
        array: NDArray[np.generic]
        if values is None:
            array = np.full([max(size, 1) for size in tensor.dims], b"stop" if kind == "STRING" else 1, type_)
        else:
            try:
                array = np.array(
                    [well_formed(value).encode() if isinstance(value, str) else value for value in values], type_
                )
            except OverflowError as exc:
                raise ConfigError(f"{name} of {self.model} is {kind}, which cannot be {values[0]}") from exc
        return array[None] if self.batches else array
