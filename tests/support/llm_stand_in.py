"""TensorRT-LLM's commands as far as their arguments and products go: nothing is converted or compiled.

Each takes the arguments that the version takes, with its choices, and refuses every other one. Sources are those of
``vlmsearch/tensorrt_llm/versions.toml``. What one is to do wrong stands in ``$STAND_IN``: ``{"engine": "fail"}``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
DTYPES = ["float32", "bfloat16", "float16"]
FORMATS = ["fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec"]
PHIS = ["phi-2", "Phi-3-mini-4k-instruct", "Phi-3-mini-128k-instruct"]
BLOCKS = {"0.10.0": 64}
"""Tokens in a block of the KV cache, where they are not 32."""
ALGORITHMS = {"fp8": "FP8", "int8_sq": "W8A8_SQ_PER_CHANNEL", "int4_awq": "W4A16_AWQ"}


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def add(parser: argparse.ArgumentParser, names: str, **settings: Any) -> None:
    for name in names.split():
        parser.add_argument(f"--{name}", **settings)


def new_parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(allow_abbrev=False)


def convert_parser(family: str, version: str) -> argparse.ArgumentParser:
    parser = new_parser()
    add(parser, "model_dir output_dir")
    if family == "phi" and version == "0.10.0":
        add(parser, "dtype", choices=DTYPES, default="float16")
        add(parser, "model_type", choices=PHIS, default=PHIS[0])
        return parser
    add(parser, "tp_size pp_size workers", type=int, default=1)
    choices = [*DTYPES, "auto"] if order(version) >= (0, 20) else DTYPES
    add(parser, "dtype", choices=choices, default=choices[-1])
    add(parser, "use_weight_only", action="store_true")
    precisions = ["int8", "int4", "int4_gptq"] if family == "llama" else ["int8", "int4"]
    add(parser, "weight_only_precision", nargs="?", const="int8", default="int8", choices=precisions)
    if family == "phi":
        add(parser, "moe_tp_size moe_ep_size", type=int, default=-1)
        return parser
    add(parser, "int8_kv_cache per_channel per_token use_parallel_embedding", action="store_true")
    add(parser, "smoothquant", type=float)
    add(parser, "embedding_sharding_dim", type=int, choices=[0, 1], default=0)
    if order(version) < (0, 20):
        add(parser, "use_embedding_sharing", action="store_true")
    if family == "gpt":
        add(parser, "nemo_ckpt_path calib_dataset dataset_cache_dir log_level")
        return parser
    add(parser, "meta_ckpt_dir hidden_act")
    if version != "0.10.0":
        add(parser, "calib_dataset", default="ccdv/cnn_dailymail")
    add(parser, "load_by_shard load_model_on_cpu per_group", action="store_true")
    return parser


def quantize_parser(version: str) -> argparse.ArgumentParser:
    parser = new_parser()
    new = version != "0.10.0"
    add(parser, "model_dir", required=not new)
    formats = ["nvfp4", *FORMATS] if order(version) >= (0, 20) else FORMATS
    add(parser, "qformat", choices=formats, default="full_prec")
    add(parser, "kv_cache_dtype", choices=["int8", "fp8"])
    add(parser, "output_dir device")
    add(parser, "batch_size tp_size pp_size", type=int, default=1)
    add(parser, "awq_block_size", type=int, default=128)
    add(parser, "calib_size", type=int, default=512)
    add(parser, "seed", type=int, default=1234)
    add(parser, "dtype", choices=[*DTYPES, "auto"] if order(version) >= (0, 20) else None)
    if new:
        add(parser, "calib_dataset nemo_ckpt_path")
        add(parser, "tokenizer_max_seq_length calib_max_seq_length", type=int)
    else:
        add(parser, "max_seq_length", type=int)
    if order(version) >= (0, 20):
        add(parser, "quantize_lm_head", action="store_true")
    return parser


def run_parser() -> argparse.ArgumentParser:
    """run.py's: the same for what is used here from 0.11.0 to the commits of examples/models/core."""
    parser = new_parser()
    add(parser, "max_output_len", type=int, required=True)
    add(parser, "max_input_length", type=int, default=923)
    add(parser, "input_text", nargs="+", default=["Born in north-east France, Soyer trained as a"])
    add(parser, "input_file output_csv output_npy output_logits_npy tokenizer_dir tokenizer_type vocab_file")
    add(parser, "engine_dir", default="engine_outputs")
    add(parser, "num_beams top_k", type=int, default=1)
    add(parser, "temperature", type=float, default=1.0)
    add(parser, "run_profiling streaming use_py_session debug_mode enable_chunked_context", action="store_true")
    add(parser, "kv_cache_free_gpu_memory_fraction", type=float, default=0.9)
    return parser


def build_parser(version: str) -> argparse.ArgumentParser:
    parser = new_parser()
    add(parser, "checkpoint_dir model_config build_config input_timing_cache log_level logits_dtype")
    add(parser, "output_dir", default="engine_outputs")
    add(parser, "max_input_len", type=int, default=1024)
    add(parser, "max_beam_width workers", type=int, default=1)
    add(parser, "max_batch_size max_num_tokens opt_num_tokens max_prompt_embedding_table_size", type=int)
    kinds = ["float16", "float32", "bfloat16", "disable"]
    switches = "context_fmha remove_input_padding use_paged_context_fmha multiple_profiles"
    if version == "0.10.0":
        add(parser, "max_output_len", type=int)
        add(parser, "tp_size pp_size", type=int, default=1)
        add(parser, "strongly_typed", action="store_true")
        add(parser, "weight_only_precision", choices=["int8", "int4"])
        switches += " use_custom_all_reduce multi_block_mode context_fmha_fp32_acc paged_kv_cache"
    else:
        add(parser, "max_seq_len", type=int)
        kinds += ["auto", "int32"]
        add(parser, "paged_kv_cache")
        add(parser, "kv_cache_type", type=str.lower, choices=["continuous", "paged", "disabled"])
    add(parser, "gpt_attention_plugin gemm_plugin lora_plugin moe_plugin nccl_plugin", choices=kinds)
    add(parser, switches, choices=["enable", "disable"])
    return parser


def shape_of(model: Path) -> dict[str, int]:
    config = json.loads((model / "config.json").read_text())
    pairs = [("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"), ("hidden_size", "n_embd")]
    shape = {new: config.get(new, config.get(old)) for new, old in pairs}
    return {**shape, "num_key_value_heads": config.get("num_key_value_heads", shape["num_attention_heads"])}


def read_model(model: str, version: str) -> None:
    """What transformers' AutoConfig would refuse in that version's image, with trust_remote_code."""
    config = json.loads((Path(model) / "config.json").read_text())
    for name in config.get("auto_map", {}).values():
        assert (Path(model) / f"{name.partition('.')[0]}.py").is_file(), f"{name} cannot be imported"
    scaling = config.get("rope_scaling") or {}
    if version == "0.13.0" and "llama3" in scaling.values() and "transformers==4.44.2" not in installed_here():
        raise SystemExit(f"ValueError: `rope_scaling` must be a dictionary with two fields, got {scaling}")


def pip(arguments: list[str]) -> None:
    """Install nothing, and write down for which shell it would be."""
    assert arguments.pop(0) == "install", arguments
    parser = new_parser()
    parser.add_argument("packages", nargs="*")
    parser.add_argument("-r", dest="requirements", type=Path)
    add(parser, "extra-index-url")
    add(parser, "upgrade no-build-isolation", action="store_true")
    args = parser.parse_args(arguments)
    packages = [*args.packages, *(args.requirements.read_text().splitlines() if args.requirements else ())]
    with (Path(sys.argv[0]).parents[1] / "pip.log").open("a") as file:
        file.writelines(f"{os.getppid()} {package}\n" for package in packages)


def installed_here() -> list[str]:
    """The packages that pip has installed in the shell that became this script."""
    log = Path(sys.argv[0]).parents[3] / "pip.log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [package for shell, package in lines if shell == str(os.getpid())]


def write_checkpoint(
    args: argparse.Namespace, algorithm: str | None, kv_algorithm: str | None, *, group: int | None = None
) -> None:
    out = Path(args.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": kv_algorithm, "group_size": group}
    tp, pp = getattr(args, "tp_size", 1), getattr(args, "pp_size", 1)
    mapping = {"world_size": tp * pp, "tp_size": tp, "pp_size": pp}
    config: dict[str, Any] = {
        "architecture": "X",
        "dtype": args.dtype,
        **shape_of(Path(args.model_dir)),
        "mapping": mapping,
        "quantization": quantization,
    }
    if hasattr(args, "model_type"):  # Phi's of 0.10 writes neither
        del config["mapping"], config["num_key_value_heads"]
    spoil(config, "checkpoint")
    (out / "config.json").write_text(json.dumps(config))
    for rank in range(mapping["world_size"]):
        (out / f"rank{rank}.safetensors").write_bytes(b"weights of a rank")
    after(out, "checkpoint")


def convert(family: str, version: str, arguments: list[str]) -> None:
    args = convert_parser(family, version).parse_args(arguments)
    before("checkpoint")
    read_model(args.model_dir, version)
    if family == "gpt":
        assert "gpt2" in args.model_dir, "the variant of GPT is not in the path"
    if family == "phi":
        assert getattr(args, "pp_size", 1) == 1, "Pipeline parallelism is not supported."
    algorithm = None
    if getattr(args, "use_weight_only", False):
        algorithm = {"int8": "W8A16", "int4": "W4A16"}[args.weight_only_precision]
    if family != "phi" and args.smoothquant:
        assert args.per_token
        assert args.per_channel
        algorithm = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
    write_checkpoint(args, algorithm, "INT8" if getattr(args, "int8_kv_cache", False) else None)


def quantize(version: str, arguments: list[str]) -> None:
    args = quantize_parser(version).parse_args(arguments)
    before("checkpoint")
    read_model(args.model_dir, version)
    if getattr(args, "calib_dataset", None):
        assert Path(args.calib_dataset).is_dir()
    kv = args.kv_cache_dtype.upper() if args.kv_cache_dtype else None
    group = args.awq_block_size if args.qformat == "int4_awq" else None
    write_checkpoint(args, ALGORITHMS[args.qformat], kv, group=group)


def token_limit(version: str, args: argparse.Namespace) -> int:
    """Return what trtllm-build makes of ``--max_num_tokens``."""
    largest: int = args.max_batch_size * (getattr(args, "max_seq_len", None) or args.max_input_len)
    given: int = args.max_num_tokens
    return max(min(given, largest), BLOCKS.get(version, 32))


def build(version: str, arguments: list[str]) -> None:
    args = build_parser(version).parse_args(arguments)
    before("engine")
    pretrained = json.loads((Path(args.checkpoint_dir) / "config.json").read_text())
    out = Path(args.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    names = ["max_batch_size", "max_input_len", "max_seq_len", "max_output_len", "max_beam_width", "max_num_tokens"]
    limits = {name: getattr(args, name) for name in names if hasattr(args, name)}
    limits["max_num_tokens"] = token_limit(version, args)
    mapping = pretrained.setdefault("mapping", {"world_size": 1, "tp_size": 1, "pp_size": 1})
    pretrained.setdefault("num_key_value_heads", pretrained["num_attention_heads"])
    paged = args.use_paged_context_fmha == "enable"
    config = {
        "version": version,
        "pretrained_config": pretrained,
        "build_config": {**limits, "plugin_config": {"use_paged_context_fmha": paged}},
    }
    spoil(config, "engine")
    (out / "config.json").write_text(json.dumps(config))
    for rank in range(mapping["world_size"]):
        assert (Path(args.checkpoint_dir) / f"rank{rank}.safetensors").stat().st_size
        (out / f"rank{rank}.engine").write_bytes(b"an engine")
    after(out, "engine")


def serve_parser(version: str) -> argparse.ArgumentParser:
    """trtllm-serve: its page in the documentation of 0.18.2, 1.0.0 and 1.2.0rc6, and commands/serve.py at 00209af."""
    parser = new_parser()
    parser.add_argument("model")
    add(parser, "tokenizer host extra_llm_api_options")
    add(parser, "port max_beam_width max_batch_size max_num_tokens max_seq_len tp_size pp_size ep_size", type=int)
    choices = ["pytorch", "_autodeploy", *(["trt", "tensorrt"] if version == "1.2.1" else [])]
    add(parser, "backend", choices=choices)
    add(parser, "kv_cache_free_gpu_memory_fraction", type=float)
    add(parser, "trust_remote_code", action="store_true")
    return parser


def run(arguments: list[str]) -> None:
    args = run_parser().parse_args(arguments)
    if rank := int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")):
        return
    before("check")
    config = json.loads((Path(args.engine_dir) / "config.json").read_text())
    ranks = config["pretrained_config"]["mapping"]["world_size"]
    assert ranks == int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")), f"{ranks} ranks, {rank}"
    assert (Path(args.tokenizer_dir) / "tokenizer.json").is_file()
    print(f'Input [Text 0]: "{args.input_text[0]}"')
    answer = "" if fault("answer") == "empty" else ' Paris,\nand that of "Italy" is Rome.'
    print(f'Output [Text 0 Beam 0]: "{answer}"')


def mpirun(arguments: list[str]) -> None:
    assert arguments[:2] == ["--allow-run-as-root", "-n"], arguments
    size, command = arguments[2], arguments[3:]
    for rank in range(int(size)):
        environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": size}
        subprocess.run(command, env=environment, check=True)


def fault(step: str) -> str:
    return str(json.loads(os.environ.get("STAND_IN", "{}")).get(step, ""))


def before(step: str) -> None:
    print(f"[TensorRT-LLM] {step} begins", flush=True)
    if fault(step) == "fail":
        print("Traceback (most recent call last):\n  File x", flush=True)
        print(f"RuntimeError: CUDA out of memory in {step}", flush=True)
        print("a farewell without meaning", flush=True)
        raise SystemExit(3)
    if fault(step) == "hang":
        # a grandchild in a process group of its own, as MPI's are, that does not care for SIGTERM
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], preexec_fn=os.setpgrp)
        Path(os.environ["STAND_IN_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)


def spoil(config: dict[str, Any], step: str) -> None:
    """Make a product that is not what was asked for."""
    config = config.get("pretrained_config", config)
    wrong = fault(step)
    if wrong == "dtype":
        config["dtype"] = "float32"
    elif wrong == "algorithm":
        config["quantization"]["quant_algo"] = "W8A16"
    elif wrong == "no mapping":
        del config["mapping"]
    elif wrong == "tp":
        config["mapping"]["tp_size"] += 1


def after(out: Path, step: str) -> None:
    ranks = sorted(out.glob("rank*"))
    wrong = fault(step)
    if wrong == "empty":
        ranks[-1].write_bytes(b"")
    elif wrong == "missing":
        ranks[-1].unlink()
    elif wrong == "extra":
        ranks[0].with_name(ranks[0].name.replace("0", "7")).write_bytes(b"one too many")
    elif wrong == "json":
        (out / "config.json").write_text("{")
    print(f"[TensorRT-LLM] {step} ends", flush=True)


def install(root: Path, version: str) -> None:
    """A checkout of a version in ``root/scripts``, ``trtllm-build`` in ``root/bin``, and the package's metadata."""
    folder = "examples/models/core" if order(version) >= (0, 20) else "examples"
    head = f"import sys\nsys.path.insert(0, {str(_HERE)!r})\nimport llm_stand_in as stand_in\n"
    files = {
        f"scripts/{folder}/{family}/convert_checkpoint.py": f"stand_in.convert({family!r}, {version!r}, sys.argv[1:])\n"
        for family in ("gpt", "llama", "phi")
    }
    files["scripts/examples/quantization/quantize.py"] = f"stand_in.quantize({version!r}, sys.argv[1:])\n"
    files["scripts/examples/run.py"] = "stand_in.run(sys.argv[1:])\n"
    files["bin/pip"] = "stand_in.pip(sys.argv[1:])\n"
    files["bin/mpirun"] = "stand_in.mpirun(sys.argv[1:])\n"
    files["bin/trtllm-build"] = f"stand_in.build({version!r}, sys.argv[1:])\n"
    for name, body in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable} -S\n{head}{body}")  # without site, whose set-up takes most of the time
        path.chmod(0o755)
    (root / "scripts" / "examples" / "quantization" / "requirements.txt").write_text(f"tensorrt_llm=={version}\n")
    package = root / "scripts" / "tensorrt_llm"
    package.mkdir()
    (package / "version.py").write_text(f'__version__ = "{version}"\n')
    info = root / "packages" / f"tensorrt_llm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
