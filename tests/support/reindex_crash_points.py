"""``reindex`` and ``drop_old``, killed before, at half of and after every call to a server.

The servers outlive the process that is killed, and so does a writer, another process with the old model, which writes
whenever the row that says which index is in use is about to be replaced. Whatever was acknowledged has to be there
afterwards, as it was written and under vectors of the model that the index names; so it has to be when the work is
taken up again, by any of several ways, and nothing may be left that no row names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from vlmsearch_mocks import MockEncoder

from tests.support.worlds import Moment, Process, World, file_world
from vlmsearch import ConfigError, Document, Pipeline, VlmsearchError
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.stores.base import check_store
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.types import WORDS, Role, Vectors

T = TypeVar("T")
Action = Literal["reindex", "drop_old"]
Sequel = Literal["again", "drop old first", "another model", "give up"]
MOMENTS: tuple[Moment, ...] = ("before", "half", "after")
SEQUELS: tuple[Sequel, ...] = get_args(Sequel)
START = {f"{i}": f"text {i}" for i in range(6)}


class Model(MockEncoder):
    """A model whose vectors of a text are nothing like those of the others."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.fingerprint = f"model {number}"
        self._number = number

    def encode_texts(self, texts: Any, *, role: Role = "document") -> dict[str, Vectors]:
        found = super().encode_texts(texts, role=role)
        return {space: np.ascontiguousarray(np.roll(rows, 17 * self._number, 1)) for space, rows in found.items()}


FIRST, SECOND, THIRD = (Model(number) for number in (1, 2, 3))


@dataclass
class Writer:
    """A process that adds, changes, deletes and adds again with one model; what it was told has been done is ``has``.

    What it was not told about may be there or not: ``may_be`` has the other forms of those documents.
    """

    world: World
    model: Model = FIRST
    has: dict[str, str] = field(default_factory=lambda: dict(START))
    may_be: dict[str, set[str | None]] = field(default_factory=dict)
    turns: int = 0

    def turn(self) -> None:
        """Write once of each kind."""
        self.turns += 1
        with closing(self.world.open()) as store:
            pipeline = Pipeline(self.model, store)
            self.add(pipeline, {f"late {self.turns}": "late", "1": f"text of turn {self.turns}"})
            self.delete(pipeline, f"{self.turns + 1}")
            self.delete(pipeline, "5")
            self.add(pipeline, {"5": "text 5"})

    def add(self, pipeline: Pipeline, texts: dict[str, str]) -> bool:
        try:
            pipeline.add([Document(id, text=text) for id, text in texts.items()])
        except VlmsearchError:
            for id, text in texts.items():
                self.may_be.setdefault(id, set()).add(text)
            return False
        self._done(dict(texts))
        return True

    def delete(self, pipeline: Pipeline, id: str) -> None:
        try:
            pipeline.delete([id])
        except VlmsearchError:
            self.may_be.setdefault(id, set()).add(None)
        else:
            self._done({id: None})

    def _done(self, texts: dict[str, str | None]) -> None:
        for id, text in texts.items():
            self.may_be.pop(id, None)
            self.has.pop(id, None)
            if text is not None:
                self.has[id] = text

    def problems(self, store: GenerationalStore) -> list[str]:
        """What is not there as it should be, in the documents and under their vectors."""
        manifest = store.manifest()
        if manifest is None:
            return ["there is no index"]
        model = next(each for each in (FIRST, SECOND, THIRD) if each.fingerprint == manifest.fingerprint)
        found = {document.id: document.text for document in store.get(list(store.ids()))}
        wrong = [
            f"{id!r} is {found.get(id)!r}, not {self.has.get(id)!r}"
            for id in sorted({*found, *self.has})
            if found.get(id) not in {self.has.get(id), *self.may_be.get(id, ())}
        ]
        if len(store) != len(found):
            wrong.append(f"{len(store)} documents are counted, {len(found)} are there")
        pipeline = Pipeline(model, store)
        for text in {*found.values()} - {None}:
            matches = pipeline.search(text, limit=100, min_score=0)
            if {match.document.id for match in matches} != set(found):
                wrong.append(f"{text!r} finds {len(matches)} of {len(found)}")
            near = set()
            for match in matches:
                cosines = [field.score for name, field in match.fields.items() if name != WORDS]
                if min(cosines) > 0.999:
                    near.add(match.document.id)
            if near != {id for id, other in found.items() if other == text}:
                wrong.append(f"{text!r} of {manifest.fingerprint} is near to {sorted(near)}")
        return wrong


def start(world: World) -> Writer:
    """An index of the first model, and who writes to it."""
    with closing(world.open()) as store:
        Pipeline(FIRST, store).add([Document(id, text=text) for id, text in START.items()])
    return Writer(world)


def run_reindex(
    writer: Writer, model: Model = SECOND, *, others_write: bool = True, process: Process | None = None
) -> bool:
    """``reindex`` of a process of its own; whether it switched."""
    with closing(writer.world.open(process)) as store:
        replace_slot = store.replace_slot

        def write_first(slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
            if slot == "index":
                writer.turn()
            return replace_slot(slot, row, revision)

        if others_write:
            store.replace_slot = write_first  # type: ignore[method-assign]
        return reindex(store, model).switched


def run_drop(writer: Writer, process: Process | None = None) -> None:
    """``drop_old`` of a process of its own."""
    with closing(writer.world.open(process)) as store:
        drop_old(store)


def aftermath(writer: Writer, sequel: Sequel) -> list[str]:
    """What is wrong after the kill, and after the work has been taken up again."""
    world, wrong = writer.world, list[str]()

    def look(when: str) -> None:
        with closing(world.open()) as store:
            wrong.extend(f"{when}: {each}" for each in writer.problems(store))

    look("killed")
    with closing(world.open()) as store:
        check_store(store, repair=True)
        if not check_store(store).clean:
            wrong.append("killed: not clean after a repair")
    look("repaired")
    if sequel == "drop old first":
        run_drop(writer)
        look("dropped first")
    with closing(world.open()) as store:
        manifest = store.manifest()
    assert manifest is not None
    aim = {"another model": THIRD, "give up": FIRST}.get(sequel, SECOND)
    if run_reindex(writer, aim, others_write=False) == (manifest.fingerprint == aim.fingerprint):
        wrong.append("the second run did not switch")
    look("taken up")
    with closing(world.open()) as store:
        if not writer.add(Pipeline(aim, store), {"new": "newer text"}):
            wrong.append("the index takes no writes afterwards")
    run_drop(writer)
    look("dropped")
    with closing(world.open()) as store:
        rows = [store.read_slot("index"), store.read_slot("next")]
    named = {"about", "rejects", *(row["generation"] for row in rows if row)}
    left = sorted(name for name in world.collections() if name.split(".")[0] not in named)
    return wrong + [f"no row names {name}" for name in left]


@dataclass
class Report:
    """How many times a process was killed, and what was wrong after which."""

    points: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def note(self, point: str, wrong: list[str]) -> None:
        self.points += 1
        if wrong:
            self.wrong[point] = wrong


def killed(world: World, action: Action, point: int, moment: Moment) -> Writer | None:
    """The writer of a world in which ``action`` was killed at a call; None where it makes no such call."""
    writer = start(world)
    if action == "drop_old":
        run_reindex(writer, others_write=False)
    process = Process(point, moment)
    with process.until_it_dies():
        run_reindex(writer, process=process) if action == "reindex" else run_drop(writer, process)
    return writer if process.was_killed else None


def kill_everywhere(
    make_world: Callable[[], World], *, first: int = 0, step: int = 1, moments: tuple[Moment, ...] = MOMENTS
) -> Report:
    """Kill `reindex`, then `drop_old`, at each moment of every ``step``-th call, each time with one of the sequels."""
    report = Report()
    for action in get_args(Action):
        for number, point in enumerate(count(first, step)):
            reached = False
            for turn, moment in enumerate(moments):
                sequel = SEQUELS[(number + turn) % len(SEQUELS)]
                world = make_world()
                writer = killed(world, action, point, moment)
                if writer is not None:
                    reached = True
                    report.note(f"{action} {point} {moment}, {sequel}", aftermath(writer, sequel))
                world.drop()
            if not reached:
                break
    return report


def kill_twice(make_world: Callable[[], World], *, first: int = 0, step: int = 1) -> Report:
    """Kill `reindex` at every ``step``-th call, and the run that takes it up at every ``step``-th of its own."""
    report = Report()
    for point in count(first, step):
        for number, second in enumerate(count(first, step)):
            world, process = make_world(), Process(second)
            writer = killed(world, "reindex", point, MOMENTS[number % 2 * 2])
            if writer is None:
                return report
            with process.until_it_dies(), suppress(ConfigError):
                run_reindex(writer, process=process)
            if not process.was_killed:
                break
            report.note(f"reindex {point}, then {second}", aftermath(writer, SEQUELS[number % len(SEQUELS)]))
            world.drop()
    raise AssertionError("count ends never")


@dataclass
class Imaged(Process):
    """A process of whose folder an image is taken before and after every call."""

    image: Callable[[], None] = lambda: None

    def call(self, name: str, do: Callable[[], T], half: Callable[[], object] | None) -> T:
        self.image()
        answer = do()
        self.image()
        return answer


def image_everywhere(folder: Path, *, first: int = 0, step: int = 1) -> Report:
    """Copy the folder before and after every call of `reindex` and `drop_old`, and look at every ``step``-th copy."""
    images: list[Writer] = []
    counted = count(-first)

    def image() -> None:
        if next(counted) % step == 0:
            place = shutil.copytree(folder, folder.parent / f"image-{len(images)}")
            copied = replace(writer, world=file_world(place), has=dict(writer.has), may_be=deepcopy(writer.may_be))
            images.append(copied)

    writer = start(file_world(folder))
    run_reindex(writer, process=Imaged(image=image))
    run_drop(writer, Imaged(image=image))
    report = Report()
    for number, each in enumerate(images):
        sequel = SEQUELS[number % len(SEQUELS)]
        report.note(f"image {number}, {sequel}", aftermath(each, sequel))
        each.world.drop()
    return report
