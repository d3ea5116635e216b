"""``vlmsearch llm``: the command group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vlmsearch.cli.common import Group, json_option, option, print_json, release_option, server_options, with_flags

if TYPE_CHECKING:
    from vlmsearch.tensorrt_llm.serve import Ranks
    from vlmsearch.tensorrt_llm.versions import Target
    from vlmsearch.triton.server.commands import Endpoints

_FOLDER = click.Path(path_type=Path, file_okay=False)
_PLATFORMS = {
    **dict.fromkeys(("release", "templates"), ("tensorrtllm", "llmapi")),
    **dict.fromkeys(("models", "engine_dir", "tokenizer_dir"), ("tensorrtllm",)),
}
"""The options of ``llm repo`` that only some platforms use."""
_OF_THE_RECIPE = "The Triton release.  [default: the recipe's]"


@click.group(cls=Group, short_help="Build, make and serve language models with TensorRT-LLM.")
def llm() -> None:
    """Plan and build TensorRT-LLM engines, make their model repositories, and serve them with Triton."""


tp_option = option("--tp", type=int, help="Tensor parallelism.  [default: the recipe's]")
pp_option = option("--pp", type=int, help="Pipeline parallelism.  [default: the recipe's]")
dtype_option = option("--dtype", type=click.Choice(["float16", "bfloat16"]), help="[default: the recipe's]")


@llm.command()
@click.argument("recipe", metavar="RECIPE")
@release_option(_OF_THE_RECIPE)
@tp_option
@pp_option
@dtype_option
@option("--own-calibration", "calibration", is_flag=True, help="Calibrate with texts of your own.")
@json_option
def plan(recipe: str, as_json: bool, **choices: Any) -> None:
    """Print every step that builds a recipe's engines for a release.

    A RECIPE is a language model's name or a recipe file.
    """
    from vlmsearch.tensorrt_llm.plan import plan_text
    from vlmsearch.tensorrt_llm.rules import make_plan

    made = make_plan(recipe, **choices)
    if as_json:
        print_json(made.to_json())
    else:
        click.echo(with_flags(plan_text(made)), nl=False)


@llm.command()
@click.argument("recipe", metavar="RECIPE")
@option("--model", type=_FOLDER, metavar="DIR", help="The model's checkpoint.  [default: from the hub]")
@option("--out", type=_FOLDER, required=True, metavar="DIR", help="Where everything goes.")
@option("--scripts", type=_FOLDER, metavar="DIR", help="A checkout of TensorRT-LLM.  [default: the container's]")
@option("--calibration", type=_FOLDER, metavar="DIR", help="Texts of your own to calibrate with.")
@option("--docker/--here", "docker", default=None, help="In the release's container, or in this one.  [default: here]")
@option("--gpus", default="all", show_default=True, metavar="LIST", help="What docker gives the container.")
@release_option(_OF_THE_RECIPE)
@tp_option
@pp_option
@dtype_option
@option("--verbose", is_flag=True, help="Show what the steps print.")
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
    """Build a recipe's engines: what is done already is not done again.

    Each step writes into a folder of its own, which appears under --out when it was checked. Logs are in --out/logs.
    """
    import shutil

    from vlmsearch.cli.step_lines import StepLines
    from vlmsearch.tensorrt_llm.build import BuildJob, build_engine
    from vlmsearch.tensorrt_llm.checkpoint import model_folder
    from vlmsearch.tensorrt_llm.rules import make_plan

    made = make_plan(recipe, calibration=calibration is not None, **choices)
    outside = docker if docker is not None else shutil.which("trtllm-build") is None and bool(shutil.which("docker"))
    job = BuildJob(made, model or model_folder(made.recipe), out, scripts, calibration, outside, gpus)
    with StepLines(verbose=verbose) as lines:
        folder = build_engine(job, say=lines.say, show=lines.show)
    click.echo(f"{made.ranks} engine(s) in {folder}")
    click.echo(f"serve it: vlmsearch llm repo {out} --release {made.target.release} --out REPOSITORY")


@llm.command()
@click.argument("source", metavar="SOURCE")
@option("--out", type=_FOLDER, required=True, metavar="DIR", help="Where the repository goes.")
@option(
    "--platform",
    type=click.Choice(["tensorrtllm", "llmapi", "python"]),
    default="tensorrtllm",
    show_default=True,
    help="What runs the model.",
)
@release_option("The Triton release.  [default: what the engine was built for]")
@option("--templates", type=_FOLDER, metavar="DIR", help="NVIDIA's templates.  [default: the container's]")
@option("--set", "values", multiple=True, metavar="KEY=VALUE", help="A value: KEY or MODEL.KEY; several times.")
@option("--decoupled/--unary", default=True, show_default=True, help="Whether answers can be streamed.")
@option(
    "--models",
    type=click.Choice(["bls", "ensemble"]),
    default="bls",
    show_default=True,
    help="The ensemble with tensorrt_llm_bls, or without it.",
)
@option("--engine-dir", default="", metavar="PATH", help="Where the server finds the engines.  [default: as here]")
@option("--tokenizer-dir", default="", metavar="PATH", help="Where it finds the tokenizer.  [default: as here]")
@json_option
def repo(source: str, out: Path, platform: str, release: str | None, as_json: bool, **choices: Any) -> None:
    """Write a model repository.

    SOURCE is what `llm build` made (tensorrtllm), or a model: a folder, or for llmapi a hub's id.
    """
    _refuse_unused(platform)
    given = _settings(choices.pop("values"))
    if platform == "python":
        from vlmsearch._util.tables import as_dataclass, convert
        from vlmsearch.triton.repository.transformers import LlmOptions, write_repository

        _refuse_keys(given)
        options = replace(as_dataclass(LlmOptions, given, "--set", convert), decoupled=choices["decoupled"])
        models = list(write_repository(source, out, options).models)
    elif platform == "llmapi":
        from vlmsearch.tensorrt_llm.llmapi import write_llmapi_repository

        models = write_llmapi_repository(
            out,
            _target(release or _newest()),
            source,
            templates=choices["templates"],
            decoupled=choices["decoupled"],
            values=given,
        )
    else:
        from vlmsearch.tensorrt_llm.repository import LlmRepoOptions, write_llm_repository

        engines = LlmRepoOptions(_target(release or _built_for(source)), Path(source), values=given, **choices)
        models = write_llm_repository(out, engines)
    if as_json:
        print_json({"folder": str(out), "models": models})
        return
    click.echo(f"{out}: {', '.join(models)}")
    click.echo(f"serve it: vlmsearch llm serve {out}")


def _refuse_unused(platform: str) -> None:
    """Refuse options of the command line that do nothing for this platform; the environment's may be for others."""
    context = click.get_current_context()
    for parameter in context.command.params:
        platforms = _PLATFORMS.get(parameter.name or "", (platform,))
        source = context.get_parameter_source(parameter.name or "")
        if source is ParameterSource.COMMANDLINE and platform not in platforms:
            names = "/".join([*parameter.opts, *parameter.secondary_opts])
            raise click.UsageError(f"{names} is for --platform {' and '.join(platforms)}, not {platform}")


def _refuse_keys(given: Mapping[str, str]) -> None:
    """Refuse the setting of the Python platform that is an option."""
    if "decoupled" in given:
        raise click.UsageError("--set decoupled is an option of its own: --decoupled or --unary")


def _settings(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{one!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = value
    return found


def _target(release: str) -> Target:
    from vlmsearch.tensorrt_llm.versions import find_target

    return find_target(release)


def _newest() -> str:
    from vlmsearch.tensorrt_llm.versions import targets

    return targets()[-1].release


def _built_for(folder: str) -> str:
    from vlmsearch.errors import ConfigError
    from vlmsearch.tensorrt_llm.build import read_state

    release = read_state(Path(folder)).get("release")
    if not isinstance(release, str):
        raise ConfigError(f"{folder} does not say which release it was built for: name it with --release")
    return release


@llm.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS OF TRITONSERVER]")
@option("--world-size", type=click.IntRange(1), help="Ranks of the engine.  [default: as it was built]")
@option("--gpus", default="", metavar="N,M", help="Which GPUs.  [default: all]")
@server_options(seconds=1800.0)
@option("--docker", is_flag=True, help="Run the release's container.")
@release_option("The container's release.")
def serve(
    folder: Path,
    extra: tuple[str, ...],
    world_size: int | None,
    gpus: str,
    host: str,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    install: bool,
    docker: bool,
    release: str | None,
    **how: Any,
) -> None:
    """Serve a repository until Ctrl-C, with a process for each rank of its engine; ready when it says so."""
    from vlmsearch.cli.triton import check_docker, gpu_numbers, run_server
    from vlmsearch.tensorrt_llm.repository import ServedEngine, read_repository
    from vlmsearch.tensorrt_llm.serve import Ranks, ranks_docker_command
    from vlmsearch.triton.server.commands import Endpoints

    served = ServedEngine(world_size, ()) if world_size and not docker else read_repository(folder)
    ends = Endpoints(host, http_port, grpc_port, metrics_port)
    ranks = Ranks(world_size or served.ranks, gpu_numbers(gpus))
    if docker:
        check_docker(install=install)
        image = _target(_given(release)).image
        command = ranks_docker_command(image, folder, ends, ranks, folders=served.folders, extra=extra)
        run_server(command, ends, {}, **how)
        return
    command, environment = _here(folder, ends, ranks, extra, install=install, dry_run=how["dry_run"])
    run_server(command, ends, environment, **how)


def _given(release: str | None) -> str:
    from vlmsearch.errors import ConfigError

    if release is None:
        raise ConfigError("--docker needs --release, the one that the engine was built for")
    return release


def _here(
    folder: Path, ends: Endpoints, ranks: Ranks, extra: Sequence[str], *, install: bool, dry_run: bool
) -> tuple[list[str], dict[str, str]]:
    from vlmsearch._util.credentials import hub_tokens
    from vlmsearch.cli.triton import find_server
    from vlmsearch.tensorrt_llm.serve import find_mpirun, ranks_command

    binary = find_server(ends, install=install, dry_run=dry_run)
    mpirun = find_mpirun() if ranks.count > 1 and not dry_run else "mpirun"
    command = ranks_command(binary, folder, ends, ranks, mpirun=mpirun, extra=extra)
    return command, {**hub_tokens(), **binary.environment, **ranks.environment}  # for models that are a hub id
