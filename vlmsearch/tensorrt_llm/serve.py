"""Commands that serve TensorRT-LLM engines: a process a rank, as TensorRT-LLM's own launcher starts them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.errors import ConfigError
from vlmsearch.triton.server.commands import Binary, Endpoints, server_command, shm_prefix


@dataclass(frozen=True)
class Ranks:
    """How many processes, and how they share the work.

    In leader mode there is one for each rank of the engine, and the first serves. An orchestrator is one process
    that starts the others itself (``spawn``) or finds them started, one more than there are ranks. ``gpus`` are the
    GPUs that all may use; () leaves them all. ``load`` are the models that the first loads, by explicit control; ()
    loads them all.
    """

    count: int = 1
    orchestrator: bool = False
    spawn: bool = True
    gpus: tuple[int, ...] = ()
    load: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """Return how many servers are started here."""
        if not self.orchestrator:
            return self.count
        return 1 if self.spawn else self.count + 1

    @property
    def environment(self) -> dict[str, str]:
        """Return what the servers are told by their environment."""
        told = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))} if self.gpus else {}
        if self.orchestrator:
            told |= {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": str(int(self.spawn))}
        return told


def ranks_command(
    binary: Binary, folder: Path, ends: Endpoints, ranks: Ranks, *, mpirun: str = "mpirun", extra: Sequence[str] = ()
) -> list[str]:
    """Return the command that serves a repository: the server itself for one process, else ``mpirun`` with one each.

    Ranks after the first load the engine alone. ConfigError for GPUs that are too few, and models that are not there.
    """
    absent = [name for name in ranks.load if not (folder / name / "config.pbtxt").is_file()]
    if absent:
        known = sorted(path.parent.name for path in folder.glob("*/config.pbtxt"))
        raise ConfigError(f"{folder} has no model {absent[0]!r}: there are {', '.join(known)}")
    if ranks.gpus and not ranks.orchestrator and len(ranks.gpus) < ranks.count:
        raise ConfigError(f"{ranks.count} ranks need {ranks.count} GPUs, and `gpus` names {len(ranks.gpus)}")
    if ranks.orchestrator and ranks.spawn and not ranks.gpus:
        raise ConfigError("an orchestrator gives no GPU memory to Triton's pools: name the GPUs with `gpus`")
    each = [_rank_command(binary, folder, ends, ranks, rank, extra) for rank in range(ranks.processes)]
    if len(each) == 1:
        return each[0]
    command = [mpirun, "--allow-run-as-root"]
    for one in each:
        command += ["-n", "1", *one, ":"]
    return command


def ranks_docker_command(
    image: str, folder: Path, ends: Endpoints, ranks: Ranks, *, folders: Sequence[Path] = (), extra: Sequence[str] = ()
) -> list[str]:
    """Return the ``docker run`` that serves a repository, with the ``folders`` it reads where they are outside.

    What a ``requirements.txt`` in the repository names is installed first.
    """
    inside = Endpoints("0.0.0.0")  # noqa: S104 - in the container; outside it is what was asked for
    ports = ((ends.http, inside.http), (ends.grpc, inside.grpc), (ends.metrics, inside.metrics))
    places = dict.fromkeys(one.absolute() for one in (folder, *folders))
    serve = ranks_command(Binary("tritonserver"), folder, inside, ranks, extra=extra)
    needed = folder.absolute() / "requirements.txt"
    if needed.is_file():
        serve = ["bash", "-c", f"pip install --quiet -r {shlex.quote(str(needed))} && exec {shlex.join(serve)}"]
    return [
        *("docker", "run", "--rm", "--init", "--gpus", "all", "--shm-size=2g", "--ulimit", "memlock=-1"),
        *(part for name, value in ranks.environment.items() for part in ("-e", f"{name}={value}")),
        *(part for outer, inner in ports for part in ("-p", f"{ends.host}:{outer}:{inner}")),
        *(part for one in places for part in ("-v", f"{one}:{one}:ro")),
        image,
        *serve,
    ]


def find_mpirun() -> str:
    """Return the ``mpirun`` on PATH; ConfigError where there is none."""
    found = shutil.which("mpirun")
    if found is None:
        raise ConfigError(
            "several ranks need mpirun, which is not on PATH: run this in NVIDIA's container, or with `docker=True`"
        )
    return found


def _rank_command(
    binary: Binary, folder: Path, ends: Endpoints, ranks: Ranks, rank: int, extra: Sequence[str]
) -> list[str]:
    flags = ["--disable-auto-complete-config"]
    load = ("tensorrt_llm",) if rank else ranks.load
    if load:
        flags += ["--model-control-mode=explicit", *(f"--load-model={name}" for name in load)]
    if ranks.orchestrator and ranks.spawn:
        flags += ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
        flags += [f"--cuda-memory-pool-byte-size={place}:0" for place in range(len(ranks.gpus))]
    flags.append(f"--backend-config=python,shm-region-prefix-name={shm_prefix(ends)}{rank}_")
    return server_command(binary, folder, ends, extra=[*flags, *extra])
