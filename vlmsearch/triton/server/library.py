"""This library as a wheel for the Python of a Triton server.

It is packed from the files in use, without a build tool or a network: the same way for a release and for an editable
checkout.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import vlmsearch

PACKAGE = "vlmsearch"
_TAG = "py3-none-any"
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same files make the same wheel."""


def library_version() -> str:
    """Return the version of this library, with a digest of its files as the local part: ``0.2.0+h1f2e3d4c5b6a``.

    Any change of a file is another version. Each is newer than ``0.2.0`` and fits ``==0.1.0`` (PEP 440).
    """
    return _version(_files())


def write_wheel(folder: Path) -> Path:
    """Pack this library into a wheel in ``folder``.

    It names no dependencies: a server needs few of the library's own, and which ones depends on the models. Nor has it
    the models' files or the stand-ins.

    Returns:
        The wheel, ``vlmsearch-VERSION-py3-none-any.whl`` with the version of `library_version`.
    """
    files = _files()
    version = _version(files)
    described = f"vlmsearch-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: vlmsearch\nVersion: {version}\nRequires-Python: >=3.10\n"
    form = f"Wheel-Version: 1.0\nGenerator: vlmsearch\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
    content = [*files, (f"{described}/METADATA", metadata.encode()), (f"{described}/WHEEL", form.encode())]
    record = "".join(f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in content)
    record += f"{described}/RECORD,,\n"
    path = folder / f"vlmsearch-{version}-{_TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in (*content, (f"{described}/RECORD", record.encode())):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def _files() -> list[tuple[str, bytes]]:
    """Return the names and contents of the package's files, without what Python and others leave there."""
    package = Path(vlmsearch.__file__).parent
    skipped = ("__pycache__", "_data")
    names = sorted(
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and not any(part in skipped or part[0] == "." for part in path.relative_to(package).parts)
    )
    return [(f"vlmsearch/{name}", (package / name).read_bytes()) for name in names]


def _version(files: Sequence[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, data in files:
        digest.update(f"{name}\n{len(data)}\n".encode() + data)
    return f"{vlmsearch.__version__}+h{digest.hexdigest()[:12]}"


def _hash(data: bytes) -> str:
    """Return the hash of a file as RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
