"""Triton's releases and what is in each."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from vlmsearch.errors import ConfigError


class UnknownReleaseWarning(UserWarning):
    """A release of Triton is newer than those that are known here."""


@dataclass(frozen=True)
class Release:
    """A release, by the name of its container.

    ``server`` is the version of the server in it, ``tensorrt`` that of its TensorRT; "" is not known.
    """

    name: str
    server: str = ""
    tensorrt: str = ""

    def __str__(self) -> str:
        """Return its name, and the version of the server if it is known."""
        return f"{self.name} ({self.server})" if self.server else self.name

    @property
    def image(self) -> str:
        """Return the container to run."""
        return f"nvcr.io/nvidia/tritonserver:{self.name}-py3"


# Servers: build.py of triton-inference-server/server at the tags v2.59.1 and v2.60.0, and its release pages of 26.09 to
# 26.11; the others follow one another by month. TensorRT: NVIDIA's support matrix of its deep learning containers, up
# to 25.06, and the one version of each minor on PyPI. That of 24.04 is one of two, and later ones were not read.
_RELEASES = (
    Release("24.04", "2.45.0"),
    Release("24.05", "2.46.0", "10.0.1"),
    Release("24.06", "2.47.0", "10.1.0"),
    Release("24.07", "2.48.0", "10.2.0"),
    Release("24.08", "2.49.0", "10.3.0"),
    Release("24.09", "2.50.0", "10.4.0"),
    Release("24.10", "2.51.0", "10.5.0"),
    Release("24.11", "2.52.0", "10.6.0"),
    Release("24.12", "2.53.0", "10.7.0"),
    Release("25.01", "2.54.0", "10.8.0"),
    Release("25.02", "2.55.0", "10.8.0.43"),
    Release("25.03", "2.56.0", "10.9.0.34"),
    Release("25.04", "2.57.0", "10.9.0.34"),
    Release("25.05", "2.58.0", "10.10.0.31"),
    Release("25.06", "2.59.0", "10.11.0.33"),
    Release("25.07", "2.59.1"),
    Release("25.08", "2.60.0"),
    Release("25.09", "2.61.0"),
    Release("25.10", "2.62.0"),
    Release("25.11", "2.63.0"),
    Release("25.12", "2.64.0"),
    Release("26.01", "2.65.0"),
    Release("26.02", "2.66.0"),
    Release("26.03", "2.67.0"),
    Release("26.04", "2.68.0"),
    Release("26.05", "2.69.0"),
    Release("26.06", "2.70.0"),
    Release("26.07", "2.71.0"),
    Release("26.08", "2.72.0"),
    Release("26.09", "2.73.0"),
    Release("26.10", "2.74.0"),
    Release("26.11", "2.75.0"),
)
RELEASES = {release.name: release for release in _RELEASES}
"""Every release that is known here, oldest first."""
DEFAULT_RELEASE = "24.10"
"""The release of the server that `vlmsearch triton install` brings."""
NEWEST_RELEASE = _RELEASES[-1].name
_NAME = re.compile(r"[2-9]\d\.(0[1-9]|1[0-2])")


def find_release(name: str) -> Release:
    """Return the release of a name.

    One that is newer than those that are known comes with a warning.

    ConfigError for any other name.
    """
    if name in RELEASES:
        return RELEASES[name]
    if not _NAME.fullmatch(name) or name < NEWEST_RELEASE:
        raise ConfigError(
            f"no Triton release {name!r} is known here: there are {_RELEASES[0].name} to {NEWEST_RELEASE}, and newer"
        )
    message = f"Triton {name} is newer than {NEWEST_RELEASE}, the newest that is known here: it is used as that one is"
    warnings.warn(message, UnknownReleaseWarning, stacklevel=2)
    return Release(name)
