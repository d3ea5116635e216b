"""Triton's releases and what is in each."""

from __future__ import annotations

from dataclasses import dataclass

from vlmsearch.errors import ConfigError


@dataclass(frozen=True)
class Release:
    """A release, by the name of its container."""

    name: str

    @property
    def image(self) -> str:
        """Return the container to run."""
        return f"nvcr.io/nvidia/tritonserver:{self.name}-py3"

    @property
    def tensorrt(self) -> str:
        """Return the version of its TensorRT, as far as it is known: ``10.5``, or ``10`` alone."""
        return _TENSORRT.get(self.name) or ("11" if self.name >= _FIRST_WITH_11 else "10")


_NAMES = (
    "24.04", "24.05", "24.06", "24.07", "24.08", "24.09", "24.10", "24.11", "24.12", "25.01", "25.02", "25.03", "25.04",
    "25.05", "25.06", "25.07", "25.09", "25.10", "25.11", "25.12", "26.01", "26.02", "26.03", "26.04", "26.05", "26.06",
    "26.07", "26.08",
)  # fmt: skip
_FIRST_WITH_11 = "26.06"
# NVIDIA's support matrix of its deep learning containers
_TENSORRT = {
    "24.04": "8.6", "24.05": "10.0", "24.06": "10.1", "24.07": "10.2", "24.08": "10.3", "24.09": "10.4",
    "24.10": "10.5", "24.11": "10.6", "24.12": "10.7", "25.01": "10.8", "25.02": "10.8", "25.03": "10.9",
    "25.04": "10.9", "25.05": "10.10", "25.06": "10.11",
}  # fmt: skip
RELEASES = {name: Release(name) for name in _NAMES}
"""Every release that a repository can be made for."""
DEFAULT_RELEASE = "24.10"
"""The release of the server that `vlmsearch triton install` brings."""
NEWEST_RELEASE = max(RELEASES)


def find_release(name: str) -> Release:
    """Return the release of a name; ConfigError lists those that are known."""
    if name not in RELEASES:
        raise ConfigError(f"no Triton release {name!r} is known here; there are {', '.join(RELEASES)}")
    return RELEASES[name]
