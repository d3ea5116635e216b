"""Which TensorRT-LLM each Triton release has, and how that version builds and serves: ``versions.toml``, read."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vlmsearch._util.tables import as_dataclass, read_table
from vlmsearch.errors import ConfigError

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM"
"""The repository of conversion scripts, for images that do not have them."""


@dataclass(frozen=True)
class Versions:
    """Versions in a release's container with TensorRT-LLM; "" is not known."""

    tensorrt_llm: str = ""
    tensorrt: str = ""
    cuda: str = ""
    python: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The way that TensorRT-LLM builds from version ``since`` on.

    ``scripts`` are paths of conversion scripts in its repository, a family each, and ``single`` the families whose
    script converts for one GPU and unquantised; ``formats`` is what ``quantize`` takes. ``root`` is where the image
    keeps ``examples/`` ("": nowhere). ``transformers`` is installed before Llama 3.1 is read ("": the container's own
    reads it). ``length`` is the flag for the longest request. ``clone`` and ``templates`` are the repository of the
    Triton templates and the folder in it. ``mandatory`` are the placeholders that need a value, ``absent`` those, and
    the inputs of the llmapi model, that only other versions have. ``calibration``: whether it takes local texts;
    ``uneven``: whether layers need not divide by pp. ``unverified`` was not read at this version's own tag.
    """

    since: str
    scripts: Mapping[str, str]
    quantize: str
    formats: tuple[str, ...]
    length: Literal["max_output_len", "max_seq_len"]
    paged: tuple[str, ...]
    root: str
    transformers: str
    clone: str
    templates: str
    calibration: bool
    uneven: bool
    llmapi: bool
    mandatory: Mapping[str, tuple[str, ...]]
    single: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True)
class Support:
    """The versions of TensorRT-LLM whose LLM API on PyTorch runs a family of models.

    ``since`` is the first of them, "" where no version lists the ``architecture``. ``reuse`` is the first that reuses
    blocks of the KV cache for prompts with pictures, "" where none is known.
    """

    architecture: str
    since: str = ""
    reuse: str = ""


@dataclass(frozen=True)
class Matrix:
    """The whole file. ``llmapi`` is what the LLM API runs, by the family in a recipe."""

    releases: Mapping[str, Versions]
    llmapi: Mapping[str, Support]
    toolchains: tuple[Toolchain, ...]


@dataclass(frozen=True)
class Target:
    """A Triton release with what its container builds with."""

    release: str
    versions: Versions
    toolchain: Toolchain

    @property
    def image(self) -> str:
        """Return the container."""
        return f"nvcr.io/nvidia/tritonserver:{self.release}-trtllm-python-py3"

    def since(self, version: str) -> bool:
        """Return whether its TensorRT-LLM is of that version or newer."""
        return _order(self.versions.tensorrt_llm) >= _order(version)

    def has(self, since: str) -> bool:
        """Return whether its version has what is there since another; "" is never."""
        return bool(since) and self.since(since)


@functools.cache
def matrix() -> Matrix:
    """Return the versions that are known here."""
    path = Path(__file__).with_name("versions.toml")
    table = read_table(path)
    return as_dataclass(Matrix, {**table, "toolchains": _inherited(table["toolchains"])}, str(path))


def targets() -> list[Target]:
    """Return every release whose engines can be planned, oldest first."""
    known = []
    for name, versions in matrix().releases.items():
        toolchain = _toolchain(versions.tensorrt_llm)
        if toolchain:
            known.append(Target(name, versions, toolchain))
    return known


def find_target(release: str) -> Target:
    """Return a release by its name; ConfigError names those that there are."""
    known = {target.release: target for target in targets()}
    if release in known:
        return known[release]
    last = targets()[-1]
    raise ConfigError(
        f"no TensorRT-LLM that is planned for is in Triton {release!r}: there are releases from {min(known)} to "
        f"{last.release} (TensorRT-LLM {last.versions.tensorrt_llm}); new models run there without engines, by "
        "`vlmsearch llm repo --platform llmapi`, and elsewhere by trtllm-serve"
    )


def stated_version(folder: Path) -> str:
    """Return the version that a checkout of TensorRT-LLM says it is; "" for any other folder."""
    mark = folder / "tensorrt_llm" / "version.py"
    stated = re.search(r'__version__ = "([^"]+)"', mark.read_text(encoding="utf-8")) if mark.is_file() else None
    return stated[1] if stated else ""


def same_version(version: str, other: str) -> bool:
    """Return whether the first three numbers of two versions of TensorRT-LLM are the same."""
    return _order(version) == _order(other)


def _inherited(toolchains: Any) -> list[dict[str, object]]:
    """Return each toolchain with what it has from the one before it."""
    chain: dict[str, Any] = {"mandatory": {}}
    chains = []
    for changes in toolchains:
        mandatory = {**chain["mandatory"], **changes.get("mandatory", {})}
        chain = {**chain, "unverified": [], **changes, "mandatory": mandatory}
        chains.append(chain)
    return chains


def _toolchain(version: str) -> Toolchain | None:
    fitting = [chain for chain in matrix().toolchains if version and _order(chain.since) <= _order(version)]
    return max(fitting, key=lambda chain: _order(chain.since)) if fitting else None


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
