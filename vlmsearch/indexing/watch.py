"""Changes in folders, as they happen.

The operating system reports changes, and its reports are only hints: a file has changed if its size, inode or times
have. So bursts, renames and folders that are moved come out as files that are new and files that are gone.

All folders are listed again now and then, and when a folder came or went. They are also listed after very many reports,
since the system may have lost some. If a listing finds a change that was not reported, the folders are watched anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vlmsearch._util.cancellation import on_cancel
from vlmsearch._util.extras import install_command
from vlmsearch._util.files import expand_home
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.indexing.sources import Paths

SETTLED_AFTER = 1.0
"""Seconds after the last write to a file at which it counts as whole."""
_MAX_WAIT = 30.0
"""Seconds after which a file that is still being written is taken as it is."""
_LISTED_EVERY = 60.0
"""Seconds from one listing of all folders to the next.

There are more where a listing takes more than a hundredth of that.
"""
_LISTING_SHARE = 100
_MANY = 1000
"""Files told together after which some may be lost: Linux keeps 16,384 events, and a new file makes four or more."""
_TICK_MS = 500
_STEP_MS = 200
_BURST_MS = 2000
_Signature = tuple[int, int, int, int]
_UNKNOWN: _Signature = (0, 0, 0, 0)
_Root = tuple[bool, int]


@dataclass(frozen=True)
class FileChanges:
    """Files by their absolute names: those that are new or have changed, and those that are gone.

    ``lost`` are folders whose files count as there although they are not: see `FolderWatch`.
    """

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    lost: tuple[str, ...] = ()


class FolderWatch:
    """A watch for changes in the folders of ``source``.

    A folder is lost where it was a mount point and is none any more, or is another folder than before, without files:
    a disk was unmounted. Its files count as there until it comes back.

    Args:
        source: Names folders and nothing else.
        settled_after: Seconds after the last write to a file at which it counts as whole.

    Raises:
        ConfigError: A path is not a folder.
    """

    def __init__(self, source: Paths, *, settled_after: float = SETTLED_AFTER) -> None:
        odd = next((path for path in source.given if not os.path.isdir(expand_home(path))), None)
        if odd is not None:
            raise ConfigError(f"{str(odd)!r} is not a folder: only folders can be watched")
        self._source = source
        self._settled_after = settled_after
        self._known: dict[str, _Signature] = {}
        self._waiting: dict[str, float] = {}
        """Files that are being written, and since when that is known."""
        self._due = 0.0
        self._roots = {folder: _root_of(folder) for folder in source.folders}
        self._lost: set[str] = set()
        self._list_all()

    def expect(self, names: Iterable[str]) -> None:
        """Have files looked for that an index has documents of: those that are not there are gone.

        Args:
            names: Their absolute names.
        """
        for name in names:
            self._known.setdefault(name, _UNKNOWN)

    def changes(self, stop: Callable[[], bool] | None = None) -> Iterator[FileChanges]:
        """Wait for changes, and give those that came together.

        Args:
            stop: Asked twice a second, it ends the iteration when it says so.

        Yields:
            What changed; what changes until the next step comes with that.

        Raises:
            ConfigError: The system watches no more folders.
            MissingDependencyError: watchfiles is not installed.
        """
        ended = threading.Event()
        with on_cancel(ended.set):
            while not ended.is_set():
                yield from self._watch(ended, stop or ended.is_set)

    def _watch(self, ended: threading.Event, stop: Callable[[], bool]) -> Iterator[FileChanges]:
        """Yield what changes until some of what the system tells may be lost."""
        self._due = time.monotonic()  # what changed before the system watches the folders
        for names in self._told(ended):
            if stop():
                ended.set()
                return
            is_due = time.monotonic() >= self._due or len(names) >= _MANY or self._is_about_folders(names)
            changes = self._list_all() if is_due else self._look(names | self._waiting.keys())
            if changes.changed or changes.gone or changes.lost:
                yield changes
            was_not_told = not names and is_due and (changes.changed or changes.gone)
            if len(names) >= _MANY or was_not_told:
                return  # there may be folders that the system does not watch

    def _told(self, ended: threading.Event) -> Iterator[set[str]]:
        """Yield what the system tells of, some at a time; nothing every half a second."""
        try:
            import watchfiles
        except ModuleNotFoundError as exc:
            raise MissingDependencyError(
                f"`vlmsearch watch` needs watchfiles, which is not installed: {install_command('watch')}"
            ) from exc
        there = [folder for folder in self._source.folders if os.path.isdir(folder)]
        if not there:  # all were moved away or are not mounted: they may come back
            ended.wait(_TICK_MS / 1000)
            yield set()
            return
        try:
            for events in watchfiles.watch(
                *there,
                watch_filter=None,
                debounce=_BURST_MS,
                step=_STEP_MS,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                stop_event=ended,
                ignore_permission_denied=True,
            ):
                yield {name for _, name in events}
        except OSError as exc:
            raise ConfigError(
                f"{', '.join(there)} cannot be watched: {exc}; where the limit of watches is reached, raise it with "
                "`sysctl fs.inotify.max_user_watches=1000000`, or set WATCHFILES_FORCE_POLLING=1"
            ) from exc

    def _is_about_folders(self, names: Collection[str]) -> bool:
        """Return whether a folder came, or one that had files went."""
        unknown = [name for name in names if name not in self._known]
        if any(map(os.path.isdir, unknown)):
            return True
        gone = tuple(f"{name}{os.sep}" for name in unknown if not os.path.lexists(name))
        return bool(gone) and any(name.startswith(gone) for name in self._known)

    def _look(self, names: Collection[str]) -> FileChanges:
        """Return what is new of some files."""
        changed, gone = [], []
        for name in sorted(names):
            signature = _signature(name) if self._source.takes(name) else None
            if signature is not None:
                changed += [name] if self._has_changed(name, signature) else []
            elif self._is_lost(name):
                continue
            elif os.access(os.path.dirname(name), os.R_OK | os.X_OK):  # else listing the folders decides
                gone += [name] if name in self._known or name in self._waiting else []
                self._forget([name])
        return FileChanges(tuple(changed), tuple(gone))

    def _list_all(self) -> FileChanges:
        """Return the changes in all folders.

        Nothing below a folder that cannot be listed is gone.
        """
        begun = time.monotonic()
        changed, unread, there = [], [], set()
        for entry in self._source.files():
            if isinstance(entry, tuple):
                unread.append(entry[0] + os.sep)
                continue
            signature = _signature(entry)
            if signature is not None:
                there.add(entry)
                changed += [entry] if self._has_changed(entry, signature) else []
        lost = {folder for folder, root in self._roots.items() if _has_gone(folder, root, there)}
        unread += [folder + os.sep for folder in lost]
        news, self._lost = lost - self._lost, lost
        missing = (self._known.keys() | self._waiting.keys()) - there
        gone = sorted(name for name in missing if not name.startswith(tuple(unread)))
        self._forget(gone)
        now = time.monotonic()
        self._due = now + max(_LISTED_EVERY, _LISTING_SHARE * (now - begun))
        return FileChanges(tuple(changed), tuple(gone), tuple(sorted(news)))

    def _is_lost(self, name: str) -> bool:
        """Check whether a file is in a folder that is lost.

        The folder is listed again, since this came unexpected.
        """
        folder = next((folder for folder in self._roots if name.startswith(folder + os.sep)), None)
        if folder is None or not _is_another(folder, self._roots[folder]):
            return False
        self._due = time.monotonic()  # the listing says whether it has files
        return True

    def _forget(self, names: Collection[str]) -> None:
        for name in names:
            self._known.pop(name, None)
            self._waiting.pop(name, None)

    def _has_changed(self, name: str, signature: _Signature) -> bool:
        """Return whether a file is another than before, and whole; one that is not whole waits."""
        if self._known.get(name) == signature:
            self._waiting.pop(name, None)
            return False
        age = time.time() - signature[0] / 1e9
        since = self._waiting.setdefault(name, time.monotonic())
        if 0 <= age < self._settled_after and time.monotonic() - since < _MAX_WAIT:
            return False
        del self._waiting[name]
        self._known[name] = signature
        return True


def _root_of(folder: str) -> _Root | None:
    """Return what a folder is known by: whether something is mounted there, and its inode; None where it is not there.

    Its device is not: that of a disk may be another one after it was mounted again.
    """
    try:
        return os.path.ismount(folder), os.stat(folder).st_ino
    except (OSError, ValueError):
        return None


def _is_another(folder: str, root: _Root | None) -> bool:
    now = _root_of(folder)
    return root is not None and now is not None and now != root


def _has_gone(folder: str, root: _Root | None, files: Collection[str]) -> bool:
    """Check whether a folder lost its mount, or an empty one is in its place."""
    if not _is_another(folder, root):
        return False
    was_mount = root is not None and root[0]
    is_mount = os.path.ismount(folder)
    return (was_mount and not is_mount) or not any(name.startswith(folder + os.sep) for name in files)


def _signature(name: str) -> _Signature | None:
    """Return what changes with a file; None where there is none."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
