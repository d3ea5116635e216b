"""Which TensorRT plan a tower of a repository gets, and whether the server can load it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch._util.gpu import find_driver
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import Bundle, Tower, model_file
from vlmsearch.models.recipe import Range, Shapes
from vlmsearch.tensorrt.engine.plans import APART, Choice, Plan, ShapeRange, all_choices, open_plan
from vlmsearch.triton.repository.options import RepoOptions

CODEC = ("cuda-bindings", "nvidia-nvimgcodec-cu12[nvjpeg]")
"""Packages that the server's Python needs to decode on a GPU."""
_ORDER = ("int8", "auto", "fp16", "fp32")
"""Of several plans of a tower the first."""


@dataclass(frozen=True)
class TowerPlan:
    """A plan's file, and what is known of it; of one that another program built, nothing.

    ``splits`` says that who runs it cuts a batch into what a profile takes, as `Engine` does and Triton does not.
    """

    path: Path
    plan: Plan | None
    splits: bool

    @property
    def count(self) -> int:
        """Return how many optimization profiles it has."""
        return len(self.plan.key.profiles) if self.plan else 1

    def shapes(self, given: Shapes) -> Shapes:
        """Return the shapes that it was built for, over all its profiles.

        They are ``given`` for a plan without a description.

        The batches are those of texts of every length, unless they are split.
        """
        if self.plan is None:
            return given
        ranges = [profile[0] for profile in self.plan.key.profiles]
        if ranges[0].input == "pixels":
            return Shapes(image_batch=_over(ranges, 0))
        lengths = _over(ranges, 1)
        every = [profile_range for profile_range in ranges if self.splits or profile_range.max[1] == lengths[2]]
        return Shapes(text_batch=_over(every, 0), text_length=lengths)


def find_tower_plan(
    bundle: Bundle, tower: Tower, model: str, options: RepoOptions, folder: Path | None = None
) -> TowerPlan | None:
    """Return the plan of one tower: ``MODEL.plan`` in ``folder``, else the one that was built here.

    None if there is none.

    ConfigError, with the command that makes the right one, where only plans are there that the server cannot load.
    """
    given, splits = folder / f"{model}.plan" if folder else None, options.platform == "python"
    if given and given.exists():
        described = given.with_suffix(".json").exists()
        placed = TowerPlan(given, open_plan(given) if described else None, splits)
        if placed.plan:
            _loadable(bundle, [placed.plan], options)
        return placed
    plans = [plan for _, plan in _built(bundle, tower, options)]
    if not plans:
        return None
    fitting = _loadable(bundle, plans, options)
    here = {device.name for device in find_driver().devices}
    names = sorted({plan.key.machine.gpu for plan in fitting})
    mine = [plan for plan in fitting if plan.key.machine.gpu in here] or (fitting if len(names) == 1 else [])
    if not mine:
        raise ConfigError(
            f"{model} has plans for {', '.join(names)}: put that of the server's GPU into a folder, as {model}.plan "
            f"with its {model}.json, and name it with `plans`"
        )
    return TowerPlan(mine[0].path, mine[0], splits)


def requirements_of(plan: TowerPlan) -> list[str]:
    """Return what the server's Python needs to run it."""
    if plan.plan is None:
        return ["cuda-bindings", "tensorrt"]
    machine = plan.plan.key.machine
    major = machine.cublas.partition(".")[0]  # that of CUDA, too
    cublas = [f"nvidia-cublas-cu{major}=={machine.cublas}.*"] if machine.cublas else []
    return ["cuda-bindings", f"tensorrt=={machine.tensorrt}", *cublas]


def build_command(bundle: Bundle, options: RepoOptions) -> str:
    """Return what builds the plans that the server can load, on a machine with its GPU."""
    install = f"pip install 'tensorrt=={options.found_tensorrt}.*' && " if options.platform == "tensorrt" else ""
    return f"{install}vlmsearch build {bundle.name} --engine tensorrt"


def _built(bundle: Bundle, tower: Tower, options: RepoOptions) -> list[tuple[Choice, Plan]]:
    """Return what was built of a tower, best first."""
    name = model_file(tower, "fp32")
    if name not in bundle.files:
        return []
    wanted = ("int8" if options.precision == "qdq" else options.precision,) if options.precision else _ORDER
    built = [
        (choice, plan)
        for choice, plan in all_choices()
        if choice.model == bundle.files[name].sha256 and choice.precision in wanted
    ]
    return sorted(built, key=lambda item: (wanted.index(item[0].precision), bool(item[0].options)))


def _loadable(bundle: Bundle, plans: Sequence[Plan], options: RepoOptions) -> list[Plan]:
    """Return the plans that the release's TensorRT loads.

    Triton's Python backend brings its own TensorRT, and our code.
    """
    if options.platform != "tensorrt":
        return list(plans)
    wanted = options.found_tensorrt
    fitting = [plan for plan in plans if _same(plan.key.machine.tensorrt, wanted)]
    if not fitting:
        have = ", ".join(sorted({plan.key.machine.tensorrt for plan in plans}))
        raise ConfigError(
            f"the plans of {bundle.name} were built by TensorRT {have}, and Triton {options.found_release.name} has "
            f"{wanted}: {build_command(bundle, options)}"
        )
    whole = [plan for plan in fitting if APART not in dict(plan.key.flags)]
    if not whole:
        batches = _over([profile[0] for profile in fitting[0].key.profiles], 0)
        raise ConfigError(
            f"the engine of {bundle.name} is made of several plans, and Triton's tensorrt platform loads one: "
            f"`{build_command(bundle, options)} --profile {','.join(map(str, batches))}`, or take `platform=python`"
        )
    return whole


def _same(version: str, other: str) -> bool:
    """Return whether two versions of TensorRT are the same, as far as both are given."""
    return all(part == wanted for part, wanted in zip(version.split("."), other.split(".")))


def _over(ranges: Sequence[ShapeRange], axis: int) -> Range:
    """Return one axis of all profiles: the least, the usual one of the widest, the greatest."""
    widest = max(ranges, key=lambda r: r.max[axis] - r.min[axis])
    return (min(r.min[axis] for r in ranges), widest.opt[axis], max(r.max[axis] for r in ranges))
