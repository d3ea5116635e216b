"""A plan, run: step by step, each product checked before it is published, and nothing done twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch._util.locks import take_lock
from vlmsearch._util.process import Command, Show, run_logged
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.tensorrt_llm.check import check_product
from vlmsearch.tensorrt_llm.checkpoint import check_model, check_scripts, copy_tokenizer, listing, mounted
from vlmsearch.tensorrt_llm.plan import ANSWER, PROMPT, RUN, LlmPlan, Places, StepName
from vlmsearch.tensorrt_llm.versions import same_version

STATE = "build.json"
_FORMAT = 1
_STEPS: tuple[StepName, ...] = ("tokenizer", "checkpoint", "engine", "check")
_ANSWERED = re.compile(r'^Output \[Text 0 Beam 0\]: "(.*?)"$', re.MULTILINE | re.DOTALL)
"""The answer in the output of run.py."""


@dataclass(frozen=True)
class BuildJob:
    """A plan with the folders it is run on.

    ``scripts`` is a checkout of TensorRT-LLM, needed where the container has no examples. ``docker`` runs each step
    in the release's container; otherwise this is one.
    """

    plan: LlmPlan
    model: Path
    out: Path
    scripts: Path | None = None
    calibration: Path | None = None
    docker: bool = False
    gpus: str = "all"


def build_engine(job: BuildJob, *, say: Callable[[str], None], show: Show) -> Path:
    """Run a job's steps, and give the folder of the engines.

    Steps that are done already are left out.

    ``say`` is told of each step, ``show`` each line that one prints. ConfigError before anything is run, BackendError
    for a step that fails or makes something else than planned; what was finished stays, and the next run goes on
    from there.
    """
    _check_job(job)
    job.out.mkdir(parents=True, exist_ok=True)
    with _locked(job.out):
        _check_target(job)
        keys = _keys(job)
        for number, step in enumerate(_STEPS, 1):
            title = f"[{number}/{len(_STEPS)}] {step}"
            if _is_done(job, step, keys[step]) or (step == "checkpoint" and _is_spent(job, keys)):
                say(f"{title}: done before")
                continue
            say(f"{title}: {_describe(job, step)}")
            start = time.monotonic()
            _run_step(job, step, show)
            seconds = time.monotonic() - start
            _write_state(job, step, {"key": keys[step], "seconds": round(seconds, 1)})
            say(f"{title}: done in {seconds:.0f} s")
            if step == "check":
                say(f"{title}: {PROMPT!r} goes on {(job.out / step / ANSWER).read_text(encoding='utf-8')!r}")
    return job.out / "engine"


def _run_step(job: BuildJob, step: StepName, show: Show) -> None:
    log = job.out / "logs" / f"{step}.log"
    log.parent.mkdir(exist_ok=True)
    with folder_in_the_making(job.out / step) as folder:
        if step == "tokenizer":
            copy_tokenizer(job.model, folder)
        else:
            start = log.stat().st_size if log.exists() else 0
            try:
                run_logged(_command(job, step, folder), log, show=show)
            except BackendError as exc:
                raise BackendError(f"{step} failed: {exc}") from exc
            answer = _ANSWERED.search(log.read_bytes()[start:].decode("utf-8", "replace"))
            if step == "check" and answer:
                (folder / ANSWER).write_text(answer[1].strip(), encoding="utf-8")
        try:
            check_product(folder, step, job.plan)
        except BackendError as exc:
            raise BackendError(f"{exc} (log: {log})" if log.exists() else str(exc)) from exc
        publish(folder, job.out / step)


def _command(job: BuildJob, step: StepName, folder: Path) -> Command:
    """Return the command of a step that writes into ``folder``."""
    plan, where = job.plan, folder.name
    if not job.docker:
        places = Places(
            str(_named_model(job)),
            str(_scripts(job)),
            str(folder if step == "checkpoint" else job.out.absolute() / "checkpoint"),
            str(folder if step == "engine" else job.out.absolute() / "engine"),
            str(job.out.absolute() / "tokenizer"),
            str(job.calibration.absolute()) if job.calibration else "",
        )
        return Command(plan.command(step, places))
    inside = plan.places
    top, rest = mounted(job.model)
    places = Places(
        f"{inside.model}/{rest}" if rest else inside.model,
        "/scripts" if job.scripts else inside.scripts,
        f"/out/{where}" if step == "checkpoint" else inside.checkpoint,
        f"/out/{where}" if step == "engine" else inside.engine,
        calibration=inside.calibration,
    )
    command = plan.command(step, places)
    name = f"vlmsearch-llm-{secrets.token_hex(6)}"
    mounts = [(top, f"{inside.model}:ro"), (job.out, "/out")]
    mounts += [(job.scripts, "/scripts:ro")] if job.scripts else []
    mounts += [(job.calibration, f"{inside.calibration}:ro")] if job.calibration else []
    arguments = [
        *("docker", "run", "--rm", "--init", "--name", name, "--gpus", job.gpus, "--shm-size=2g"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--user", f"{os.getuid()}:{os.getgid()}"),
        *("-e", "HOME=/tmp", "-e", "USER=vlmsearch"),
        *(part for outer, inner in mounts for part in ("-v", f"{outer.absolute()}:{inner}")),
        plan.target.image,
        *command,
    ]
    return Command(arguments, on_stop=("docker", "kill", name))


def _describe(job: BuildJob, step: StepName) -> str:
    if step == "tokenizer":
        return f"from {job.model}"
    program = {"checkpoint": job.plan.script, "engine": "trtllm-build"}.get(step, RUN)
    preparation = job.plan.preparation(step, job.plan.places)
    after = f" after pip install {preparation[-1][-1]}" if preparation else ""
    version = job.plan.target.tensorrt_llm
    return f"{program}, TensorRT-LLM {version}{after}, log in {job.out / 'logs'}/{step}.log"


def _named_model(job: BuildJob) -> Path:
    """Return a path of the model whose last part is what the conversion script looks for."""
    link = job.out.absolute() / ".model" / job.plan.folder
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(job.model.absolute(), target_is_directory=True)
    return link


def _scripts(job: BuildJob) -> Path:
    return job.scripts.absolute() if job.scripts else Path(job.plan.target.root)


def _check_job(job: BuildJob) -> None:
    plan = job.plan
    if job.calibration and not job.calibration.is_dir():
        raise ConfigError(f"{job.calibration} is not a folder: `calibration` is a folder with texts")
    check_model(job.model, plan)
    if job.scripts or not (job.docker and plan.target.root):
        if not job.scripts and plan.clone:
            raise ConfigError(
                f"the container of release {plan.target.release} has no conversion scripts: run `{plan.clone}` and "
                "give SCRIPTS as `scripts`"
            )
        check_scripts(_scripts(job), plan)
    if job.docker:
        if shutil.which("docker") is None:
            raise ConfigError("docker is not on PATH: install it, or run this inside the container with `docker=False`")
        return
    _check_here(plan)


def _check_here(plan: LlmPlan) -> None:
    """Check that this machine is the plan's container, as far as it matters."""
    if shutil.which("trtllm-build") is None:
        raise ConfigError(f"there is no trtllm-build here: run this in {plan.target.image}, or with `docker=True`")
    code = "import importlib.metadata as m; print(m.version('tensorrt_llm'))"
    python = shutil.which("python3")
    if python is None:
        raise ConfigError(f"there is no python3 here: run this in {plan.target.image}, or with `docker=True`")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    version, wanted = done.stdout.strip(), plan.target.tensorrt_llm
    if done.returncode or not same_version(version, wanted):
        has = f"TensorRT-LLM {version}" if version else "no TensorRT-LLM in python3"
        raise ConfigError(f"there is {has} here, and release {plan.target.release} has {wanted}: plan for what is here")


def _check_target(job: BuildJob) -> None:
    own = {STATE, ".lock", ".model", "logs", *_STEPS}
    strange = [path.name for path in job.out.iterdir() if path.name not in own and not path.name.endswith(".building")]
    if strange and not (job.out / STATE).exists():
        raise ConfigError(f"{job.out} holds {strange[0]!r}, which no build made: choose another `out`")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    try:
        lock = take_lock(out / ".lock", wait=False)
    except TimeoutError as exc:
        raise BackendError(f"another build is writing to {out}: wait for it, or choose another `out`") from exc
    except OSError as exc:
        raise ConfigError(f"{out} cannot be written to: {exc.strerror}: {str(exc.filename)!r}") from exc
    with lock:
        for left in out.glob(".*.building"):  # by a build that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield


def _keys(job: BuildJob) -> Mapping[StepName, str]:
    """Return what each step depends on, as a digest."""
    plan, places = job.plan, job.plan.places
    model, image = listing(job.model), plan.target.image
    texts = listing(job.calibration) if job.calibration else []
    checkpoint = _digest([plan.command("checkpoint", places), image, model, texts])
    engine = _digest([plan.command("engine", places), image, checkpoint])
    return {
        "tokenizer": _digest([model]),
        "checkpoint": checkpoint,
        "engine": engine,
        "check": _digest([plan.command("check", places), engine]),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def read_state(out: Path) -> dict[str, object]:
    """Return what ``build.json`` says of a folder's steps; {} where there is none that can be read."""
    try:
        state = json.loads((out / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) and state.get("format") == _FORMAT else {}


def _is_done(job: BuildJob, step: StepName, key: str) -> bool:
    steps = read_state(job.out).get("steps")
    entry = steps.get(step) if isinstance(steps, dict) else None
    if not isinstance(entry, dict) or entry.get("key") != key:
        return False
    try:
        check_product(job.out / step, step, job.plan)
    except BackendError:
        return False
    return True


def _is_spent(job: BuildJob, keys: Mapping[StepName, str]) -> bool:
    """Return whether the checkpoint was removed, and nothing needs it any more."""
    return not (job.out / "checkpoint").exists() and _is_done(job, "engine", keys["engine"])


def _write_state(job: BuildJob, step: StepName, entry: Mapping[str, object]) -> None:
    steps = read_state(job.out).get("steps")
    state = {
        "format": _FORMAT,
        "recipe": job.plan.recipe.name,
        "release": job.plan.target.release,
        "tp": job.plan.tp,
        "pp": job.plan.pp,
        "steps": {**(steps if isinstance(steps, dict) else {}), step: entry},
    }
    new = job.out / f".{STATE}.building"
    new.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    new.replace(job.out / STATE)
