"""Indexes beside which another one can be built, to take their place in one step.

One row, ``index``, says what built an index and which generation of it is in use. The index that is built beside it has
the row ``next``. Each generation has documents and vectors of its own. Replacing the row ``index`` is the instant at
which readers that open the index find the new generation.

Nothing is copied after that instant. `freeze` puts ``change`` into the row ``index``, and every write looks at this row
before it begins and before it returns. So whatever returned is in the old generation by then, and nothing that follows
returns. The new generation can be made equal to the old one while nobody changes either. A process that is killed
meanwhile leaves the old generation in use, complete and frozen, until the next one takes its work over.

``tuning`` in the row ``index`` goes when a generation of another model takes the place of this one. ``statistics`` are
those of the documents of one generation.

A class whose tables have changed has another ``format``. It opens an index of an earlier format only to renew it: the
new generation is filled from the old one, which processes of the earlier version go on reading.

The row ``next`` names the run that builds it. Whoever takes it over puts the name of its own run there, and the writes
of the run before fail. ``garbage`` in a row lists generations that are still to be removed. ``revision`` differs after
every change of a row. ``old`` is the generation that the last `switch` replaced.
"""

from __future__ import annotations

import copy
import os
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from vlmsearch._util.frozen import FrozenDict
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, IndexMismatchError, one_line
from vlmsearch.stores.base import Store, check_manifest, check_tuning, space_of
from vlmsearch.types import Manifest, Record, Space

if TYPE_CHECKING:
    from typing_extensions import Self

Slot = str
"""``index`` or ``next``."""
_OF_A_GENERATION = ("format", "kind", "generation", "created", "fingerprint", "spaces", "language", "statistics")


class GenerationalStore(Store):
    """A store whose rows ``index`` and ``next``, documents and vectors the class below keeps."""

    kind: str
    """The scheme; an index is opened with the one that made it."""
    default_language = ""
    """The language of a new index by default; "" for a store that ranks no words."""
    format = 1
    """The number of the format of a new generation. Lower ones are read to be renewed."""
    _opens_earlier = False

    def __init__(self, name: str, *, language: str | None = None) -> None:
        self.name = name
        self._language = language
        self.start_at("index")

    def start_at(self, slot: Slot) -> None:
        """Begin without an open index."""
        self._slot: Slot = slot
        self._row: Mapping[str, Any] | None = None
        self._opened: Manifest | None = None
        self._opening = threading.RLock()
        self._writers = 0
        self.writes_here = 0
        """Number of writes of this object."""
        self._written = threading.Condition()
        self._needs_bind = False

    # ---- what the class below has

    @abstractmethod
    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """Read the row of a slot; None where it has none. Nothing is created."""

    @abstractmethod
    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""

    @abstractmethod
    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision, at one instant: False where there is none."""

    @abstractmethod
    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""

    @abstractmethod
    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make what a new generation needs and does not have yet."""

    @abstractmethod
    def opened(self, manifest: Manifest, generation: str) -> None:
        """Prepare searching and writing, now that the index is there."""

    @abstractmethod
    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""

    def over(self, slot: Slot) -> Self:
        """Return another store over the same connections."""
        store = copy.copy(self)
        store.start_at(slot)
        return store

    def wait_until_ready(self) -> None:
        """Return when what was written can be found."""

    # ---- the index

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the index ready, creating it the first time; IndexMismatchError if another encoder filled it.

        BackendUnavailableError while the index takes no writes.
        """
        with self._opening:
            if self.as_opened() is None:
                row = self._begin(fingerprint, spaces)
                self.prepare(tuple(spaces), row["generation"])
                self.fill_slot(self._slot, row)
            manifest = self.as_opened()
            if manifest is not None:
                check_manifest(self.name, manifest, fingerprint, spaces)
                self.check_in_use()
                self.wait_until_ready()
                self._needs_bind = False

    def _begin(self, fingerprint: str, spaces: Sequence[Space]) -> dict[str, Any]:
        """Return the row of a new generation."""
        now = datetime.now(timezone.utc).isoformat()
        described = [[space.name, space.dim, sorted(space.modalities)] for space in spaces]
        row = {"format": self.format, "kind": self.kind, "generation": self._next_generation(), "created": now}
        language = self._language or (self._opened.language if self._opened else "") or self.default_language
        return {**row, "fingerprint": fingerprint, "spaces": described, "language": language}

    def manifest(self) -> Manifest | None:
        """Return the manifest, with tuning and statistics of this moment: None where there is no index yet."""
        manifest = self.as_opened()
        row = (manifest and self.read_slot(self._slot)) or {}
        if manifest is None or _identity(row) != _identity(self._row or {}):
            return manifest
        return replace(manifest, tuning=_tuning(row), statistics=row.get("statistics", {}))

    def as_opened(self) -> Manifest | None:
        """Open the index and return its manifest, with the tuning of that time: None where there is no index yet."""
        with self._opening:
            if self._opened is None:
                row = self.read_slot(self._slot)
                if row is not None:
                    manifest = self._read(row)
                    if row["format"] != self.format and not self._opens_earlier:
                        raise ConfigError(
                            f"{self.name} was made by an earlier version of vlmsearch, which may go on searching it: "
                            "renew it once with `vlmsearch reindex --store URL`, as a user who may write"
                        )
                    self.opened(manifest, row["generation"])
                    self._row, self._opened = row, manifest
            return self._opened

    def open_earlier(self) -> bool:
        """Return whether the index is of an earlier format. Such a one is opened, too, to renew it."""
        self._opens_earlier = True
        return self.as_opened() is not None and (self._row or {})["format"] != self.format

    def _read(self, row: Mapping[str, Any]) -> Manifest:
        if row.get("format") not in range(1, self.format + 1):
            raise ConfigError(
                f"{self.name} is of a format that this version of vlmsearch cannot read: upgrade, or index again "
                "under another name"
            )
        if row.get("kind") != self.kind:
            raise ConfigError(
                f"{self.name} was made by {row.get('kind')}:, so it is opened with that, not {self.kind}:"
            )
        try:
            manifest = Manifest(
                row["fingerprint"],
                tuple(space_of(*space) for space in row["spaces"]),
                row["created"],
                row.get("language", ""),
                _tuning(row),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise BackendError(
                f"the manifest of {self.name} is damaged: {one_line(exc)}; restore a copy of the index, or index again "
                "under another name"
            ) from exc
        language = manifest.language
        if self._language not in (None, language):
            raise ConfigError(
                f"{self.name} compares words by language={language or 'none at all'}, not {self._language}: that is "
                "set when an index is made, so build a new one with `vlmsearch index PATHS --store NEW`"
            )
        return manifest

    def needed(self) -> Manifest:
        """Return the manifest; ConfigError where there is no index yet."""
        manifest = self.as_opened()
        if manifest is None:
            raise ConfigError(f"{self.name} is not an index yet: bind it to an encoder before writing")
        return manifest

    def describe(self) -> dict[str, str]:
        """Describe the store to people, by names and values."""
        row = self.read_slot(self._slot) or {}
        return {"frozen": self._why_frozen(row)} if "change" in row else {}

    def tune(self, values: Mapping[str, float]) -> None:
        """Replace the tuning of the index that is open here, in one step."""
        check_tuning(self.name, values, self.needed().spaces)
        self.check_in_use()
        tuning = [[name, float(value)] for name, value in sorted(values.items())]
        while not self._replace(self._slot, row := self._still_open(), {**row, "tuning": tuning}):
            continue  # another process has changed the row meanwhile

    def keep_statistics(self, values: Mapping[str, Sequence[float]]) -> None:
        """Keep values that were computed of the documents, unless another process changes the row meanwhile.

        The row keeps its revision: nobody who changes it has to begin again because of these values.
        """
        row = self._still_open()
        self.replace_slot(self._slot, {**row, "statistics": {**values}}, row.get("revision"))

    # ---- generations

    def beside(self, fingerprint: str, spaces: Sequence[Space]) -> Self:
        """Return the index for another encoder that is built beside this one. It is the same until `switch`.

        Whoever else was building it cannot write to it any more, and a `freeze` that they left ends.
        """
        now, row, run = self._still_open(), self.read_slot("next"), os.urandom(8).hex()
        if row is None:
            self.fill_slot("next", {**self._begin(fingerprint, spaces), "run": run})
        elif row["generation"] != now["generation"] and self._is_of(row, fingerprint, spaces):
            self._change("next", row, {**row, "run": run})
        else:
            replaced = [_generation_of(row)] if row["generation"] != now["generation"] else []
            garbage = [*row.get("garbage", ()), *replaced]
            self._change("next", row, {**self._begin(fingerprint, spaces), "run": run, "garbage": garbage})
        self.unfreeze()
        self._still_open()  # from here on, only this run can switch, so what it has replaced may go
        self.prepare(spaces, (self.read_slot("next") or now)["generation"])
        other = self.over("next")
        other.bind(fingerprint, spaces)
        if (other._row or {}).get("run") != run:  # noqa: SLF001 - of the same class
            raise self._was_changed()
        other.sweep()
        return other

    def unfinished(self, fingerprint: str, spaces: Sequence[Space]) -> Store | None:
        """Return the index for another encoder that is being built beside this one: None where there is none."""
        now, row = self._still_open(), self.read_slot("next")
        if row is None or row["generation"] == now["generation"] or not self._is_of(row, fingerprint, spaces):
            return None
        other = self.over("next")
        with suppress(ConfigError):  # it has a row, and its parts are not made yet
            other.needed()
            return other
        return None

    def successor(self) -> Self | None:
        """Return the index that took the place of this one since it was opened: None where none did."""
        row = self.read_slot(self._slot)
        if self.as_opened() is None or row is None or _identity(row) == _identity(self._row or {}):
            return None
        return self.over(self._slot)

    def kept_generations(self) -> list[str]:
        """List the generations that take room: in use, replaced by it, and being built."""
        now, building = self.read_slot("index") or {}, self.read_slot("next") or {}
        return sorted({row["generation"] for row in (now, now.get("old"), building) if row})

    def freeze(self, built: Store) -> None:
        """Refuse writes until `switch` or `unfreeze`: what has returned by now is all there is."""
        now, row = self._still_open(), _next_row(built)
        self._change("index", now, {**now, "change": {"run": row["run"], "fingerprint": row["fingerprint"]}})

    def unfreeze(self, built: Store | None = None) -> bool:
        """Take writes again after a `freeze`, or only after that for ``built``.

        False where there was none.

        A `freeze` or `switch` for ``built`` that was given up as lost, and arrives later, does nothing then.
        """
        now = self.read_slot("index") or {}
        change = now.get("change")
        if change and built is not None and change["run"] != _next_row(built)["run"]:
            return False
        if change or built is not None:
            self._change("index", now, {key: value for key, value in now.items() if key != "change"})
        return bool(change)

    def switch(self, built: Store) -> None:
        """Put the index that was built beside this one in its place, in one step. This one is frozen for it.

        The old one is kept to be read. This store is the new one then, and needs a `bind` before it takes records.
        """
        now, row = self._still_open(), _next_row(built)
        if now.get("change", {}).get("run") != row["run"]:
            raise self._was_changed()
        garbage = [*now.get("garbage", ()), *([now["old"]] if now.get("old") else [])]
        kept = {"tuning": now["tuning"]} if "tuning" in now and now["fingerprint"] == row["fingerprint"] else {}
        self._change("index", now, {**_generation_of(row), **kept, "old": _generation_of(now), "garbage": garbage})
        with self._written:
            self._written.wait_for(lambda: not self._writers)
            with self._opening:
                self._row = self._opened = None
                self._needs_bind = True
        self.clear_slot("next", row.get("revision"))
        with suppress(BackendError, ConfigError):  # what cannot be removed stays listed, and `drop_old` says why
            self.sweep()

    def drop_old(self) -> bool:
        """Remove the index that the last `switch` replaced; False where there is none."""
        row = self.read_slot("index") or {}
        if row.get("old"):
            left = {key: value for key, value in row.items() if key != "old"}
            self._change("index", row, {**left, "garbage": [*row.get("garbage", ()), row["old"]]})
        return self.sweep()

    def sweep(self) -> bool:
        """Remove the generations that nobody may use any more; False where there are none."""
        row, now = self.read_slot(self._slot) or {}, self.read_slot("index") or {}
        used = {named["generation"] for named in (now, now.get("old")) if named}
        for old in row.get("garbage", ()):
            if old["generation"] not in used:
                self.drop(old["generation"], self._read(old).spaces)
        if "garbage" in row:
            self._replace(self._slot, row, {key: value for key, value in row.items() if key != "garbage"})
        return bool(row.get("garbage"))

    def _replace(self, slot: Slot, was: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
        """Put another row in the place of ``was``; False where another process has changed that."""
        revised = {**row, "revision": os.urandom(8).hex()}
        if self.replace_slot(slot, revised, was.get("revision")):
            return True
        now = self.read_slot(slot) or {}  # it may have been done, and only the answer was lost
        return bool(now.get("revision") == revised["revision"])

    def _change(self, slot: Slot, was: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        if not self._replace(slot, was, row):
            raise self._was_changed()

    def _was_changed(self) -> IndexMismatchError:
        return IndexMismatchError(
            f"another process has changed the index {self.name} meanwhile, as another `vlmsearch reindex` does: "
            "look with `vlmsearch info` what it was built with, and run this again where that is needed"
        )

    @property
    def generation(self) -> str:
        """Return the generation in use."""
        self.needed()
        return str((self._row or {})["generation"])

    @contextmanager
    def in_use(self, records: Sequence[Record] = ()) -> Iterator[None]:
        """Write within this block into the index that is open here, and into no other.

        IndexMismatchError if another one took its place, or if another encoder made the vectors of ``records``;
        BackendUnavailableError if it takes no writes now.
        """
        with self._written:
            self._writers += 1
        try:
            self._check_vectors(records)
            self.check_in_use()
            try:
                yield
            except BackendUnavailableError:
                raise
            except BackendError:
                with suppress(BackendError):
                    self._still_open()  # what failed may be what was removed with this generation
                raise
            self.check_in_use()
        finally:
            with self._written:
                self._writers -= 1
                self.writes_here += 1
                self._written.notify_all()

    def _check_vectors(self, records: Sequence[Record]) -> None:
        """Raise IndexMismatchError for vectors that are known to be of another index than the open one."""
        fingerprint = self.needed().fingerprint
        made = {record.fingerprint for record in records} - {"", fingerprint}
        if made or (records and self._needs_bind):
            by = ", ".join(sorted(made)) or "another encoder"
            raise IndexMismatchError(
                f"the index {self.name} is one of {fingerprint} by now, so it takes no vectors of {by}: "
                "bind it to that encoder, and encode again"
            )

    def check_in_use(self, *, to_read: bool = False) -> None:
        """Raise IndexMismatchError if another index took the place of this one since it was opened.

        ``to_read``: only if the index is not there any more. Otherwise also BackendUnavailableError if it is frozen.
        """
        row = self._still_open(or_old=to_read)
        if "change" in row and not to_read:
            raise BackendUnavailableError(self._why_frozen(row))

    def _still_open(self, *, or_old: bool = False) -> dict[str, Any]:
        """Return the row of the slot; IndexMismatchError where it is of another index.

        With ``or_old``, the index before it will do.
        """
        row = self.read_slot(self._slot) or {}
        self.needed()
        usable = (row, row.get("old") or {}) if or_old else (row,)
        if all(_identity(candidate) != _identity(self._row or {}) for candidate in usable):
            raise IndexMismatchError(
                f"the index {self.name} has been built anew with {row.get('fingerprint', 'another model')} since it "
                "was opened: open it again with that encoder"
            )
        return row

    def _why_frozen(self, row: Mapping[str, Any]) -> str:
        return (
            f"{self.name} takes no writes while `vlmsearch reindex` puts an index built with "
            f"{row['change']['fingerprint']} in its place: write again after that; if it was cut off, run it again"
        )

    def _next_generation(self) -> str:
        slots = [row for row in (self.read_slot("index"), self.read_slot("next")) if row]
        rows = [named for row in slots for named in (row, *row.get("garbage", ()), row.get("old") or row)]
        return str(max((int(row["generation"]) for row in rows), default=0) + 1)

    def _is_of(self, row: Mapping[str, Any], fingerprint: str, spaces: Sequence[Space]) -> bool:
        manifest = self._read(row)
        is_same = manifest.fingerprint == fingerprint and set(manifest.spaces) == set(spaces)
        return is_same and row["format"] == self.format


def _next_row(built: Store) -> Mapping[str, Any]:
    """Return the row of an index that is built beside another: IndexMismatchError if another run builds it by now."""
    if not isinstance(built, GenerationalStore):
        raise ConfigError(f"{built.name} was not built beside another index")
    return built._still_open()  # noqa: SLF001 - of the same class


def _generation_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that describes its generation alone."""
    return {name: row[name] for name in _OF_A_GENERATION if name in row}


def _tuning(row: Mapping[str, Any]) -> Mapping[str, float]:
    return FrozenDict(row.get("tuning", ()))


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return values that no other index has, nor another run that builds one."""
    return tuple(row.get(name) for name in ("generation", "fingerprint", "created", "run"))
