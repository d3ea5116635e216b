"""Triton's releases: what is in each, and since when it knows what a repository can ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from vlmsearch.errors import ConfigError


@dataclass(frozen=True)
class Release:
    """One release: its container's name, the server's version and the Python of its Python backend."""

    name: str
    server: str

    @property
    def order(self) -> tuple[int, ...]:
        """Return where it stands among all."""
        return tuple(int(part) for part in self.name.split("."))

    @property
    def image(self) -> str:
        """Return the container to run."""
        return f"nvcr.io/nvidia/tritonserver:{self.name}-py3"

    @property
    def python(self) -> str:
        """Return the Python of its Python backend."""
        return "3.12" if self.since("24.12") else "3.10"

    @property
    def strongly_typed(self) -> bool:
        """Return whether its TensorRT is 11 or newer, which takes precisions from the ONNX model alone."""
        return self.since("26.06")

    @property
    def tensorrt(self) -> str:
        """Return the version of its TensorRT, as far as it is known: ``10.5``, or ``10`` alone."""
        return _TENSORRT.get(self.name) or ("11" if self.strongly_typed else "10")

    def since(self, name: str) -> bool:
        """Return whether this is the release of that name or a newer one."""
        return self.order >= Release(name, "").order


_MINORS = {
    "24.04": 45, "24.05": 46, "24.06": 47, "24.07": 48, "24.08": 49, "24.09": 50, "24.10": 51, "24.11": 52,
    "24.12": 53, "25.01": 54, "25.02": 55, "25.03": 56, "25.04": 57, "25.05": 58, "25.06": 59, "25.07": 60,
    "25.09": 61, "25.10": 62, "25.11": 63, "25.12": 64, "26.01": 65, "26.02": 66, "26.03": 67, "26.04": 68,
    "26.05": 69, "26.06": 70, "26.07": 71, "26.08": 72,
}  # fmt: skip
# NVIDIA's support matrix of its deep learning containers
_TENSORRT = {
    "24.04": "8.6", "24.05": "10.0", "24.06": "10.1", "24.07": "10.2", "24.08": "10.3", "24.09": "10.4",
    "24.10": "10.5", "24.11": "10.6", "24.12": "10.7", "25.01": "10.8", "25.02": "10.8", "25.03": "10.9",
    "25.04": "10.9", "25.05": "10.10", "25.06": "10.11",
}  # fmt: skip
RELEASES = {name: Release(name, f"2.{minor}.0") for name, minor in _MINORS.items()}
"""Every release that a repository can be checked against."""
DEFAULT_RELEASE = "24.10"
"""The release of the server that `vlmsearch triton install` brings."""
NEWEST_RELEASE = max(RELEASES)
_FIELDS = {("ModelEnsembling", "max_inflight_requests"): "25.11"}
"""Fields of configurations, and the first release that reads them; older ones refuse the whole file."""


def find_release(name: str) -> Release:
    """Return the release of a name; ConfigError lists those that are known."""
    if name not in RELEASES:
        raise ConfigError(f"no Triton release {name!r} is known here; there are {', '.join(RELEASES)}")
    return RELEASES[name]


def lacking(config: Message, release: Release) -> list[str]:
    """Return what a configuration asks for and a release does not have, a line each."""
    lines = []
    for message in _messages(config):
        kind = message.DESCRIPTOR.name
        for field, value in message.ListFields():
            first = _FIELDS.get((kind, field.name))
            if first and not release.since(first):
                lines.append(
                    f"Triton {release.name} ({release.server}) has no {field.name}, which came with {first}: leave it "
                    "out or name a newer release"
                )
            if kind == "Accelerator" and field.name == "parameters" and release.strongly_typed:
                wanted = value.get("precision_mode", "FP32")
                if wanted != "FP32":
                    lines.append(
                        f"Triton {release.name} has TensorRT 11, which has no precision_mode {wanted}: use FP32 and a "
                        "model that is itself of that precision"
                    )
    return lines


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [item for item in value.values() if isinstance(item, Message)]
        else:
            inner = [value] if isinstance(value, Message) else list(value)
        for item in inner:
            yield from _messages(item)
