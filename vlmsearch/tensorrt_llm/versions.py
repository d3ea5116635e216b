"""The supported releases of TensorRT-LLM, and how each builds and serves: ``versions.toml``, read."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmsearch._util.tables import as_dataclass, read_table
from vlmsearch.errors import ConfigError

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM"
"""The repository of conversion scripts, for images that do not have them."""


@dataclass(frozen=True)
class Engines:
    """The way that a release builds engines.

    ``examples`` is the folder of conversion scripts in TensorRT-LLM's repository. ``methods`` are the quantisations
    of each family, and ``single`` the families whose script converts for one GPU and must be told the model with
    ``--model_type``. ``length`` is the flag for the longest request. ``templates`` is the folder of Triton templates
    in the release's ``clone``, and ``mandatory`` are the placeholders that need a value. ``calibration``: whether
    it takes local texts; ``uneven``: whether layers need not divide by pp; ``llama3``: whether it has the position
    scaling of Llama 3.1. ``transformers`` is installed before Llama 3.1 is read ("": the container's own reads it).
    """

    examples: str
    methods: Mapping[str, tuple[str, ...]]
    length: Literal["max_output_len", "max_seq_len"]
    paged: tuple[str, ...]
    templates: str
    mandatory: Mapping[str, tuple[str, ...]]
    single: tuple[str, ...] = ()
    transformers: str = ""
    calibration: bool = True
    uneven: bool = True
    llama3: bool = True


@dataclass(frozen=True)
class Target:
    """A supported release: the container ``image``, the versions in it, and what they can.

    A release without ``triton`` is TensorRT-LLM's own container. ``root`` is where the image keeps ``examples/`` and
    templates ("": nowhere), ``clone`` the repository of the templates. ``llmapi`` are the families that its LLM API
    on PyTorch runs, ``upgraded`` the packages that this API needs newer than its container has them. ``absent`` are
    the placeholders, and the inputs of the llmapi model, that only other releases have. ``unverified`` was not read
    at this version's own tag.
    """

    image: str
    tensorrt_llm: str
    clone: str
    triton: str = ""
    tensorrt: str = ""
    cuda: str = ""
    python: str = ""
    root: str = ""
    llmapi: tuple[str, ...] = ()
    upgraded: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    engines: Engines | None = None
    release: str = field(default="", metadata={"given": False})

    def __str__(self) -> str:
        """Return its name and version."""
        return f"{self.release} (TensorRT-LLM {self.tensorrt_llm})"

    @property
    def toolchain(self) -> Engines:
        """Return how it builds engines; ConfigError where it builds none."""
        if self.engines is None:
            near = next(target for target in reversed(targets()) if target.engines)
            raise ConfigError(f"TensorRT-LLM {self.tensorrt_llm} builds no engines: the nearest that does is {near}")
        return self.engines


@dataclass(frozen=True)
class Matrix:
    """The whole file: the releases by name, oldest first, and the LLM API's names of the families in recipes."""

    releases: Mapping[str, Target]
    architectures: Mapping[str, str]


@functools.cache
def matrix() -> Matrix:
    """Return what is known here."""
    path = Path(__file__).with_name("versions.toml")
    made = as_dataclass(Matrix, read_table(path), str(path))
    named = {name: dataclasses.replace(target, release=name) for name, target in made.releases.items()}
    return Matrix(named, made.architectures)


def targets() -> list[Target]:
    """Return every supported release, oldest first."""
    return list(matrix().releases.values())


def newest() -> Target:
    """Return the newest container of Triton."""
    return [target for target in targets() if target.triton][-1]


def first_with(holds: Callable[[Target], bool]) -> str:
    """Return the name and version of the oldest release for which a condition holds."""
    return str(next(filter(holds, targets())))


def find_target(release: str) -> Target:
    """Return a release by its name; ConfigError names the nearest that there is."""
    known = matrix().releases
    if release in known:
        return known[release]
    near = min(reversed(targets()), key=lambda target: _distance(target, release))
    raise ConfigError(
        f"TensorRT-LLM of release {release!r} is not supported: the nearest is {near}, there are {', '.join(known)}"
    )


def stated_version(folder: Path) -> str:
    """Return the version that a checkout of TensorRT-LLM says it is; "" for any other folder."""
    mark = folder / "tensorrt_llm" / "version.py"
    stated = re.search(r'__version__ = "([^"]+)"', mark.read_text(encoding="utf-8")) if mark.is_file() else None
    return stated[1] if stated else ""


def same_version(version: str, other: str) -> bool:
    """Return whether the first three numbers of two versions of TensorRT-LLM are the same."""
    return _order(version) == _order(other)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _distance(target: Target, release: str) -> int:
    """Return how far a target is from a name: in months for one of Triton's, else by the version of TensorRT-LLM."""
    is_month = re.fullmatch(r"\d\d\.\d\d", release) is not None
    given, own = _order(release), _order(target.release if is_month else target.tensorrt_llm)
    scale = 12 if is_month else 100
    return abs((given[0] - own[0]) * scale + given[1] - own[1]) if given[1:] else 0
