"""A repository that serves a language model with transformers, behind the tensors of TensorRT-LLM's ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.errors import ConfigError
from vlmsearch.models.generator import generator_folder
from vlmsearch.triton.repository.options import Device, check_numbers
from vlmsearch.triton.repository.writer import CONFIG, Repository, write_model, write_requirements

ENSEMBLE, PREPROCESSING, MODEL, POSTPROCESSING = "ensemble", "preprocessing", "tensorrt_llm", "postprocessing"
_PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "pillow", "typing-extensions")
_NUMPY = "numpy>=1.26,<2"
_INT, _FLOAT, _BOOL, _TEXT, _LONG = pb.TYPE_INT32, pb.TYPE_FP32, pb.TYPE_BOOL, pb.TYPE_STRING, pb.TYPE_UINT64
_Tensor = tuple[str, int, Sequence[int]]


@dataclass(frozen=True)
class LlmOptions:
    """How a language model is served.

    ``decoupled`` models stream, and texts join and leave the running batch of up to ``max_sequences``; others answer
    once, and a batch is made to its end. A search has up to ``max_beam_width`` beams, each of them as much work and
    memory as a text. Prompt and words of a request have up to ``max_text_bytes`` together. ``legacy_names`` are those
    before TensorRT-LLM 1.0: ``random_seed`` and ``min_length``. ``exclude_input`` leaves the prompt out of answers
    where the request says nothing.
    """

    device: Device = "cpu"
    gpu: int = 0
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_batch: int = 64
    max_sequences: int = 64
    max_beam_width: int = 16
    max_text_bytes: int = 2**19
    tokenizer_instances: int = 1
    decoupled: bool = True
    exclude_input: bool = True
    add_special_tokens: bool = True
    legacy_names: bool = False


def write_repository(model: str, out: Path, options: LlmOptions | None = None) -> Repository:
    """Write the repository of a model (a name, a folder or a hub id) to ``out``, whole or not at all.

    An older repository at ``out`` is replaced; ConfigError if anything else is there.
    """
    chosen = options or LlmOptions()
    check_numbers(
        ("gpu", chosen.gpu, 0),
        ("max_batch", chosen.max_batch, 1),
        ("max_sequences", chosen.max_sequences, 1),
        ("max_beam_width", chosen.max_beam_width, 1),
        ("max_text_bytes", chosen.max_text_bytes, 1),
        ("tokenizer_instances", chosen.tokenizer_instances, 1),
    )
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / ENSEMBLE / CONFIG).exists())):
        raise ConfigError(f"{out} is there and is not a repository of a language model: choose another `out`")
    configs = make_configs(_place(model), chosen)
    with folder_in_the_making(out) as folder:
        for config in configs.values():
            (folder / config.name / "1").mkdir(parents=True)
            (folder / config.name / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
            if config.name != ENSEMBLE:
                write_model(folder / config.name / "1", f"llm_python/{config.name}")
        write_requirements(folder, requirements())
        publish(folder, out)
    return Repository(out, tuple(configs), ())


def requirements() -> list[str]:
    """Return what the models need beside this library, in the versions that are installed here."""
    found = [_NUMPY]
    for name in _PACKAGES:
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            found.append(name)
    return found


def make_configs(model: str, options: LlmOptions) -> Mapping[str, pb.ModelConfig]:
    """Return the configuration of every model, by name, the ensemble last."""
    made = (
        _preprocessing(model, options),
        _language_model(model, options),
        _postprocessing(model, options),
        _ensemble(options),
    )
    return {config.name: config for config in made}


def _place(model: str) -> str:
    """Return a folder as it is found from anywhere, or a hub id."""
    if not model:
        raise ConfigError("name a model: a folder, or an id of the Hugging Face hub")
    folder = generator_folder(model)
    return str(folder.resolve()) if folder else model


def _preprocessing(model: str, options: LlmOptions) -> pb.ModelConfig:
    config = _python(PREPROCESSING, options, options.tokenizer_instances)
    _add(config.input, [("QUERY", _TEXT, [1]), ("REQUEST_OUTPUT_LEN", _INT, [1])])
    words: list[_Tensor] = [("BAD_WORDS_DICT", _TEXT, [-1]), ("STOP_WORDS_DICT", _TEXT, [-1])]
    _add(config.input, [*words, ("END_ID", _INT, [1]), ("PAD_ID", _INT, [1])], optional=True)
    _add(config.output, [("INPUT_ID", _INT, [-1]), ("REQUEST_INPUT_LEN", _INT, [1]), ("REQUEST_OUTPUT_LEN", _INT, [1])])
    _add(config.output, [("BAD_WORDS_IDS", _INT, [2, -1]), ("STOP_WORDS_IDS", _INT, [2, -1])])
    _add(config.output, [("OUT_END_ID", _INT, [1]), ("OUT_PAD_ID", _INT, [1])])
    _put(
        config,
        tokenizer_dir=model,
        add_special_tokens=str(options.add_special_tokens).lower(),
        max_text_bytes=str(options.max_text_bytes),
    )
    return config


def _postprocessing(model: str, options: LlmOptions) -> pb.ModelConfig:
    config = _python(POSTPROCESSING, options, options.tokenizer_instances)
    _add(config.input, [("TOKENS_BATCH", _INT, [-1, -1]), ("SEQUENCE_LENGTH", _INT, [-1])])
    _add(config.output, [("OUTPUT", _TEXT, [-1])])
    _put(config, tokenizer_dir=model)
    return config


def _language_model(model: str, options: LlmOptions) -> pb.ModelConfig:
    config = _python(MODEL, options, 1)
    group = config.instance_group[0]
    if options.device == "gpu":
        group.kind = pb.ModelInstanceGroup.KIND_GPU
        group.gpus.append(options.gpu)
    config.model_transaction_policy.decoupled = options.decoupled
    _add(config.input, [("input_ids", _INT, [-1]), ("input_lengths", _INT, [1]), ("request_output_len", _INT, [1])])
    config.input[0].allow_ragged_batch = True
    words: list[_Tensor] = [("stop_words_list", _INT, [2, -1]), ("bad_words_list", _INT, [2, -1])]
    more: list[_Tensor] = [("end_id", _INT, [1]), ("pad_id", _INT, [1]), ("beam_width", _INT, [1])]
    _add(config.input, [*more, *words, *_sampling(options), *_switches(), ("stop", _BOOL, [1])], optional=True)
    for tensor in config.input:
        tensor.allow_ragged_batch = tensor.allow_ragged_batch or tensor.name in {name for name, *_ in words}
    _add(config.output, [("output_ids", _INT, [-1, -1]), ("sequence_length", _INT, [-1]), *_more_outputs()])
    _put(
        config,
        model=model,
        dtype=options.dtype,
        exclude_input_in_output=str(options.exclude_input).lower(),
        max_num_sequences=str(options.max_sequences),
        max_beam_width=str(min(options.max_beam_width, options.max_sequences)),
    )
    return config


def _ensemble(options: LlmOptions) -> pb.ModelConfig:
    config = pb.ModelConfig(name=ENSEMBLE, platform="ensemble", max_batch_size=options.max_batch)
    _add(config.input, [("text_input", _TEXT, [1]), ("max_tokens", _INT, [1])])
    words: list[_Tensor] = [("bad_words", _TEXT, [-1]), ("stop_words", _TEXT, [-1])]
    more: list[_Tensor] = [("end_id", _INT, [1]), ("pad_id", _INT, [1]), ("beam_width", _INT, [1])]
    same = {old: new for new, old in (("top_k", "runtime_top_k"), ("top_p", "runtime_top_p"),
                                      ("length_penalty", "len_penalty"), ("stream", "streaming"))}  # fmt: skip
    passed = [(same.get(name, name), kind, dims) for name, kind, dims in [*_sampling(options), *_switches()]]
    _add(config.input, [*words, *more, *passed], optional=True)
    _add(config.output, [("text_output", _TEXT, [-1]), *_more_outputs()])
    _step(
        config,
        PREPROCESSING,
        {"QUERY": "text_input", "REQUEST_OUTPUT_LEN": "max_tokens", "BAD_WORDS_DICT": "bad_words",
         "STOP_WORDS_DICT": "stop_words", "END_ID": "end_id", "PAD_ID": "pad_id"},
        {"INPUT_ID": "_INPUT_ID", "REQUEST_INPUT_LEN": "_REQUEST_INPUT_LEN", "BAD_WORDS_IDS": "_BAD_WORDS_IDS",
         "REQUEST_OUTPUT_LEN": "_REQUEST_OUTPUT_LEN", "STOP_WORDS_IDS": "_STOP_WORDS_IDS",
         "OUT_END_ID": "_PREPROCESSOR_END_ID", "OUT_PAD_ID": "_PREPROCESSOR_PAD_ID"},
    )  # fmt: skip
    made = {"input_ids": "_INPUT_ID", "input_lengths": "_REQUEST_INPUT_LEN", "end_id": "_PREPROCESSOR_END_ID",
            "request_output_len": "_REQUEST_OUTPUT_LEN", "pad_id": "_PREPROCESSOR_PAD_ID",
            "bad_words_list": "_BAD_WORDS_IDS", "stop_words_list": "_STOP_WORDS_IDS"}  # fmt: skip
    made |= {"beam_width": "beam_width"} | {
        name: same.get(name, name) for name, *_ in [*_sampling(options), *_switches()]
    }
    outputs = {"output_ids": "_TOKENS_BATCH", "sequence_length": "_SEQUENCE_LENGTH"}
    _step(config, MODEL, made, outputs | {name: name for name, *_ in _more_outputs()})
    tokens = {"TOKENS_BATCH": "_TOKENS_BATCH", "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH"}
    _step(config, POSTPROCESSING, tokens, {"OUTPUT": "text_output"})
    return config


def _sampling(options: LlmOptions) -> list[_Tensor]:
    """Return what can be said about sampling, by the names of the language model."""
    seed, least = ("random_seed", "min_length") if options.legacy_names else ("seed", "min_tokens")
    numbers = ("temperature", "runtime_top_p", "len_penalty", "repetition_penalty", "presence_penalty",
               "frequency_penalty")  # fmt: skip
    return [
        ("runtime_top_k", _INT, [1]),
        *((name, _FLOAT, [1]) for name in numbers),
        (least, _INT, [1]),
        (seed, _LONG, [1]),
    ]


def _switches() -> list[_Tensor]:
    return [("return_log_probs", _BOOL, [1]), ("streaming", _BOOL, [1]), ("exclude_input_in_output", _BOOL, [1])]


def _more_outputs() -> list[_Tensor]:
    return [
        ("cum_log_probs", _FLOAT, [-1]),
        ("output_log_probs", _FLOAT, [-1, -1]),
        ("batch_index", _INT, [1]),
        ("sequence_index", _INT, [1]),
    ]


def _python(name: str, options: LlmOptions, instances: int) -> pb.ModelConfig:
    config = pb.ModelConfig(name=name, backend="python", max_batch_size=options.max_batch)
    config.instance_group.add(count=instances, kind=pb.ModelInstanceGroup.KIND_CPU)
    config.dynamic_batching.SetInParent()
    return config


def _add(tensors: Sequence[object], wanted: Sequence[_Tensor], *, optional: bool = False) -> None:
    for name, kind, dims in wanted:
        more = {"optional": True} if optional else {}
        tensors.add(name=name, data_type=kind, dims=dims, **more)  # type: ignore[attr-defined]


def _put(config: pb.ModelConfig, **values: str) -> None:
    for name, value in values.items():
        config.parameters[name].string_value = value


def _step(config: pb.ModelConfig, model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    step = config.ensemble_scheduling.step.add(model_name=model, model_version=-1)
    step.input_map.update(inputs)
    step.output_map.update(outputs)
