"""Commands that serve TensorRT-LLM engines: a process a rank, as TensorRT-LLM's own launcher starts them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.errors import ConfigError
from vlmsearch.triton.server.commands import Binary, Endpoints, server_command, shm_prefix


@dataclass(frozen=True)
class Ranks:
    """The processes of an engine, one for each rank; the first serves.

    ``gpus`` are the GPUs that all may use; () leaves them all.
    """

    count: int = 1
    gpus: tuple[int, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of the servers."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))} if self.gpus else {}


def ranks_command(
    binary: Binary, folder: Path, ends: Endpoints, ranks: Ranks, *, mpirun: str = "mpirun", extra: Sequence[str] = ()
) -> list[str]:
    """Return the command that serves a repository: the server itself for one process, else ``mpirun`` with one each.

    Ranks after the first load the engine alone. ConfigError for GPUs that are too few.
    """
    if ranks.gpus and len(ranks.gpus) < ranks.count:
        raise ConfigError(f"{ranks.count} ranks need {ranks.count} GPUs, and `gpus` names {len(ranks.gpus)}")
    if ranks.count == 1:
        return _rank_command(binary, folder, ends, 0, extra)
    command = [mpirun, "--allow-run-as-root"]
    for rank in range(ranks.count):
        command += ["-n", "1", *_rank_command(binary, folder, ends, rank, extra), ":"]
    return command


def find_mpirun() -> str:
    """Return the ``mpirun`` on PATH; ConfigError where there is none."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise ConfigError(
            "several ranks need mpirun, which is not on PATH: run this in NVIDIA's container, or with `docker=True`"
        )
    return mpirun


def _rank_command(binary: Binary, folder: Path, ends: Endpoints, rank: int, extra: Sequence[str]) -> list[str]:
    flags = ["--disable-auto-complete-config"]
    if rank:
        flags += ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
    flags.append(f"--backend-config=python,shm-region-prefix-name={shm_prefix(ends)}{rank}_")
    return server_command(binary, folder, ends, extra=[*flags, *extra])
