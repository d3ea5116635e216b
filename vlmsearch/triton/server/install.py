"""A Triton server for this machine, without Docker: the one that a wheel carries, in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vlmsearch._util.extras import installed_versions
from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch._util.locks import only_one
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import cache_folder
from vlmsearch.triton.server.commands import Binary
from vlmsearch.triton.server.library import PACKAGE, library_version, write_wheel

WHEEL = "nvidia-pytriton==0.7.0"
"""The newest wheel with a server in it. `tritonserver` 2.73 has the bindings of the container's library alone."""
SERVER = "2.51.0"
"""The version of the server in the wheel."""
ADVICE = (
    f"Triton {SERVER}, the newest in a wheel, is for trying out, on this machine alone: it is unpatched, without the "
    "fixes of 25.07 for CVE-2025-23319, CVE-2025-23320 and CVE-2025-23334. `vlmsearch triton serve --docker` "
    "runs a newer one"
)
_PYTHONS = ("3.12", "3.11", "3.10")
"""The Pythons that its Python backend has a build for.

They have wheels of numpy below 2, which it needs.
"""
_HASHED = {
    WHEEL: ("21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df",),
    "numpy==1.26.4": (  # the last below 2; for Python 3.10, 3.11 and 3.12
        "ffa75af20b44f8dba823498024771d5ac50620e6915abac414251bd971b4529f",
        "666dbfb6ec68962c033a450943ded891bed2d54e6755e35e5835d63f4f6931d5",
        "675d61ffbfa78604709862923189bad94014bef562cc35cf61d3a07bba02a7ed",
    ),
}
"""Packages that are the same for everyone.

Each has the SHA-256 of its wheels for Linux on x86-64.
"""
_SHARED = ("pillow", "tokenizers", "typing-extensions")
_OPTIONAL = ("pillow-heif",)
_MARK = "server.json"
_FORMAT = 1


@dataclass(frozen=True)
class _Python:
    """An interpreter: its path, its version and where its shared library lies."""

    path: str
    version: str
    libraries: str


def requirements(*, onnx: bool = True) -> list[str]:
    """Return what the Python models need beside this library, in the versions that are installed here.

    With the same versions, vectors are the same. Without ``onnx``, what they need beside TensorRT.
    """
    names = ("onnxruntime", *_SHARED) if onnx else _SHARED
    versions = {name: version(name) for name in names} | installed_versions(_OPTIONAL)
    return [f"{name}=={number}" for name, number in versions.items()]


def server_folder() -> Path:
    """Return where the server is installed."""
    return cache_folder() / "triton" / SERVER


def installed() -> Binary | None:
    """Return the server that `install` made.

    None if there is none, its packages are not those of this environment, or any file of its library is not that of
    this library.
    """
    mark = _read_mark()
    if mark is None or mark["requirements"] != requirements() or mark.get("library") != library_version():
        return None
    return _binary(server_folder(), mark["python"], mark["libraries"])


def find_installed(*, report: Callable[[str], None]) -> Binary | None:
    """Return the server that `install` made, with this library.

    None where all would have to be installed.

    Where only its library is another one, that alone is replaced, which needs no network and takes seconds.

    Args:
        report: Hears of each step.
    """
    binary = installed()
    if binary or _read_mark() is None:
        return binary
    with only_one(_lock()):
        return installed() or _renew(report)


def ensure_installed(*, report: Callable[[str], None]) -> Binary:
    """Return the server that `find_installed` finds; where there is none, install all.

    Args:
        report: Hears of each step.

    Raises:
        ModelUnavailableError: It cannot be installed; the message says what is missing.
    """
    binary = find_installed(report=report)
    if binary:
        return binary
    with only_one(_lock()):
        return installed() or _install(None, report)


def install(*, python: str | None = None, report: Callable[[str], None]) -> Binary:
    """Make the server's environment and give the server; an older one is replaced.

    ``python`` is the interpreter for the Python models: 3.10 to 3.12, with its shared library. ModelUnavailableError
    says what is missing.
    """
    with only_one(_lock()):
        return _install(python, report)


def _lock() -> Path:
    """Return a file in a folder of its own, as that is kept from other users: they may run the server."""
    return server_folder().parent / ".installing" / f"{SERVER}.lock"


def _read_mark() -> dict[str, Any] | None:
    try:
        mark: dict[str, Any] = json.loads((server_folder() / _MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return mark if mark.get("format") == _FORMAT else None


def _write_mark(folder: Path, python: str, libraries: str, library: str) -> None:
    mark = {
        "format": _FORMAT,
        "python": python,
        "libraries": libraries,
        "requirements": requirements(),
        "library": library,
    }
    (folder / _MARK).write_text(json.dumps(mark), encoding="utf-8")


def _renew(report: Callable[[str], None]) -> Binary | None:
    """Put this library in the place of another.

    None where there is no sound server, or it needs more than that.
    """
    folder, mark = server_folder(), _read_mark()
    if mark is None or mark["requirements"] != requirements():
        return None
    (folder / _MARK).unlink()  # should this be cut off, all is installed anew
    try:
        library = _install_library(folder, report)
    except ModelUnavailableError:  # as where the Python of the environment is gone
        return None
    _write_mark(folder, mark["python"], mark["libraries"], library)
    return _binary(folder, mark["python"], mark["libraries"])


def _install(python: str | None, report: Callable[[str], None]) -> Binary:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise ModelUnavailableError(
            "the wheel's Triton is for Linux on x86-64; elsewhere use `vlmsearch triton serve --docker`"
        )
    chosen = _choose(python)
    target = server_folder()
    with folder_in_the_making(target) as folder:
        report(f"making an environment with Python {chosen.version}")
        _run([chosen.path, "-m", "venv", str(folder / "env")])
        report(f"installing Triton {SERVER} ({WHEEL})")
        hashes = folder / "hashes.txt"
        lines = (" ".join([name, *(f"--hash=sha256:{digest}" for digest in all)]) for name, all in _HASHED.items())
        hashes.write_text("\n".join(lines), encoding="utf-8")
        _pip(folder, "--require-hashes", "-r", str(hashes))
        report(f"installing {', '.join(requirements())}")
        _pip(folder, *requirements())
        library = _install_library(folder, report)
        home = _tritonserver(folder, chosen.version)
        stub = home / "python_backend_stubs" / chosen.version / "triton_python_backend_stub"
        shutil.copy(stub, home / "backends" / "python")
        binary = _binary(folder, chosen.version, chosen.libraries)
        _check_stub(home / "backends" / "python" / stub.name, binary.environment, chosen)
        _write_mark(folder, chosen.version, chosen.libraries, library)
        publish(folder, target)
    return _binary(target, chosen.version, chosen.libraries)


def _install_library(folder: Path, report: Callable[[str], None]) -> str:
    """Install this library, and return which: its version and what its files are."""
    library = library_version()
    report(f"installing {PACKAGE} {library}")
    with tempfile.TemporaryDirectory() as place:
        _pip(folder, "--no-index", "--force-reinstall", str(write_wheel(Path(place))))
    return library


def _pip(folder: Path, *wanted: str) -> None:
    """Install these versions in the server's environment, and nothing that they name.

    None of their code is run.
    """
    pip = (str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run([*pip, "--no-deps", "--only-binary", ":all:", *wanted])


def _tritonserver(folder: Path, python: str) -> Path:
    return folder / "env" / "lib" / f"python{python}" / "site-packages" / "pytriton" / "tritonserver"


def _binary(folder: Path, python: str, libraries: str) -> Binary:
    home = _tritonserver(folder, python)
    environment = {
        "PATH": os.pathsep.join([str(folder / "env" / "bin"), os.environ.get("PATH", os.defpath)]),
        "PYTHONNOUSERSITE": "1",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH", "")])),
    }
    return Binary(str(home / "bin" / "tritonserver"), environment, home / "backends", home / "caches")


def _choose(python: str | None) -> _Python:
    """Return the interpreter that was asked for, or one that will do.

    This one comes first, then the newest on PATH.
    """
    names = [python] if python else [sys.executable, *(f"python{number}" for number in _PYTHONS)]
    seen = []
    for name in names:
        path = shutil.which(name)
        interpreter = _look_at(path) if path else None
        if interpreter and interpreter.version in _PYTHONS:
            return interpreter
        seen.append(f"{name} ({interpreter.version if interpreter else 'not found'})")
    raise ConfigError(
        f"Triton {SERVER} runs Python models with Python {', '.join(_PYTHONS)}, and there is {', '.join(seen)}: "
        "name one with `python`"
    )


def _look_at(path: str) -> _Python | None:
    code = "import sys, sysconfig as s; print('%d.%d' % sys.version_info[:2]); print(s.get_config_var('LIBDIR') or '')"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    lines = done.stdout.splitlines()
    return _Python(path, lines[0], lines[1]) if done.returncode == 0 and len(lines) > 1 else None


def _check_stub(stub: Path, environment: Mapping[str, str], python: _Python) -> None:
    """Run the program that hosts Python models, to see that the loader finds all its libraries."""
    done = subprocess.run(  # noqa: S603
        [str(stub)], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    missing = re.search(r"loading shared libraries: (\S+):", done.stderr)
    if missing:
        raise ModelUnavailableError(
            f"{missing[1]} is missing, which Triton needs to run Python models with {python.path}: install the "
            f"package libpython{python.version}, or name a Python built with its shared library with `python`"
        )


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as exc:
        raise ModelUnavailableError(f"{command[0]} cannot be run: {exc.strerror}") from exc
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise ModelUnavailableError(f"{' '.join(command)} failed: {' '.join(tail)}")
