"""A repository that serves a language model with transformers, behind the tensors of TensorRT-LLM's ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.extras import installed_versions
from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.errors import ConfigError
from vlmsearch.models.generator import generator_folder
from vlmsearch.triton.repository.options import Device, check_numbers
from vlmsearch.triton.repository.writer import CONFIG, Repository, write_model, write_requirements

MODEL = "ensemble"
"""The name that clients of TensorRT-LLM ask for."""
_PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "pillow", "typing-extensions")
_NUMPY = "numpy>=1.26,<2"
_INPUTS = {"text_input": pb.TYPE_STRING, "max_tokens": pb.TYPE_INT32}
_OPTIONAL = {
    "bad_words": pb.TYPE_STRING,
    "stop_words": pb.TYPE_STRING,
    "end_id": pb.TYPE_INT32,
    "top_k": pb.TYPE_INT32,
    "top_p": pb.TYPE_FP32,
    "temperature": pb.TYPE_FP32,
    "repetition_penalty": pb.TYPE_FP32,
    "seed": pb.TYPE_UINT64,
    "stream": pb.TYPE_BOOL,
    "exclude_input_in_output": pb.TYPE_BOOL,
    "stop": pb.TYPE_BOOL,
}
_LISTS = ("bad_words", "stop_words")


@dataclass(frozen=True)
class LlmOptions:
    """Choices about serving a language model.

    A ``decoupled`` model streams, and texts join and leave the running batch of up to ``max_sequences``. Another one
    answers once, and a batch of up to ``max_batch`` requests is generated to its end. The prompt and the words of a
    request have up to ``max_text_bytes`` together.
    """

    device: Device = "cpu"
    gpu: int = 0
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_batch: int = 64
    max_sequences: int = 64
    max_text_bytes: int = 2**19
    decoupled: bool = True


def write_repository(model: str, out: Path, options: LlmOptions | None = None) -> Repository:
    """Write the repository of a model to ``out``, whole or not at all.

    The model is a name, a folder or a hub id.

    An older repository at ``out`` is replaced; ConfigError if anything else is there.
    """
    chosen = options or LlmOptions()
    check_numbers(
        ("gpu", chosen.gpu, 0),
        ("max_batch", chosen.max_batch, 1),
        ("max_sequences", chosen.max_sequences, 1),
        ("max_text_bytes", chosen.max_text_bytes, 1),
    )
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MODEL / CONFIG).exists())):
        raise ConfigError(f"{out} is there and is not a repository of a language model: choose another `out`")
    config = make_config(_place(model), chosen)
    with folder_in_the_making(out) as folder:
        (folder / MODEL / "1").mkdir(parents=True)
        (folder / MODEL / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        write_model(folder / MODEL / "1", "language_model")
        write_requirements(folder, requirements())
        publish(folder, out)
    return Repository(out, (MODEL,), ())


def requirements() -> list[str]:
    """Return what the model needs beside this library, in the versions that are installed here."""
    versions = installed_versions(_PACKAGES)
    pinned = (f"{name}=={versions[name].partition('+')[0]}" if name in versions else name for name in _PACKAGES)
    return [_NUMPY, *pinned]


def make_config(model: str, options: LlmOptions) -> pb.ModelConfig:
    """Return the configuration of the model."""
    config = pb.ModelConfig(name=MODEL, backend="python", max_batch_size=options.max_batch)
    kinds = pb.ModelInstanceGroup
    if options.device == "gpu":
        config.instance_group.add(count=1, kind=kinds.KIND_GPU, gpus=[options.gpu])
    else:
        config.instance_group.add(count=1, kind=kinds.KIND_CPU)
    config.dynamic_batching.SetInParent()
    config.model_transaction_policy.decoupled = options.decoupled
    for name, kind in _INPUTS.items():
        config.input.add(name=name, data_type=kind, dims=[1])
    for name, kind in _OPTIONAL.items():
        is_list = name in _LISTS
        config.input.add(
            name=name, data_type=kind, dims=[-1 if is_list else 1], optional=True, allow_ragged_batch=is_list
        )
    config.output.add(name="text_output", data_type=pb.TYPE_STRING, dims=[-1])
    parameters = {
        "model": model,
        "dtype": options.dtype,
        "max_num_sequences": str(options.max_sequences),
        "max_text_bytes": str(options.max_text_bytes),
    }
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    return config


def _place(model: str) -> str:
    """Return a folder as it is found from anywhere, or a hub id."""
    if not model:
        raise ConfigError("name a model: a folder, or an id of the Hugging Face hub")
    folder = generator_folder(model)
    return str(folder.resolve()) if folder else model
