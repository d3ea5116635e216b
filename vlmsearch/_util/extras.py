"""Packages: which are installed, and the command that installs an extra of this one as it was installed itself."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_PACKAGE = "vlmsearch"
_WITH_TORCH = frozenset({"build"})
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""The index of PyTorch without CUDA, at a tenth of the size."""


def install_command(*extras: str, package: str = _PACKAGE) -> str:
    """Return the command that installs some extras, as a shell takes it.

    It names the checkout or the wheel that the package was installed from, as long as that is there, else the package
    of an index. Where torch comes along, it comes from the index of wheels for CPUs.

    >>> install_command("pdf").startswith("pip install ")
    True
    """
    names = ",".join(extras)
    words = ["", "--extra-index-url", _CPU_INDEX] if _WITH_TORCH & set(extras) else []
    options = " ".join(words)
    return f"pip install {_requirement(package, names)}{options}"


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the distributions that are installed, with their versions."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _requirement(package: str, extras: str) -> str:
    """Return the package with its extras, quoted for a shell."""
    source = _source(package)
    if source is None:
        return f"'{package}[{extras}]'"
    if source.is_dir():
        return _quoted(f".[{extras}]" if source == Path.cwd() else f"{source}[{extras}]")
    return _quoted(f"{package}[{extras}] @ {source.as_uri()}")


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else shlex.quote(text)


def _source(package: str) -> Path | None:
    """Return the checkout or wheel that a package is from, None for one from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        recorded = distribution(package).read_text("direct_url.json")
    except PackageNotFoundError:  # it runs from its source
        folder = Path(__file__).resolve().parents[2]
        return folder if package == _PACKAGE and _is_checkout(folder) else None
    parts = urlsplit(str(json.loads(recorded).get("url", ""))) if recorded else None
    if parts is None or parts.scheme != "file":
        return None
    from urllib.request import url2pathname  # here: it loads a client of HTTP

    path = Path(url2pathname(parts.path))
    return path if (path.suffix == ".whl" and path.is_file()) or _is_checkout(path) else None


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()
