"""``vlmsearch llm``: the command group."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vlmsearch.cli.common import Group, NumberRange, json_option, option, print_json, release_option, with_flags
from vlmsearch.cli.triton_server import ServerChoice, gpu_numbers, note, server_options

if TYPE_CHECKING:
    from vlmsearch.tensorrt_llm.plan import LlmPlan
    from vlmsearch.tensorrt_llm.repository import ServedEngine
    from vlmsearch.tensorrt_llm.serve import Ranks
    from vlmsearch.tensorrt_llm.versions import Target
    from vlmsearch.triton.server.commands import Binary

_FOLDER = click.Path(path_type=Path, file_okay=False)
_OF_TRITON = ("world_size", "grpc_port", "metrics_port", "seconds", "restart", "verbose", "install")
"""Options of ``llm serve`` for repositories, which Triton serves."""
_PLATFORMS = {
    **dict.fromkeys(("release", "templates"), ("tensorrtllm", "llmapi")),
    "models": ("tensorrtllm",),
}
"""Options of ``llm repo`` that only some platforms use."""
_OF_THE_RECIPE = "The Triton release.  [default: the recipe's]"


@click.group(cls=Group, short_help="Serve and build language models with TensorRT-LLM.")
def llm() -> None:
    """Serve language and vision models with TensorRT-LLM, or build engines for Triton."""


tp_option = option("--tp", type=int, help="Tensor parallelism.  [default: the recipe's]")
pp_option = option("--pp", type=int, help="Pipeline parallelism.  [default: the recipe's]")
dtype_option = option("--dtype", type=click.Choice(["float16", "bfloat16"]), help="[default: the recipe's]")


@llm.command()
@click.argument("recipe", metavar="RECIPE")
@release_option(_OF_THE_RECIPE)
@tp_option
@pp_option
@dtype_option
@option("--own-calibration", "calibration", is_flag=True, help="Calibrate with your own texts.")
@option("--pictures", type=click.IntRange(1), help="Pictures of a request to a vision model.  [default: 4]")
@option("--picture-side", type=click.IntRange(1), help="Pixels of a picture's side.  [default: 1024]")
@option("--gpu-memory", type=NumberRange(1), metavar="GIB", help="A GPU's memory.  [default: this machine's]")
@json_option
def plan(recipe: str, gpu_memory: float | None, as_json: bool, **choices: Any) -> None:
    """Print how a recipe is served for a release, and the steps that build its engines.

    A RECIPE is the name of a language model or a recipe file. For a vision model the plan has the memory that its
    weights, the KV cache and the pictures need.
    """
    from vlmsearch._util.gpu import find_driver
    from vlmsearch.tensorrt_llm.plan import plan_text
    from vlmsearch.tensorrt_llm.rules import make_plan

    here = min((device.memory for device in find_driver().devices), default=0) if gpu_memory is None else 0
    made = make_plan(recipe, gpu_memory=int((gpu_memory or 0) * 2**30) or here, **choices)
    if as_json:
        print_json(made.to_json())
    else:
        click.echo(with_flags(plan_text(made)), nl=False)


@llm.command()
@click.argument("recipe", metavar="RECIPE")
@option("--model", type=_FOLDER, metavar="DIR", help="The model's checkpoint.  [default: from the hub]")
@option("--out", type=_FOLDER, required=True, metavar="DIR", help="The output folder.")
@option("--scripts", type=_FOLDER, metavar="DIR", help="A checkout of TensorRT-LLM.  [default: the container's]")
@option("--calibration", type=_FOLDER, metavar="DIR", help="A folder of your own texts to calibrate with.")
@option("--docker/--here", "docker", default=None, help="Build in the release's container, or here.  [default: here]")
@option("--gpus", default="all", show_default=True, metavar="LIST", help="GPUs of the container.")
@release_option(_OF_THE_RECIPE)
@tp_option
@pp_option
@dtype_option
@option("--verbose", is_flag=True, help="Show the output of the steps.")
def build(
    recipe: str,
    model: Path | None,
    out: Path,
    scripts: Path | None,
    calibration: Path | None,
    docker: bool | None,
    gpus: str,
    verbose: bool,
    **choices: Any,
) -> None:
    """Build the engines of a recipe. Finished steps are skipped.

    Each step writes its own folder, which appears under --out once it is checked. Logs are in --out/logs.
    """
    import shutil

    from vlmsearch.tensorrt_llm.build import BuildJob, build_engine
    from vlmsearch.tensorrt_llm.checkpoint import model_folder
    from vlmsearch.tensorrt_llm.rules import make_plan

    made = make_plan(recipe, calibration=calibration is not None, use="engines", **choices)
    outside = docker if docker is not None else shutil.which("trtllm-build") is None and bool(shutil.which("docker"))
    job = BuildJob(made, model or model_folder(made.recipe), out, scripts, calibration, outside, gpus)
    folder = build_engine(job, say=note, show=note if verbose else lambda _line: None)
    click.echo(f"{made.ranks} engine(s) in {folder}")
    click.echo(f"serve it: vlmsearch llm repo {shlex.quote(str(out))} --release {made.target.release} --out REPOSITORY")


@llm.command()
@click.argument("source", metavar="SOURCE")
@option("--out", type=_FOLDER, required=True, metavar="DIR", help="The folder of the repository.")
@option(
    "--platform",
    type=click.Choice(["llmapi", "tensorrtllm", "python"]),
    help="Runtime of the model.  [default: tensorrtllm for a folder, else llmapi]",
)
@release_option("The Triton release.  [default: the engine's]")
@option("--templates", type=_FOLDER, metavar="DIR", help="NVIDIA's templates.  [default: the container's]")
@option("--set", "values", multiple=True, metavar="KEY=VALUE", help="A value for KEY or MODEL.KEY; may be repeated.")
@option("--decoupled/--unary", default=True, show_default=True, help="Stream answers, or send each as one response.")
@option(
    "--models",
    type=click.Choice(["bls", "ensemble", "tensorrt_llm"]),
    default="bls",
    show_default=True,
    help="The ensemble with or without tensorrt_llm_bls, or tensorrt_llm alone, which reads token ids.",
)
@json_option
def repo(source: str, out: Path, platform: str | None, release: str | None, as_json: bool, **choices: Any) -> None:
    """Write a model repository.

    SOURCE is a model for llmapi: a recipe, the id of a hub model or a folder. For tensorrtllm it is the output of
    `llm build`, for python a folder.
    """
    platform = platform or ("tensorrtllm" if Path(source).is_dir() else "llmapi")
    _refuse_unused(platform)
    given = _settings(choices.pop("values"))
    if platform == "python":
        from vlmsearch._util.tables import as_dataclass, convert
        from vlmsearch.triton.repository.transformers import LlmOptions, write_repository

        settings = {"decoupled": str(choices["decoupled"]).lower(), **given}
        options = as_dataclass(LlmOptions, settings, "--set", convert)
        models = list(write_repository(source, out, options).models)
    elif platform == "llmapi":
        from vlmsearch.models.bundle import LANGUAGE, recipe_names
        from vlmsearch.tensorrt_llm.llmapi import write_llmapi_repository

        made = _served_plan(source, release) if source in recipe_names(LANGUAGE) else None
        models = write_llmapi_repository(
            out,
            made.target if made else _target(release or _newest()),
            made.model if made else source,
            templates=choices["templates"],
            decoupled=choices["decoupled"],
            values={**made.llm_arguments, **made.limit_arguments, **given} if made else given,
            pictures=made is not None and made.recipe.vision is not None,
        )
    else:
        from vlmsearch.tensorrt_llm.repository import LlmRepoOptions, write_llm_repository

        engines = LlmRepoOptions(_target(release or _built_for(source)), Path(source), values=given, **choices)
        models = write_llm_repository(out, engines)
    if as_json:
        print_json({"folder": str(out), "models": models})
        return
    click.echo(f"{out}: {', '.join(models)}")
    click.echo(f"serve it: vlmsearch llm serve {shlex.quote(str(out))}")


def _refuse_unused(platform: str) -> None:
    """Refuse flags that this platform does not use. Environment variables may be for other commands."""
    context = click.get_current_context()
    for parameter in context.command.params:
        platforms = _PLATFORMS.get(parameter.name or "", (platform,))
        source = context.get_parameter_source(parameter.name or "")
        if source is ParameterSource.COMMANDLINE and platform not in platforms:
            names = "/".join([*parameter.opts, *parameter.secondary_opts])
            raise click.UsageError(f"{names} is for --platform {' and '.join(platforms)}, not {platform}")


def _settings(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        settings[key.strip()] = value
    return settings


def _target(release: str) -> Target:
    from vlmsearch.tensorrt_llm.versions import find_target

    return find_target(release)


def _newest() -> str:
    from vlmsearch.tensorrt_llm.versions import newest

    return newest().release


def _served_plan(recipe: str, release: str | None) -> LlmPlan:
    """Return the plan of a recipe that the LLM API runs in a release.

    By default it is the newest.
    """
    from vlmsearch.tensorrt_llm.rules import make_plan

    return make_plan(recipe, release=release or _newest(), use="server")


def _built_for(folder: str) -> str:
    from vlmsearch.errors import ConfigError
    from vlmsearch.tensorrt_llm.build import read_state

    release = read_state(Path(folder)).get("release")
    if not isinstance(release, str):
        raise ConfigError(f"{folder} does not say which release it was built for: name it with --release")
    return release


@llm.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", metavar="DIR|RECIPE", type=click.Path(path_type=Path))
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS OF THE SERVER]")
@option("--world-size", type=click.IntRange(1), help="Ranks of the engine.  [default: as built]")
@option("--gpus", default="", metavar="N,M", help="Numbers of the GPUs.  [default: all]")
@option("--image", metavar="NAME", help="Container in place of the release's own.")
@server_options(seconds=1800.0, flag="--release", release="The container's release.  [default: for llmapi the last]")
def serve(
    folder: Path,
    extra: tuple[str, ...],
    world_size: int | None,
    gpus: str,
    image: str | None,
    server: ServerChoice,
) -> None:
    """Serve a recipe or a repository until Ctrl-C.

    A RECIPE is served by trtllm-serve, as it is, at openai:http://HOST:PORT/v1. The repository DIR is served by Triton,
    with a process for each rank of its engine; a line says when it is ready.
    """
    from vlmsearch._util.credentials import hub_tokens
    from vlmsearch.tensorrt_llm.repository import ServedEngine, read_repository
    from vlmsearch.tensorrt_llm.serve import Ranks, find_mpirun, ranks_command

    if image and not server.docker:
        raise click.UsageError("--image is the container of --docker: give both")
    if not folder.is_dir():
        _serve_recipe(str(folder), extra, gpu_numbers(gpus), image, server)
        return
    served = ServedEngine(world_size, ()) if world_size and not server.docker else read_repository(folder)
    ranks = Ranks(world_size or served.ranks, gpu_numbers(gpus))
    if server.docker:
        _serve_in_container(folder, extra, ranks, served, image, server)
        return
    binary = _find_tensorrt_llm(folder, server) if served.needs_tensorrt_llm else server.find()
    mpirun = find_mpirun() if ranks.count > 1 and not server.dry_run else "mpirun"
    command = ranks_command(binary, folder, server.ends, ranks, mpirun=mpirun, extra=extra)
    environment = {**hub_tokens(), **binary.environment, **ranks.environment}  # tokens for a model named by a hub id
    server.run(command, environment)


def _serve_recipe(
    recipe: str, extra: Sequence[str], gpus: tuple[int, ...], image: str | None, server: ServerChoice
) -> None:
    """Become trtllm-serve with a recipe, here or in NVIDIA's container, or print the command."""
    import os
    import shutil

    from vlmsearch._util.credentials import child_environment, hub_tokens
    from vlmsearch.building.hub import hub_cache
    from vlmsearch.errors import ModelUnavailableError
    from vlmsearch.tensorrt_llm.serve import Ranks
    from vlmsearch.triton.server.commands import INSIDE, docker_command

    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in _OF_TRITON:
            raise click.UsageError(f"{parameter.opts[0]} is for a repository, which Triton serves, not for a recipe")
    made = _served_plan(recipe, server.release)
    variables, ends = Ranks(made.ranks, gpus).environment, server.ends
    command = made.server_command(host=ends.host, port=ends.http, extra=extra)
    if server.docker:
        cache = hub_cache().absolute()
        command = docker_command(
            image or made.target.image,
            ends,
            made.server_command(host=INSIDE.host, port=INSIDE.http, extra=extra),
            [] if made.recipe.source else [Path(made.model)],
            gpu=True,
            environment={**variables, "HF_HUB_CACHE": str(cache)},
            passed=hub_tokens(),
            cache=cache,
            has_grpc=False,
            upgraded=() if image else made.target.upgraded,
        )
    if server.dry_run:
        shown = [] if server.docker else [f"{name}={value}" for name, value in variables.items()]
        click.echo(shlex.join([*shown, *command]))
        return
    if server.docker:
        if shutil.which("docker") is None:
            raise ModelUnavailableError("there is no docker on PATH: install it, or leave --docker out")
        hub_cache().mkdir(parents=True, exist_ok=True)  # docker would make it root's
    elif shutil.which("trtllm-serve") is None:
        raise ModelUnavailableError(
            "there is no trtllm-serve on PATH: use --docker, or run this where TensorRT-LLM is installed"
        )
    if not ends.is_local:
        note(f"Warning: {ends.host} lets other machines in, and trtllm-serve asks for no password")
    note(f"when it has started: openai:http://{ends.reach}:{ends.http}/v1?model={made.model}")
    os.execvpe(command[0], command, {**child_environment(), **hub_tokens(), **variables})  # noqa: S606


def _serve_in_container(
    folder: Path, extra: Sequence[str], ranks: Ranks, served: ServedEngine, image: str | None, server: ServerChoice
) -> None:
    """Serve a repository in NVIDIA's container, with what the server reads, downloads and needs for that."""
    from vlmsearch._util.credentials import hub_tokens
    from vlmsearch.building.hub import hub_cache
    from vlmsearch.errors import ConfigError
    from vlmsearch.tensorrt_llm.serve import ranks_command
    from vlmsearch.tensorrt_llm.versions import newest
    from vlmsearch.triton.server.commands import INSIDE, Binary, docker_command

    if server.release is None and served.has_engine and not image:
        raise ConfigError("--docker needs --release, the one that the engine was built for")
    if server.release is None and served.has_pictures and not image:
        raise ConfigError(
            f"no container of Triton up to {newest()} has the TensorRT-LLM of this repository, which reads pictures: "
            "serve it where that is installed, or serve a recipe by trtllm-serve: `vlmsearch llm serve NAME`"
        )
    target = _target(server.release or _newest())
    if not (target.triton or image):
        raise ConfigError(f"{target.image} has no Triton: the nearest that has it is {newest()}")
    serve = ranks_command(Binary("tritonserver"), folder, INSIDE, ranks, extra=extra)
    cache, tokens, environment = None, {}, ranks.environment
    if served.source:
        cache, tokens = hub_cache().absolute(), hub_tokens()
        environment = {**environment, "HF_HUB_CACHE": str(cache)}
        if not server.dry_run:
            cache.mkdir(parents=True, exist_ok=True)  # docker would make it root's
    places = [folder, *served.folders]
    command = docker_command(
        image or target.image,
        server.ends,
        serve,
        places,
        gpu=True,
        environment=environment,
        passed=tokens,
        cache=cache,
        upgraded=target.upgraded if served.needs_tensorrt_llm and not (served.has_engine or image) else (),
    )
    server.run(command, tokens)


def _find_tensorrt_llm(folder: Path, server: ServerChoice) -> Binary:
    """Return the tritonserver on PATH; the one that --install brings has no TensorRT-LLM."""
    from vlmsearch.errors import ModelUnavailableError
    from vlmsearch.tensorrt_llm.versions import newest
    from vlmsearch.triton.server.commands import Binary, on_path

    binary = on_path() or (Binary("tritonserver") if server.dry_run else None)
    if binary is None:
        last = newest()
        raise ModelUnavailableError(
            f"the models in {folder} need TensorRT-LLM, and there is no tritonserver on PATH that could have it: use "
            f"--docker, or run this in NVIDIA's container; the last that is known to have it is {last.image} "
            f"(TensorRT-LLM {last.tensorrt_llm})"
        )
    return binary


@llm.command()
@click.argument("url", default="http://127.0.0.1:8000", metavar="[URL]")
@json_option
def status(url: str, as_json: bool) -> None:
    """Show the language models of a server, and whether they read pictures.

    URL is the HTTP address of trtllm-serve, of another server with OpenAI's interface, or of Triton.
    """
    from dataclasses import asdict

    from vlmsearch.tensorrt_llm.status import served_models

    models = served_models(url)
    if as_json:
        print_json([asdict(model) for model in models])
        return
    reads = {True: "reads pictures", False: "reads texts alone", None: "not a recipe: pictures not known"}
    for model in models:
        click.echo("\t".join((model.model, model.recipe or "-", reads[model.has_pictures], model.generator)))
