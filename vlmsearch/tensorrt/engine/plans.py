"""TensorRT plans on disk: one for a model, a GPU, a TensorRT and a way of building it; several may be in one file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from vlmsearch._util.files import check_private, replace_file, writing
from vlmsearch._util.locks import only_one
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models.bundle import cache_folder

Shape = tuple[int, ...]
EnginePrecision = Literal["int8", "fp16", "fp32", "auto"]
Report: TypeAlias = Mapping[str, object]

APART = "apart"
"""The flag of what is made of several plans, which nothing but this library reads."""
_FORMAT = 1


@dataclass(frozen=True)
class Machine:
    """The machine of a plan: the full TensorRT version, the GPU's name and its compute capability (``sm_90``).

    ``cublas`` is the version of the cuBLAS whose kernels TensorRT can use, "" where there is none, or a plan has none.
    """

    tensorrt: str
    gpu: str
    architecture: str
    cublas: str = ""

    @property
    def bare(self) -> Machine:
        """Return the same, for plans of TensorRT's own kernels."""
        return dataclasses.replace(self, cublas="")


@dataclass(frozen=True)
class ShapeRange:
    """The shapes of one input in one optimization profile."""

    input: str
    min: Shape
    opt: Shape
    max: Shape


Profile: TypeAlias = tuple[ShapeRange, ...]
"""One optimization profile: the range of every input."""


@dataclass(frozen=True)
class PlanKey:
    """All that a plan's content depends on.

    ``onnx`` is the SHA-256 of the ONNX file it is built from. ``level`` is the builder's optimization level.
    ``fp16_layers`` are the layers that were left in FP16, ``flags`` all other settings by name.
    """

    onnx: str
    machine: Machine
    profiles: tuple[Profile, ...]
    precision: str
    level: int | None = None
    fp16_layers: tuple[str, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for it, the same in every process and version of Python."""
        return _digest(dataclasses.asdict(self))


@dataclass(frozen=True)
class Plan:
    """A plan on disk, complete when it was written; `read_plan` checks and reads it.

    ``attempts`` are the reports of all that was tried before it was chosen, its own among them; none where it was
    opened by its path.
    """

    path: Path
    key: PlanKey
    sha256: str
    size: int
    report: Report
    attempts: tuple[Report, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A request for an engine: ``model`` is the SHA-256 of a tower's float32 ONNX file."""

    model: str
    precision: EnginePrecision
    machine: Machine
    options: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for it."""
        return _digest(dataclasses.asdict(self))


def plans_folder() -> Path:
    """Return where plans are kept, in the user's cache."""
    return cache_folder() / "plans"


def find_plan(key: PlanKey) -> Plan | None:
    """Return the plan of ``key`` in the cache, or None.

    ModelUnavailableError for a cache that others may write to.
    """
    path = plans_folder() / f"{key.digest}.plan"
    _check_cached(path)
    try:
        plan = open_plan(path)
    except ModelUnavailableError:
        return None
    return plan if plan.key == key else None


def open_plan(path: Path) -> Plan:
    """Return the plan in a file with its description beside it.

    ModelUnavailableError where either is missing or damaged.
    """
    try:
        data = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            raise ModelUnavailableError(f"{path} is of another format; build it again")
        plan = Plan(path, _key(data["key"]), data["sha256"], int(data["size"]), data["report"])
        size = path.stat().st_size
    except OSError as exc:
        raise ModelUnavailableError(f"{path} is not a plan: {Path(exc.filename).name}: {exc.strerror}") from exc
    except (KeyError, TypeError, ValueError) as exc:
        raise ModelUnavailableError(f"the description of {path} is damaged ({exc!r}); build it again") from exc
    if size != plan.size:
        raise ModelUnavailableError(f"{path} is damaged ({size} bytes of {plan.size}); build it again")
    return plan


def read_plan(plan: Plan, *, here: Machine) -> bytes:
    """Return the content of a plan, for ``here``.

    ModelUnavailableError says why it does not fit, that it is damaged, or that others may write to the cache that it is
    in; nothing else may be deserialised.
    """
    _check_cached(plan.path)
    reasons = mismatches(plan.key, here)
    if reasons:
        raise ModelUnavailableError(f"{plan.path} does not fit: {'; '.join(reasons)}; build it again on this machine")
    try:
        data = plan.path.read_bytes()
    except OSError as exc:
        raise ModelUnavailableError(f"{plan.path} cannot be read: {exc.strerror}") from exc
    if hashlib.sha256(data).hexdigest() != plan.sha256:
        raise ModelUnavailableError(f"{plan.path} is damaged (its SHA-256 differs); build it again")
    return data


def read_or_discard(plan: Plan, *, here: Machine) -> bytes | None:
    """Return the content of a plan, or None where it is damaged or for another machine.

    Such a plan is removed. ``here`` is this machine.

    ModelUnavailableError where it cannot be read now: it may be whole.
    """
    _check_cached(plan.path)
    try:
        return read_plan(plan, here=here)
    except ModelUnavailableError as exc:
        if isinstance(exc.__cause__, OSError) and not isinstance(exc.__cause__, FileNotFoundError):
            raise
        discard_plan(plan)
        return None


def mismatches(key: PlanKey, here: Machine) -> list[str]:
    """Return why a plan may not be loaded here, in words; nothing where it fits."""
    pairs = [
        ("TensorRT", key.machine.tensorrt, here.tensorrt),
        ("the GPU", key.machine.gpu, here.gpu),
        ("the architecture", key.machine.architecture, here.architecture),
        ("cuBLAS", key.machine.cublas, (here.cublas or "none") if key.machine.cublas else ""),
    ]
    return [f"it was built for {what} {had}, and this is {has}" for what, had, has in pairs if had != has]


def store_plan(key: PlanKey, data: bytes, report: Report) -> Plan:
    """Put a built plan into the cache, whole or not at all.

    ModelUnavailableError where the disk refuses it.
    """
    folder = plans_folder()
    path = folder / f"{key.digest}.plan"
    plan = Plan(path, key, hashlib.sha256(data).hexdigest(), len(data), report)
    entry = {"format": _FORMAT, "key": dataclasses.asdict(key), "sha256": plan.sha256, "size": plan.size}
    with writing(folder):
        path.with_suffix(".json").unlink(missing_ok=True)  # an old description never lies beside a new file
        replace_file(path, data)
        replace_file(path.with_suffix(".json"), _text({**entry, "report": report}))
    return open_plan(path)


def discard_plan(plan: Plan) -> None:
    """Remove a plan that is of no use, description first."""
    for path in (plan.path.with_suffix(".json"), plan.path):
        with suppress(OSError):
            path.unlink()


def choose_plan(choice: Choice, plan: Plan) -> None:
    """From now on, ``plan`` answers ``choice``."""
    with writing(plans_folder()):
        entry = {
            "format": _FORMAT,
            "choice": dataclasses.asdict(choice),
            "plan": plan.key.digest,
            "attempts": plan.attempts,
        }
        replace_file(plans_folder() / f"{choice.digest}.choice.json", _text(entry))


def chosen_plan(choice: Choice) -> Plan | None:
    """Return the plan that answers ``choice``.

    None where none was chosen or it is gone; errors as `find_plan`.
    """
    _check_cached(plans_folder() / f"{choice.digest}.choice.json")
    chosen = _read_choice(plans_folder() / f"{choice.digest}.choice.json")
    return chosen[1] if chosen else None


def all_choices() -> list[tuple[Choice, Plan]]:
    """Return every choice whose plan is there, for any machine, the last one first."""
    paths = sorted(plans_folder().glob("*.choice.json"), key=_age)
    return [choice for path in paths if (choice := _read_choice(path))]


def _check_cached(path: Path) -> None:
    """Check a file of the cache and its folder.

    What lies elsewhere, as in a model repository, the user has named.
    """
    if path.parent == plans_folder():
        check_private(path.parent, path)


def _read_choice(path: Path) -> tuple[Choice, Plan] | None:
    """Return a choice and its plan; None where either is gone or damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        given = entry["choice"]
        options = tuple((name, value) for name, value in given["options"])
        choice = Choice(given["model"], given["precision"], Machine(**given["machine"]), options)
        plan = open_plan(plans_folder() / f"{entry['plan']}.plan")
        return choice, dataclasses.replace(plan, attempts=tuple(entry["attempts"]))
    except (OSError, KeyError, TypeError, ValueError, ModelUnavailableError):
        return None


def _age(path: Path) -> tuple[float, str]:
    """Orders files by when they were written, the newest first; one that is gone is last."""
    try:
        return -path.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name


@contextmanager
def building(what: PlanKey | Choice) -> Iterator[Plan | None]:
    """Let one thread of one process at a time into this block for a key.

    Gives the plan that somebody else finished meanwhile, which then need not be built. One that is damaged is removed.
    """
    with only_one(plans_folder() / f"{what.digest}.lock"):
        plan = find_plan(what) if isinstance(what, PlanKey) else chosen_plan(what)
        yield plan if plan and read_or_discard(plan, here=plan.key.machine) is not None else None


def _text(entry: Mapping[str, object]) -> bytes:
    return (json.dumps(entry, indent=2, ensure_ascii=False) + "\n").encode()


def _digest(data: Mapping[str, object]) -> str:
    form = json.dumps({"format": _FORMAT, **data}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(form.encode()).hexdigest()[:32]


def _key(data: dict[str, Any]) -> PlanKey:
    profiles = tuple(
        tuple(ShapeRange(r["input"], tuple(r["min"]), tuple(r["opt"]), tuple(r["max"])) for r in profile)
        for profile in data["profiles"]
    )
    return PlanKey(
        onnx=data["onnx"],
        machine=Machine(**data["machine"]),
        profiles=profiles,
        precision=data["precision"],
        level=data["level"],
        fp16_layers=tuple(data["fp16_layers"]),
        flags=tuple((name, value) for name, value in data["flags"]),
    )


_MARK = b"vlmsearch: plans"
_NUMBER = struct.Struct("<Q")


def join_plans(plans: Sequence[bytes]) -> bytes:
    """Return one file of several plans; of one plan the plan itself."""
    if len(plans) == 1:
        return plans[0]
    return b"".join([_MARK, *map(_NUMBER.pack, [len(plans), *map(len, plans)]), *plans])


def split_plans(data: bytes) -> list[bytes | memoryview]:
    """Return what `join_plans` was given: of several plans views, as they are large."""
    if not data.startswith(_MARK):
        return [data]
    start = len(_MARK) + _NUMBER.size
    (count,) = _NUMBER.unpack_from(data, len(_MARK))
    sizes = [_NUMBER.unpack_from(data, start + i * _NUMBER.size)[0] for i in range(count)]
    start += count * _NUMBER.size
    plans: list[bytes | memoryview] = []
    for size in sizes:
        plans.append(memoryview(data)[start : start + size])
        start += size
    return plans
