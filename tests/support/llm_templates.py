"""Templates with the placeholders and tensors of NVIDIA's at several versions; written here, to be filled in tests.

Names, types and dimensions are those of tensorrtllm_backend v0.10.0, v0.13.0 and v0.19.0 and of TensorRT-LLM's
triton_backend; nothing else is: the models do nothing.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from vlmsearch.tensorrt_llm.repository import LlmRepoOptions
from vlmsearch.tensorrt_llm.versions import find_target

Tensor = tuple[str, str, str]
"""Name, type and dimensions; a name that ends in ? is optional."""
VERSIONS = ("0.10", "0.13", "0.20", "1.2")

_QUERY: tuple[Tensor, ...] = (
    ("end_id?", "INT32", "1"), ("pad_id?", "INT32", "1"), ("top_k?", "INT32", "1"), ("top_p?", "FP32", "1"),
    ("temperature?", "FP32", "1"), ("length_penalty?", "FP32", "1"), ("repetition_penalty?", "FP32", "1"),
    ("presence_penalty?", "FP32", "1"), ("frequency_penalty?", "FP32", "1"), ("beam_width?", "INT32", "1"),
    ("return_log_probs?", "BOOL", "1"), ("stream?", "BOOL", "1"),
)  # fmt: skip
_CORE = {
    "top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty", "stream": "streaming",
}  # fmt: skip
_PARAMETERS = """max_beam_width batch_scheduler_policy kv_cache_free_gpu_mem_fraction max_tokens_in_paged_kv_cache
max_attention_window_size exclude_input_in_output enable_kv_cache_reuse enable_chunked_context
gpu_device_ids decoding_mode normalize_log_probs"""
_MODEL_PY = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("it does nothing")
"""


def write_templates(folder: Path, version: str) -> Path:
    """Write the five models of a version and a ``model.py`` for each."""
    for model, text in templates(version).items():
        (folder / model / "1").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(text)
        (folder / model / "1" / "model.py").write_text(f'"""Stands for {model}."""\n{_MODEL_PY}')
    return folder


def templates(version: str) -> dict[str, str]:
    at = VERSIONS.index(version)
    seed = "seed" if version == "1.2" else "random_seed"
    one = "-1" if version == "0.10" else "1"
    logits = "${logits_datatype}" if at >= VERSIONS.index("0.20") else "TYPE_FP32"
    core_inputs = [("input_ids", "INT32", "-1"), ("input_lengths", "INT32", "1"), ("request_output_len", "INT32", "1")]
    core_inputs += [(_CORE.get(name[:-1], name[:-1]) + "?", kind, dims) for name, kind, dims in _QUERY]
    core_inputs += [("stop_words_list?", "INT32", "2, -1"), (f"{seed}?", "UINT64", "1")]
    core_outputs = [("output_ids", "INT32", "-1, -1"), ("sequence_length", "INT32", "-1")]
    core_outputs += [("cum_log_probs", "FP32", "-1"), ("context_logits", logits, "-1, -1")]
    core_text = "dynamic_batching {\n  preferred_batch_size: [ ${triton_max_batch_size} ]\n"
    core_text += "  max_queue_delay_microseconds: ${max_queue_delay_microseconds}\n"
    core_text += "" if version == "0.10" else "  default_queue_policy: { max_queue_size: ${max_queue_size} }\n"
    core_text += "}\nmodel_transaction_policy { decoupled: ${decoupled_mode} }\n"
    core_text += "# enable_trt_overlap is only for experiments: ${enable_trt_overlap}\n"
    if at >= VERSIONS.index("0.20"):
        core_inputs.append(("encoder_input_features?", "${encoder_input_features_data_type}", "-1, -1"))
    if version == "1.2":
        core_inputs.append(("prompt_embedding_table?", "${prompt_embedding_table_data_type}", "-1, -1"))
    keys = {name: name for name in _PARAMETERS.split()}
    keys |= {"gpt_model_type": "batching_strategy", "gpt_model_path": "engine_dir"}
    before = [("QUERY", "STRING", one), ("REQUEST_OUTPUT_LEN", "INT32", one), ("STOP_WORDS_DICT?", "STRING", "-1")]
    made = [("INPUT_ID", "INT32", "-1"), ("REQUEST_INPUT_LEN", "INT32", "1"), ("STOP_WORDS_IDS", "INT32", "2, -1")]
    made.append(("OUT_REQUEST_LEN", "INT32", "1"))
    after = [("TOKENS_BATCH", "INT32", "-1, -1"), ("SEQUENCE_LENGTH", "INT32", "-1")]
    asked = [("text_input", "STRING", one), ("max_tokens", "INT32", one), ("stop_words?", "STRING", "-1")]
    asked += [*_QUERY, (f"{seed}?", "UINT64", "1")]
    answer = [("text_output", "STRING", "-1"), ("cum_log_probs", "FP32", "-1"), ("context_logits", logits, "-1, -1")]
    decoupled = "model_transaction_policy { decoupled: ${decoupled_mode} }\n"
    skip = {} if version == "0.10" else {"skip_special_tokens": "skip_special_tokens"}
    place = {"tokenizer_dir": "tokenizer_dir"}
    core = _model("tensorrt_llm", 'backend: "${triton_backend}"', core_inputs, core_outputs) + core_text
    core += "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + _parameters(keys)
    bls = _python("tensorrt_llm_bls", asked, answer[:1], {"accumulate_tokens": "accumulate_tokens"}, "bls")
    special = {**place, "add_special_tokens": "add_special_tokens"}
    special |= {} if version == "0.10" else {"engine_dir": "engine_dir"}  # for several modalities
    return {
        "preprocessing": _python("preprocessing", before, made, special),
        "tensorrt_llm": core,
        "postprocessing": _python("postprocessing", after, [("OUTPUT", "STRING", "-1")], {**place, **skip}),
        "ensemble": _model("ensemble", 'platform: "ensemble"', asked, answer) + _steps(asked, seed),
        "tensorrt_llm_bls": bls + decoupled,
    }


def _python(
    name: str, inputs: Iterable[Tensor], outputs: Iterable[Tensor], keys: dict[str, str], short: str = ""
) -> str:
    count = f"instance_group [ {{ count: ${{{short or name}_instance_count}} kind: KIND_CPU }} ]\n"
    return _model(name, 'backend: "python"', inputs, outputs) + count + _parameters(keys)


def _model(name: str, backend: str, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> str:
    head = f'name: "{name}"\n{backend}\nmax_batch_size: ${{triton_max_batch_size}}\n'
    return head + _tensors("input", inputs) + _tensors("output", outputs)


def _tensors(kind: str, tensors: Iterable[Tensor]) -> str:
    text = ""
    for name, type_, dims in tensors:
        full = type_ if type_.startswith(("$", "TYPE_")) else f"TYPE_{type_}"
        optional = " optional: true" if name.endswith("?") else ""
        text += f'{kind} [ {{ name: "{name.rstrip("?")}" data_type: {full} dims: [ {dims} ]{optional} }} ]\n'
    return text


def _parameters(keys: dict[str, str]) -> str:
    return "".join(
        f'parameters: {{ key: "{key}" value: {{ string_value: "${{{place}}}" }} }}\n' for key, place in keys.items()
    )


def _steps(asked: Sequence[Tensor], seed: str) -> str:
    first = {"QUERY": "text_input", "REQUEST_OUTPUT_LEN": "max_tokens", "STOP_WORDS_DICT": "stop_words"}
    ids = {
        "INPUT_ID": "_INPUT_ID",
        "REQUEST_INPUT_LEN": "_LENGTH",
        "STOP_WORDS_IDS": "_STOP",
        "OUT_REQUEST_LEN": "_MOST",
    }
    core = {
        "input_ids": "_INPUT_ID",
        "input_lengths": "_LENGTH",
        "request_output_len": "_MOST",
        "stop_words_list": "_STOP",
    }
    core |= {_CORE.get(name[:-1], name[:-1]): name[:-1] for name, _, _ in _QUERY} | {seed: seed}
    tokens = {"output_ids": "_IDS", "sequence_length": "_LEN", "cum_log_probs": "cum_log_probs"}
    tokens["context_logits"] = "context_logits"
    last = {"TOKENS_BATCH": "_IDS", "SEQUENCE_LENGTH": "_LEN"}
    steps = (
        ("preprocessing", first, ids),
        ("tensorrt_llm", core, tokens),
        ("postprocessing", last, {"OUTPUT": "text_output"}),
    )
    text = ""
    for model, inputs, outputs in steps:
        maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
        maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
        text += f'  step [ {{ model_name: "{model}" model_version: -1\n    ' + "\n    ".join(maps) + " } ]\n"
    return f"ensemble_scheduling {{\n{text}}}\n"


def write_llmapi(folder: Path, *inputs: Tensor, instances: bool = True) -> Path:
    """The model of the LLM API, with more inputs; ``instances`` says whether it may have several."""
    place = folder / "llmapi" / "tensorrt_llm"
    (place / "1").mkdir(parents=True)
    tensors = _tensors("input", [("text_input", "STRING", "-1"), ("streaming?", "BOOL", "1"), *inputs])
    tensors += _tensors("output", [("text_output", "STRING", "-1")])
    text = f'name: "tensorrt_llm"\nbackend: "python"\n{tensors}instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n'
    (place / "config.pbtxt").write_text(text)
    for name in ("model.py", "helpers.py"):
        (place / "1" / name).write_text('"""Stands for NVIDIA\'s."""\n' + "GPUS = 'gpu_device_ids'\n" * instances)
    (place / "1" / "model.yaml").write_text("model: TinyLlama\n")
    return folder


def built(folder: Path, version: str, *, tp: int = 1, batch: int = 16, paged: bool = False) -> Path:
    """What `llm build` leaves, as far as a repository needs it."""
    (folder / "engine").mkdir(parents=True)
    (folder / "tokenizer").mkdir()
    config = {
        "version": version,
        "pretrained_config": {"dtype": "bfloat16", "mapping": {"tp_size": tp, "pp_size": 1}},
        "build_config": {
            "max_batch_size": batch,
            "max_beam_width": 1,
            "plugin_config": {"use_paged_context_fmha": paged},
        },
    }
    (folder / "engine" / "config.json").write_text(json.dumps(config))
    for rank in range(tp):
        (folder / "engine" / f"rank{rank}.engine").write_bytes(b"an engine")
    release = next(release for release, number in RELEASES.values() if number == version)
    (folder / "build.json").write_text(json.dumps({"format": 1, "release": release}))
    return folder


def options(tmp_path: Path, kind: str = "0.13", **choices: object) -> LlmRepoOptions:
    release, version = RELEASES[kind]
    engine = tmp_path / "built"
    if not engine.exists():
        built(engine, version)
    folder = tmp_path / "templates"
    if not folder.exists():
        write_templates(folder, kind)
    return LlmRepoOptions(find_target(release), engine, folder, **choices)  # type: ignore[arg-type]


RELEASES = {
    "0.10": ("24.06", "0.10.0"), "0.13": ("24.09", "0.13.0"), "0.20": ("25.06", "0.20.0"), "1.2": ("26.07", "1.2.1"),
}  # fmt: skip
