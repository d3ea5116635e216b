"""Files and folders that appear whole or not at all, private folders, and home folders."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmsearch.errors import ConfigError, ModelUnavailableError

_STALE_SECONDS = 24 * 3600
_UNWRITABLE = {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise one clear error for a full or read-only disk, or a folder that is shared."""
    with _writable(folder, "name another cache in $VLMSEARCH_CACHE"):
        make_private(folder)
        yield


@contextmanager
def _writable(place: Path, advice: str) -> Iterator[None]:
    """Raise ModelUnavailableError with this advice where the disk refuses what is written in this block."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise
        raise ModelUnavailableError(f"{place} cannot be written: {exc.strerror}; {advice}") from exc


def make_private(folder: Path) -> None:
    """Make a folder for programs, such as engines. Check that nobody else may write to it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_private(folder)


def check_private(*paths: Path) -> None:
    """Raise ModelUnavailableError where another user may write to a file or folder: engines are programs.

    The administrator is no other user, and a group that the user is alone in by its name is no group. A path that is
    not there is passed over.
    """
    if sys.platform == "win32":  # a user's folders are private there
        return
    for path in paths:
        with suppress(FileNotFoundError):
            status = path.stat()
            if status.st_uid not in (0, os.geteuid()):
                why, cure = f"belongs to another user ({status.st_uid})", "name another cache in $VLMSEARCH_CACHE"
            elif status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)):
                why, cure = "can be written to by other users", f"empty it, then chmod go-w {shlex.quote(str(path))}"
            else:
                continue
            raise ModelUnavailableError(f"{path} {why}, and engines are programs: {cure}")


def _is_own_group(number: int) -> bool:
    import grp
    import pwd

    try:
        return grp.getgrgid(number).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


def replace_file(path: Path, data: bytes) -> None:
    """Write a file beside its place and put it there at once."""
    with file_in_the_making(path) as making:
        making.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Make a folder with those above it. NotADirectoryError where a file is in its place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as exc:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from exc


@contextmanager
def file_in_the_making(target: Path) -> Iterator[Path]:
    """Give an empty file beside ``target``, which takes its place on the disk after the block.

    The folder is made where there is none.

    Where the block fails, it is gone, and ``target`` is as it was.
    """
    import tempfile

    make_folder(target.parent)
    for old in target.parent.glob(".*.writing"):
        with suppress(OSError):  # another process's file may be in its place by now, or belong to another user
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                old.unlink()
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".writing", dir=target.parent)
    os.close(descriptor)
    making = Path(name)
    try:
        yield making
        sync(making)
        making.chmod(0o644)
        os.replace(making, target)
    except BaseException:
        making.unlink(missing_ok=True)
        raise


@contextmanager
def folder_in_the_making(target: Path, advice: str = "try another `out`") -> Iterator[Path]:
    """Give a new folder beside ``target``, gone afterwards. A full or read-only disk is one error with ``advice``."""
    import shutil
    import tempfile

    parent = target.absolute().parent
    with _writable(target, advice):
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f".{target.name}.*.building"):
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".building", dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Path) -> None:
    """Put a finished folder in its place, and what was there aside."""
    import shutil

    folder.chmod(0o755)
    aside = folder.with_name(folder.name.replace(".building", ".old.building"))
    for _ in range(3):  # another build may put its own there in between
        if target.exists():
            os.replace(target, aside)
            shutil.rmtree(aside, ignore_errors=True)
        try:
            os.replace(folder, target)
        except OSError:
            if not target.exists():
                raise
        else:
            return
    raise ModelUnavailableError(f"{target} is being written by somebody else; try again")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder; Windows needs no such call for folders."""
    if sys.platform == "win32":
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is read in parts."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def expand_home(path: str | Path) -> Path:
    """Expand ``~`` and ``~NAME`` in a path; ConfigError where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise ConfigError(f"{str(path)!r} has no home folder here: write the path in full") from exc


def is_path(location: str) -> bool:
    """Check whether ``location`` is written as a path, such as ``./folder``. ``org/model`` is a name."""
    return location in (".", "..") or location.startswith(("/", "./", "../", "~"))


def find_checkpoint(location: str) -> Path | None:
    """Return the folder of a model that is written as a path. None for the name of a model of a hub.

    ConfigError for a path without a folder, and for a name that a folder here has too: loaders of models take that.
    """
    if is_path(location):
        folder = expand_home(location)
        if not folder.is_dir():
            raise ConfigError(f"{location} is not a folder with a checkpoint or an engine")
        return folder
    if Path(location).exists():
        raise ConfigError(
            f"{location} is a model of the Hugging Face hub, and there is a folder of that name here: "
            f"write ./{location} for the folder, or run in another folder for the hub's model"
        )
    return None
