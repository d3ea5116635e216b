"""Turn a recipe and a Triton release into commands, and a plan for people.

The commands serve or build it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from vlmsearch.tensorrt_llm.arguments import add_arguments
from vlmsearch.tensorrt_llm.memory import PICTURES, MemoryPlan, PlannedPictures, plan_memory, token_bytes
from vlmsearch.tensorrt_llm.recipe import LlmRecipe, Vision
from vlmsearch.tensorrt_llm.versions import SOURCE, Target, first_with, matrix

StepName = Literal["checkpoint", "engine", "tokenizer", "check"]
RUN = "examples/run.py"
"""The program that runs a prompt through an engine, in TensorRT-LLM's repository of every version."""
_QUANTIZE = "examples/quantization/quantize.py"
PROMPT = "The capital of France is"
ANSWER = "answer.txt"
"""The file that the check writes: how the engine went on."""

_ALGORITHMS = {
    "none": "",
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "int4_awq": "W4A16_AWQ",
    "fp8": "FP8",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
}
"""The ``quant_algo`` in config.json; the conversion scripts' own SmoothQuant says more."""
_FOLDERS = {"gpt": "gpt2", "llama": "llama", "phi": "phi"}
"""Names of the folder that a model lies in: GPT's conversion script finds the variant in its path."""
_SMOOTHQUANT = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
_CALIBRATION = {"gpt": "lambada", "llama": "ccdv/cnn_dailymail"}
"""The data set of a conversion script, by default; quantize.py takes ``cnn_dailymail``."""
_CHECK_TOKENS = 16
_OPTIONS = "--extra_llm_api_options"
_UNREAD = "the flags of trtllm-serve were read at 0.18.2, 1.0.0 and 1.2.0rc6, and not in this container"
_INSTALL = ("pip", "install")
_PACKAGES = "https://pypi.nvidia.com"


@dataclass(frozen=True)
class Places:
    """The paths in the commands: in the container, unless they run here."""

    model: str
    scripts: str = "/scripts"
    checkpoint: str = "/out/checkpoint"
    engine: str = "/out/engine"
    tokenizer: str = "/out/tokenizer"
    calibration: str = ""


@dataclass(frozen=True)
class LlmPlan:
    """A recipe for a release, on ``tp`` x ``pp`` GPUs. ``calibration``: with texts of the user's own.

    ``pictures`` are those of a request to a vision model. ``gpu_memory`` are the bytes of a GPU, 0 where not known.
    """

    recipe: LlmRecipe
    target: Target
    tp: int
    pp: int
    calibration: bool = False
    pictures: PlannedPictures = PICTURES
    gpu_memory: int = 0

    @property
    def ranks(self) -> int:
        """Processes, and GPUs, that serve it."""
        return self.tp * self.pp

    @property
    def listed(self) -> str:
        """Return the model that the LLM API must list to run it."""
        return matrix().architectures[self.recipe.architecture.family]

    @property
    def first_served(self) -> str:
        """Return the first release whose LLM API runs it; "" is none."""
        family = self.recipe.architecture.family
        is_listed = any(family in target.llmapi for target in matrix().releases.values())
        return first_with(lambda target: family in target.llmapi) if is_listed else ""

    @property
    def is_served(self) -> bool:
        """Return whether the LLM API of this release runs it, without engines."""
        return self.recipe.architecture.family in self.target.llmapi

    @property
    def memory(self) -> MemoryPlan | None:
        """Return what a vision model needs on each GPU."""
        vision = self.recipe.vision
        return plan_memory(self.recipe, vision, self.pictures, self.ranks) if vision else None

    @property
    def llm_arguments(self) -> dict[str, str]:
        """Return the arguments of TensorRT-LLM's ``LLM`` that trtllm-serve has no flags for, with dots for tables."""
        arguments: dict[str, str] = {"dtype": self.recipe.dtype}
        if self.recipe.revision:
            arguments["revision"] = json.dumps(self.recipe.revision)
        if self.recipe.vision:  # the second request with pictures failed: TensorRT-LLM's issues 5038 and 14125
            arguments["kv_cache_config.enable_block_reuse"] = "false"
        return arguments

    @property
    def limit_arguments(self) -> dict[str, str]:
        """Return the other arguments: those for the limits and the GPUs."""
        limits = self.recipe.limits
        return {
            "max_batch_size": str(limits.batch),
            "max_seq_len": str(limits.sequence),
            "max_num_tokens": str(limits.tokens),
            "tensor_parallel_size": str(self.tp),
            "pipeline_parallel_size": str(self.pp),
        }

    @property
    def quantizes(self) -> bool:
        """Return whether quantize.py makes the checkpoint, and not the model's conversion script."""
        method = self.recipe.quantisation.method
        return method in ("int4_awq", "fp8") or (method == "int8_sq" and self.recipe.architecture.family == "phi")

    @property
    def calibration_set(self) -> str:
        """Return the data set of the hub that calibrates.

        It is "" where nothing is read, or texts of the user's own are.
        """
        if self.calibration or not self.calibrates:
            return ""
        return "cnn_dailymail" if self.quantizes else _CALIBRATION[self.recipe.architecture.family]

    @property
    def calibrates(self) -> bool:
        """Return whether the checkpoint depends on texts that are read to calibrate it."""
        quantisation = self.recipe.quantisation
        return self.quantizes or quantisation.method == "int8_sq" or quantisation.kv_cache == "int8"

    @property
    def longest(self) -> int:
        """Return what the flag for the longest request is given: the answer alone, or all of it."""
        limits = self.recipe.limits
        return limits.sequence - (limits.input if self.target.toolchain.length == "max_output_len" else 0)

    @property
    def tokens(self) -> int:
        """Return the tokens of a whole batch, not more than trtllm-build makes of them."""
        limits = self.recipe.limits
        max_tokens = limits.input if self.target.toolchain.length == "max_output_len" else limits.sequence
        return min(limits.tokens, limits.batch * max_tokens)

    @property
    def script(self) -> str:
        """Return the script that makes the checkpoint, in TensorRT-LLM's repository of that version."""
        folder = f"{self.target.toolchain.examples}/{self.recipe.architecture.family}"
        return _QUANTIZE if self.quantizes else f"{folder}/convert_checkpoint.py"

    @property
    def requirements(self) -> str:
        """Return the file of packages that is installed before the script, in that repository; "" is none."""
        prepares = self.transformers and self.quantizes
        return str(PurePosixPath(self.script).with_name("requirements.txt")) if prepares else ""

    @property
    def transformers(self) -> str:
        """Return the version of transformers that reads the model; "" where the container's own reads it."""
        return self.target.toolchain.transformers if self.recipe.architecture.rope == "llama3" else ""

    @property
    def algorithm(self) -> str:
        """Return the ``quant_algo`` that the checkpoint's config.json must have; "" is none."""
        method = self.recipe.quantisation.method
        return _SMOOTHQUANT if method == "int8_sq" and not self.quantizes else _ALGORITHMS[method]

    @property
    def kv_algorithm(self) -> str:
        """Return its ``kv_cache_quant_algo``."""
        kind = self.recipe.quantisation.kv_cache
        return "" if kind == "same" else kind.upper()

    @property
    def folder(self) -> str:
        """Return the name of the folder that the model must lie in."""
        return _FOLDERS[self.recipe.architecture.family]

    @property
    def places(self) -> Places:
        """Return the places in the container."""
        calibration = "/calibration" if self.calibration else ""
        return Places(f"/model/{self.folder}", self.target.root or "/scripts", calibration=calibration)

    @property
    def products(self) -> dict[StepName, tuple[str, ...]]:
        """Return the files of each step that must be there afterwards."""
        ranks = range(self.ranks)
        return {
            "checkpoint": ("config.json", *(f"rank{rank}.safetensors" for rank in ranks)),
            "engine": ("config.json", *(f"rank{rank}.engine" for rank in ranks)),
            "tokenizer": ("config.json",),
            "check": (ANSWER,),
        }

    def command(self, step: StepName, places: Places) -> list[str]:
        """Return the command of a step.

        It is a shell where something prepares the step; the tokenizer is copied without one.
        """
        commands = {"checkpoint": self.checkpoint_command, "engine": self.engine_command}
        command = commands.get(step, self.check_command)(places)
        preparation = self.preparation(step, places)
        if not preparation:
            return command
        return ["bash", "-c", " && ".join([*map(shlex.join, preparation), f"exec {shlex.join(command)}"])]

    def preparation(self, step: StepName, places: Places) -> list[list[str]]:
        """Return the commands that prepare a step, in the same container and shell.

        They install a transformers that reads Llama 3.1 where the container's own does not.
        """
        if not self.transformers or step not in ("checkpoint", "check"):
            return []
        commands = [[*_INSTALL, "--upgrade", f"transformers=={self.transformers}"]]
        if step == "check" or not self.requirements:
            return commands
        return [
            [*_INSTALL, f"tensorrt_llm=={self.target.tensorrt_llm}", "--extra-index-url", _PACKAGES],
            # nemo-toolkit among the requirements wants this PyYAML, which Cython 3 cannot compile
            [*_INSTALL, "wheel"],
            [*_INSTALL, "--no-build-isolation", "Cython<3.0", "pyyaml<6"],
            [*_INSTALL, "-r", f"{places.scripts}/{self.requirements}"],
            *commands,
        ]

    def server_command(self, *, host: str = "127.0.0.1", port: int = 8000, extra: Sequence[str] = ()) -> list[str]:
        """Return a shell that becomes trtllm-serve.

        It writes the options that have no flags to a file first.
        """
        flags = self.server_flags(host=host, port=port)
        options = shlex.quote(json.dumps(add_arguments({}, self.llm_arguments)))
        serve = f'exec {shlex.join([*flags, _OPTIONS])} "$options" {shlex.join(extra)}'.rstrip()
        return ["bash", "-c", f'options=$(mktemp) && echo {options} > "$options" && {serve}']

    def server_flags(self, *, host: str, port: int) -> list[str]:
        """Return ``trtllm-serve`` with its flags, OpenAI's interface without engines and Triton."""
        limits = self.limit_arguments
        command = ["trtllm-serve", self.model, "--backend", "pytorch", "--host", host, "--port", str(port)]
        for name in ("max_batch_size", "max_seq_len", "max_num_tokens"):
            command += [f"--{name}", limits[name]]
        return [*command, "--tp_size", str(self.tp), "--pp_size", str(self.pp)]

    @property
    def model(self) -> str:
        """Return what the LLM API loads: the hub's id, or the path of the recipe's checkpoint."""
        return self.recipe.source or str((self.recipe.folder / self.recipe.checkpoint).resolve())

    def checkpoint_command(self, places: Places) -> list[str]:
        """Return the command that converts or quantises the model."""
        recipe, quantisation = self.recipe, self.recipe.quantisation
        command = ["python3", f"{places.scripts}/{self.script}", "--model_dir", places.model]
        command += ["--output_dir", places.checkpoint, "--dtype", recipe.dtype]
        if recipe.architecture.family in self.target.toolchain.single:
            size = "128k" if recipe.architecture.rope == "longrope" else "4k"
            return [*command, "--model_type", f"Phi-3-mini-{size}-instruct"]
        command += ["--tp_size", str(self.tp), "--pp_size", str(self.pp)]
        if self.quantizes:
            command += ["--qformat", quantisation.method, "--calib_size", str(quantisation.samples)]
            command += ["--batch_size", str(quantisation.batch)]
            if quantisation.method == "int4_awq":
                command += ["--awq_block_size", str(quantisation.block_size)]
            if quantisation.kv_cache != "same":
                command += ["--kv_cache_dtype", quantisation.kv_cache]
        else:
            flags = {
                "int8_wo": ["--use_weight_only", "--weight_only_precision", "int8"],
                "int4_wo": ["--use_weight_only", "--weight_only_precision", "int4"],
                "int8_sq": ["--smoothquant", "0.5", "--per_token", "--per_channel"],
            }
            command += flags.get(quantisation.method, [])
            if quantisation.kv_cache == "int8":
                command.append("--int8_kv_cache")
        if places.calibration:
            command += ["--calib_dataset", places.calibration]
        return command

    def engine_command(self, places: Places) -> list[str]:
        """Return the ``trtllm-build`` that makes the engines."""
        recipe, limits, chain = self.recipe, self.recipe.limits, self.target.toolchain
        command = ["trtllm-build", "--checkpoint_dir", places.checkpoint, "--output_dir", places.engine]
        command += ["--max_batch_size", str(limits.batch), "--max_input_len", str(limits.input)]
        command += [f"--{chain.length}", str(self.longest), "--max_beam_width", str(limits.beams)]
        command += ["--max_num_tokens", str(self.tokens)]
        command += ["--gpt_attention_plugin", recipe.dtype, "--gemm_plugin", recipe.dtype]
        command += ["--context_fmha", "enable", "--remove_input_padding", "enable", *chain.paged]
        if self.ranks > 1:
            command += ["--workers", str(self.ranks)]
        return command

    def check_command(self, places: Places) -> list[str]:
        """Return the command that runs one prompt through the engines."""
        limits = self.recipe.limits
        ranks = ["mpirun", "--allow-run-as-root", "-n", str(self.ranks)] if self.ranks > 1 else []
        command = [*ranks, "python3", f"{places.scripts}/{RUN}", "--engine_dir", places.engine]
        command += ["--tokenizer_dir", places.tokenizer, "--input_text", PROMPT]
        return [*command, "--max_output_len", str(min(_CHECK_TOKENS, limits.sequence - limits.input))]

    def to_json(self) -> dict[str, object]:
        """Return everything there is to know before it is run."""
        if self.recipe.vision:
            return self._to_json_with_pictures(self.recipe.vision)
        places = self.places
        return {
            **self._to_json(),
            "quantisation": vars(self.recipe.quantisation),
            "calibration_set": self.calibration_set,
            "scripts": self.clone or places.scripts,
            "preparation": {step: self.preparation(step, places) for step in ("checkpoint", "check")},
            "commands": {
                "checkpoint": self.checkpoint_command(places),
                "engine": self.engine_command(places),
                "check": self.check_command(places),
            },
            "products": self.products,
            "unverified": self.target.unverified,
        }

    def _to_json_with_pictures(self, vision: Vision) -> dict[str, object]:
        memory = plan_memory(self.recipe, vision, self.pictures, self.ranks)
        return {
            **self._to_json(),
            "limits": vars(self.recipe.limits),
            "pictures": {**vars(self.pictures), "tokens": vision.tokens(self.pictures.side)},
            "memory": {**vars(memory), "total": memory.total},
            "fits": memory.total <= self.gpu_memory if self.gpu_memory else None,
            "command": self.server_flags(host="127.0.0.1", port=8000) if self.is_served else None,
            "llm_arguments": add_arguments({}, self.llm_arguments),
        }

    def _to_json(self) -> dict[str, object]:
        recipe, target = self.recipe, self.target
        given = ("release", "image", "triton", "tensorrt_llm", "tensorrt", "cuda", "python")
        return {
            "recipe": recipe.name,
            "source": recipe.source,
            "revision": recipe.revision,
            **{name: getattr(target, name) for name in given},
            "dtype": recipe.dtype,
            "tp": self.tp,
            "pp": self.pp,
        }

    @property
    def elsewhere(self) -> str:
        """Return how to run a model that no version of the LLM API lists."""
        other = f"vlmsearch llm build {self.recipe.argument}"
        if self.recipe.vision:
            limits = self.recipe.limits
            command = ["vllm", "serve", self.model, "--max-model-len", str(limits.sequence)]
            command += ["--max-num-seqs", str(limits.batch)]
            other = shlex.join([*command, *(("--revision", self.recipe.revision) if self.recipe.revision else ())])
        return f"the LLM API lists no {self.listed}: `{other}`"

    @property
    def clone(self) -> str:
        """Return the command that fetches the scripts, for an image that does not have them."""
        if self.target.root:
            return ""
        return f"git clone --depth 1 --branch v{self.target.tensorrt_llm} {SOURCE} SCRIPTS"


def plan_text(plan: LlmPlan) -> str:
    """Return everything a plan will do, as one string with commands that can be copied."""
    if plan.recipe.vision:
        return "".join(f"{line}\n" for line in _with_pictures(plan, plan.recipe.vision))
    lines = [*_what(plan), *_steps(plan)]
    lines += [f"unverified     {note}" for note in plan.target.unverified]
    return "".join(f"{line}\n" for line in lines)


def _what(plan: LlmPlan) -> Iterator[str]:
    places = plan.places
    yield f"{plan.recipe.name} for release {plan.target.release}"
    yield f"LLM API        {_without_engines(plan)}"
    yield f"container      {plan.target.image}"
    yield _versions(plan)
    yield f"{_model(plan)}, mounted at {places.model}"
    yield f"scripts        {plan.clone + ', mounted at ' if plan.clone else 'in the container: '}{places.scripts}"
    yield f"ranks          {plan.ranks} (tensor parallelism {plan.tp}, pipeline parallelism {plan.pp})"
    if places.calibration:
        yield f"calibration    your texts, mounted at {places.calibration}"
    if plan.calibration_set:
        own = ", or texts of your own: `calibration`" if plan.target.toolchain.calibration else ""
        yield f"calibration    {plan.calibration_set}, which step 2 downloads from the hub{own}"


def _versions(plan: LlmPlan) -> str:
    names = {
        "triton": "Triton",
        "tensorrt_llm": "TensorRT-LLM",
        "tensorrt": "TensorRT",
        "cuda": "CUDA",
        "python": "Python",
    }
    known = [f"{name} {getattr(plan.target, key)}" for key, name in names.items() if getattr(plan.target, key)]
    return f"versions       {', '.join(known)}"


def _model(plan: LlmPlan) -> str:
    recipe = plan.recipe
    where = f"{recipe.source} at {recipe.revision}" if recipe.source else recipe.checkpoint
    gated = ", after its licence was accepted on the hub" if recipe.gated else ""
    return f"model          {where} ({recipe.licence}{gated})"


def _without_engines(plan: LlmPlan) -> str:
    """Return how the LLM API runs the model, which engines are the other way to."""
    if not plan.first_served:
        return f"lists no {plan.listed}: this model needs engines"
    how = "without engines" if plan.recipe.quantisation.method == "none" else "without engines, not quantised"
    return f"runs it {how}, from {plan.first_served} on: vlmsearch llm serve {plan.recipe.argument} --docker"


def _with_pictures(plan: LlmPlan, vision: Vision) -> Iterator[str]:
    limits, pictures = plan.recipe.limits, plan.pictures
    memory = plan_memory(plan.recipe, vision, pictures, plan.ranks)
    tokens = vision.tokens(pictures.side)
    used = pictures.count * tokens
    if plan.is_served:
        yield f"{plan.recipe.name} for release {plan.target.release}, without engines"
        yield f"container      {plan.target.image}"
        yield _versions(plan)
    else:
        yield f"{plan.recipe.name}, without TensorRT-LLM"
    yield _model(plan)
    yield f"GPUs           {plan.ranks} (tensor parallelism {plan.tp}, pipeline parallelism {plan.pp})"
    yield f"requests       {limits.batch} at once, of {limits.sequence} tokens; {limits.input} of them are the prompt"
    sides = f"{pictures.count} of {pictures.side} x {pictures.side} pixels in a request"
    yield f"pictures       {sides}: {tokens} tokens a picture, {used} in all; {limits.input - used} are left for text"
    yield f"weights        {_gib(memory.decoder)} of the decoder, {_gib(memory.tower)} of the vision tower"
    yield f"KV cache       {_gib(memory.cache)}: {token_bytes(plan.recipe) // 1024} KiB a token of a request"
    yield f"activations    about {_gib(memory.activations)} of the vision tower, an estimate from its widths"
    yield f"memory         {_gib(memory.total)} on each GPU, with a tenth left free beside the cache"
    if plan.gpu_memory:
        fits = "yes" if memory.total <= plan.gpu_memory else "no: take fewer requests at once, or more GPUs with `tp`"
        yield f"fits           a GPU of {_gib(plan.gpu_memory)}: {fits}"
    if not plan.is_served:
        yield f"serve          {plan.elsewhere}"
        return
    yield "block reuse    off: the second request with pictures failed with it (TensorRT-LLM issue 14125)"
    yield f"serve          vlmsearch llm serve {plan.recipe.argument} --docker --release {plan.target.release}"
    yield f"  {_folded([*plan.server_flags(host='127.0.0.1', port=8000), _OPTIONS, 'OPTIONS'])}"
    yield f"options        {json.dumps(add_arguments({}, plan.llm_arguments))}"
    yield f"unverified     {_UNREAD}"
    if plan.target.engines is None:  # the notes of others are about their engines
        yield from (f"unverified     {note}" for note in plan.target.unverified)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _steps(plan: LlmPlan) -> Iterator[str]:
    yield "step 1         tokenizer: copied from the model to /out/tokenizer"
    yield "step 2         checkpoint"
    yield from _shell(plan, "checkpoint", plan.checkpoint_command(plan.places))
    yield "step 3         engine"
    yield from _shell(plan, "engine", plan.engine_command(plan.places))
    yield "step 4         check: one prompt, and how the engine goes on"
    yield from _shell(plan, "check", plan.check_command(plan.places))
    for name, files in plan.products.items():
        yield f"afterwards     {name}/: {', '.join(files)}"


def _shell(plan: LlmPlan, step: StepName, command: Sequence[str]) -> Iterator[str]:
    """Yield what runs in one shell: what prepares a step, and the step."""
    for prepared in plan.preparation(step, plan.places):
        yield f"  {shlex.join(prepared)} && \\"
    yield f"  {_folded(command)}"


def _folded(command: Sequence[str]) -> str:
    """Return a command on several lines, for a shell."""
    parts: list[list[str]] = [[]]
    for part in command:
        if part.startswith("--"):
            parts.append([])
        parts[-1].append(part)
    return " \\\n    ".join(shlex.join(part) for part in parts)
