"""``watch``: an index stays in step with folders on a real file system, whatever happens there."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import click
import pytest
import watchfiles
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import assert_one_line, run
from tests.support.pdf_files import write_pdf
from vlmsearch import (
    AsyncPipeline,
    ConfigError,
    Document,
    IndexReport,
    MissingDependencyError,
    Pipeline,
    SourceOptions,
)
from vlmsearch._util.extras import install_command
from vlmsearch.cli import cli
from vlmsearch.indexing import watch as watching
from vlmsearch.indexing.sources import Paths, file_id
from vlmsearch.indexing.watch import FileChanges, FolderWatch
from vlmsearch.stores.sqlite.store import SqliteStore


def until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Watched:
    """An index that another thread keeps in step."""

    def __init__(self, *folders: Path, follow_links: bool = True) -> None:
        self.store = MemoryStore()
        self.pipeline = Pipeline(MockEncoder(), self.store)
        self.reports: list[IndexReport] = []
        self.folders = folders
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        source = Paths(folders, options=SourceOptions(follow_links=follow_links))
        self.thread = threading.Thread(target=self._watch, args=(source,))

    def _watch(self, source: Paths) -> None:
        try:
            for report in self.pipeline.watch(source, stop=self.stop.is_set):
                self.reports.append(report)
        except BaseException as exc:  # noqa: BLE001 - shown by the test
            self.failure = exc

    def texts(self) -> dict[str, str | None]:
        """What the index has, by the path below the first folder."""
        found = self.store.get(list(self.store.ids()))
        return {os.path.relpath(document.id, self.folders[0]): document.text for document in found}

    def becomes(self, **texts: str | None) -> None:
        self.is_soon({name.replace("__", "/") + ".txt": text for name, text in texts.items()})

    def is_soon(self, texts: dict[str, str | None]) -> None:
        until(lambda: self.failure is not None or self.texts() == texts)
        assert self.failure is None

    @property
    def rejects(self) -> list[str]:
        return [reject.id for report in self.reports for reject in report.rejects]


@contextmanager
def watched(*folders: Path, follow_links: bool = True) -> Iterator[Watched]:
    it = Watched(*folders, follow_links=follow_links)
    it.thread.start()
    try:
        until(lambda: bool(it.reports) or it.failure is not None)
        yield it
    finally:
        it.stop.set()
        it.thread.join(60)
    assert it.failure is None
    assert not it.thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "watched"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_what_comes_changes_moves_and_goes(folder: Path) -> None:
    (folder / "a.txt").write_text("first")
    with watched(folder) as it:
        assert (it.reports[0].added, it.texts()) == (1, {"a.txt": "first"})
        (folder / "b.txt").write_text("second")
        it.becomes(a="first", b="second")
        (folder / "a.txt").write_text("changed")
        it.becomes(a="changed", b="second")
        (folder / "b.txt").rename(folder / "c.txt")
        it.becomes(a="changed", c="second")
        (folder / "a.txt").unlink()
        it.becomes(c="second")
        (folder / "new").write_text("atomic")
        (folder / "new").replace(folder / "c.txt")
        it.becomes(c="atomic")
    assert sum(report.added for report in it.reports) == 3
    assert sum(report.updated for report in it.reports) == 2
    assert sum(report.pruned for report in it.reports) == 2


@pytest.mark.slow
def test_what_is_not_taken_from_a_folder_does_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "in.txt").write_text("in")
    with watched(folder, follow_links=False) as it:
        (folder / ".hidden.txt").write_text("hidden")
        (folder / ".git").mkdir()
        (folder / ".git" / "x.txt").write_text("hidden")
        (folder / "program.py").write_text("no text")
        (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
        (folder / "linked").symlink_to(tmp_path / "other")
        (folder / "seen.txt").write_text("seen")
        it.becomes(seen="seen")
        (folder / ".git" / "y.txt").write_text("hidden")
        (folder / "program.py").unlink()
        (folder / "last.txt").write_text("last")
        it.becomes(seen="seen", last="last")
    assert sum(report.seen for report in it.reports) == 2


def test_documents_of_other_origins_stay(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    with watched(folder) as it:
        it.pipeline.add([Document("mine", text="mine"), Document(file_id(str(folder / "b.txt")), text="by hand")])
        (folder / "b.png").write_bytes(b"no image")
        until(lambda: len(it.rejects) == 1)
        for name in ("a.txt", "b.png"):
            (folder / name).unlink()
        it.is_soon({"b.txt": "by hand", os.path.relpath("mine", folder): "mine"})


@pytest.mark.slow
def test_folders_that_move_in_and_out(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "x.txt").write_text("x")
    (outside / "deep" / "y.txt").write_text("y")
    with watched(folder) as it:
        outside.rename(folder / "in")
        it.becomes(in__x="x", in__deep__y="y")
        (folder / "in" / "deep" / "z.txt").write_text("z")
        it.becomes(in__x="x", in__deep__y="y", in__deep__z="z")
        (folder / "in").rename(folder / "named")
        it.becomes(named__x="x", named__deep__y="y", named__deep__z="z")
        (folder / "named" / "deep" / "late.txt").write_text("late")
        it.becomes(named__x="x", named__deep__y="y", named__deep__z="z", named__deep__late="late")
        (folder / "named" / "deep").rename(tmp_path / "out")
        it.becomes(named__x="x")
        (tmp_path / "out" / "more.txt").write_text("not seen any more")
        shutil.rmtree(folder / "named")
        it.is_soon({})


def test_a_burst_ends_in_what_there_is(folder: Path) -> None:
    with watched(folder) as it:
        for number in range(600):
            place = folder / f"{number % 7}" / f"{number % 5}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}.txt").write_text(f"text {number}")
        for number in range(0, 600, 3):
            (folder / f"{number % 7}" / f"{number % 5}" / f"{number}.txt").unlink()
        shutil.move(folder / "1", folder / "moved")
        left = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}
        assert len(left) == 400
        it.is_soon(dict(left))
    assert it.rejects == []


@pytest.mark.slow
def test_a_file_is_read_when_it_is_whole(folder: Path, tmp_path: Path) -> None:
    Image.effect_noise((64, 64), 50).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    with watched(folder) as it:
        with (folder / "half.png").open("wb") as file:
            for start in range(0, len(data), len(data) // 10):
                file.write(data[start : start + len(data) // 10])
                file.flush()
                time.sleep(0.3)
        until(lambda: len(it.store) == 1)
    assert it.rejects == []


@pytest.mark.slow
def test_a_file_that_is_written_all_the_time_is_read_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_MAX_WAIT", 3.0)
    with watched(folder) as it, (folder / "log.txt").open("w") as file:
        begun = time.monotonic()
        while not it.texts():
            file.write("line\n")
            file.flush()
            time.sleep(0.1)
            assert time.monotonic() - begun < 60
        file.write("the end")
        file.flush()
        until(lambda: (it.texts().get("log.txt") or "").endswith("the end"))


@pytest.mark.slow
def test_a_bad_file_is_tried_again_when_it_changes_and_forgotten_when_it_goes(folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "good.png")
    with watched(folder) as it:
        (folder / "a.png").write_bytes(b"no image")
        (folder / "b.png").write_bytes(b"no image")
        until(lambda: len(it.store.rejects()) == 2)
        shutil.copy(tmp_path / "good.png", folder / "a.png")
        (folder / "b.png").unlink()
        until(lambda: len(it.store) == 1 and not it.store.rejects())


@pytest.mark.slow
def test_a_folder_that_is_moved_away_or_cannot_be_read_loses_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "a.txt").write_text("a")
    with watched(folder) as it:
        folder.rename(tmp_path / "elsewhere")
        time.sleep(3)
        assert it.texts() == {"a.txt": "a"}
        (tmp_path / "elsewhere").rename(folder)
        (folder / "b.txt").write_text("b")
        it.becomes(a="a", b="b")


def test_what_changes_while_the_first_run_goes_on_is_found(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    with MemoryStore() as store:
        pipeline = Pipeline(MockEncoder(), store)
        reports = pipeline.watch(folder)
        assert next(reports).added == 2
        (folder / "a.txt").write_text("changed")
        (folder / "b.txt").unlink()
        (folder / "c.txt").write_text("c")
        until(lambda: bool(next(reports)) and {d.text for d in store.get(list(store.ids()))} == {"changed", "c"})


def test_a_file_that_comes_and_goes_during_the_first_run_is_removed(folder: Path) -> None:
    new, odd = folder / "new.txt", folder / os.fsdecode(b"b\xffd%41.txt")
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    reports = pipeline.watch(folder)
    other = Pipeline(MockEncoder(), pipeline.store)

    def index_more(source: Paths, *options: object) -> IndexReport:
        for path in (new, odd):
            path.write_text("comes and goes")
        report = other.index(folder)
        for path in (new, odd):
            path.unlink()
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_index", index_more)
        first = next(reports)
    assert {file_id(str(new)), file_id(str(odd))} <= set(pipeline.store.ids())
    assert first.added > 1
    assert next(reports).pruned == 2
    reports.close()  # type: ignore[attr-defined]
    assert not {file_id(str(new)), file_id(str(odd))} & set(pipeline.store.ids())


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root mounts disks")
def test_a_disk_that_is_unmounted_loses_nothing_and_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=False, capture_output=True).returncode:
        pytest.skip("this system mounts nothing")
    try:
        for number in range(5):
            (disk / f"{number}.txt").write_text(f"text {number}")
        with watched(disk) as index:
            until(lambda: len(index.store) == 5)
            subprocess.run(["umount", "--lazy", disk], check=True)
            until(lambda: any(reject.id == str(disk) for report in index.reports for reject in report.rejects))
            assert len(index.store) == 5
        again = Pipeline(MockEncoder(), index.store)
        reports = again.watch(disk)
        assert [reject.id for reject in next(reports).rejects] == [str(disk)]
        assert len(index.store) == 5
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False, capture_output=True)


def test_a_folder_in_another_ones_place_loses_no_file_that_is_told_of(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.txt").write_text("a")

    def tell(*_folders: str, **_options: object) -> Iterator[set[tuple[int, str]]]:
        yield set()  # all is as it was listed
        folder.rename(tmp_path / "before")
        folder.mkdir()
        yield {(watchfiles.Change.deleted, str(folder / "a.txt"))}
        yield set()
        pytest.fail("the lost folder was not told of")

    monkeypatch.setattr(watchfiles, "watch", tell)
    watch = FolderWatch(Paths([folder]), settled_after=0)
    assert next(watch.changes()) == FileChanges((), (), lost=(str(folder),))


def test_what_went_while_nothing_watched_is_removed(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    with MemoryStore() as store:
        pipeline = Pipeline(MockEncoder(), store)
        pipeline.index(folder)
        (folder / "a.txt").unlink()
        first = next(pipeline.watch(folder))
        assert (first.unchanged, first.pruned, len(store)) == (1, 1, 1)


def test_what_the_system_does_not_tell_is_found_by_listing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_folders: str, stop_event: threading.Event, **_options: object) -> Iterator[set[tuple[int, str]]]:
        while not stop_event.wait(0.1):
            yield set()

    monkeypatch.setattr(watchfiles, "watch", silent)
    monkeypatch.setattr(watching, "_LISTED_EVERY", 1.0)
    with watched(folder) as it:
        (folder / "sub").mkdir()
        (folder / "sub" / "a.txt").write_text("a")
        it.becomes(sub__a="a")
        shutil.rmtree(folder / "sub")
        it.is_soon({})


def test_only_folders_are_watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    FolderWatch(Paths(["~/watched/", folder / ".." / "watched"]))
    (folder / "a.jsonl").write_text("{}")
    for name in ("a.jsonl", "*.jsonl"):
        with pytest.raises(ConfigError, match="is not a folder: only folders can be watched"):
            FolderWatch(Paths([folder / name]))
    with pytest.raises(ConfigError, match="no such file or folder"):
        FolderWatch(Paths([folder / "none"]))


def test_where_the_system_watches_no_more_folders_it_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_folders: str, **_options: object) -> Iterator[set[tuple[int, str]]]:
        raise OSError(28, "OS file watch limit reached")
        yield set()

    monkeypatch.setattr(watchfiles, "watch", refuse)
    with pytest.raises(ConfigError, match=r"limit reached.*sysctl fs\.inotify\.max_user_watches"):
        next(FolderWatch(Paths([folder])).changes())
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("watch"))):
        next(FolderWatch(Paths([folder])).changes())


def test_it_can_be_awaited_and_cancelled(folder: Path) -> None:
    async def main() -> tuple[int, int]:
        added = pruned = 0
        async with AsyncPipeline(Pipeline(MockEncoder(), MemoryStore())) as pipeline:
            (folder / "a.txt").write_text("a")
            async for report in pipeline.watch(folder):
                if not added:
                    (folder / "a.txt").rename(folder / "b.txt")
                added, pruned = added + report.added, pruned + report.pruned
                if pruned and added > 1:
                    break
            reports = pipeline.watch(folder)
            await anext(reports)
            task = asyncio.ensure_future(anext(reports))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return added, pruned  # closing the pipeline has waited for the thread

    assert asyncio.run(asyncio.wait_for(main(), 60)) == (2, 1)


# ---- the command


@contextmanager
def command(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which has done its first run."""
    arguments = ["watch", "watched", "--store", "sqlite:index", "--encoder", "mock:", "--json", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "vlmsearch", *arguments],
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "Watching watched\n"
            yield process
        finally:
            process.kill()


def indexed(folder: Path) -> int:
    with SqliteStore(str(folder.parent / "index")) as store:
        return len(store)


@pytest.mark.slow
def test_a_signal_ends_it_and_the_next_start_goes_on(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    with command(folder) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["added"] == 1
        (folder / "b.txt").write_text("b")
        assert json.loads(process.stdout.readline())["added"] == 1
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors.strip()) == (130, "", "Interrupted.")
    assert indexed(folder) == 2
    (folder / "a.txt").unlink()
    (folder / "c.txt").write_text("c")
    with command(folder) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "Interrupted.")
    step = json.loads(output.splitlines()[0])
    assert (step["added"], step["unchanged"], step["pruned"]) == (1, 1, 1)


@pytest.mark.slow
def test_the_command_takes_the_files_that_its_options_name(folder: Path) -> None:
    write_pdf(folder / "a.pdf", ["a red dog", "a blue car"])
    (folder / "a.html").write_text("<p>a page</p>")
    with command(folder, "--pdf") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["added"], first["left_out"]) == (3, {"office": 1})
        write_pdf(folder / "b.pdf", ["a green hat"])
        second = json.loads(process.stdout.readline())
        assert (second["added"], second["left_out"]) == (2, {})
        (folder / "a.pdf").unlink()
        assert json.loads(process.stdout.readline())["pruned"] == 3
    assert indexed(folder) == 2


def test_index_and_watch_have_the_same_options_for_files() -> None:
    names = {field.name for field in fields(SourceOptions)} - {"follow_links"} | {"no_follow"}
    for name in ("index", "watch"):
        with click.Context(cli) as context:
            command = cli.get_command(context, name)
        assert command is not None
        assert {name.replace("_", "-") for name in names} <= {
            option.removeprefix("--") for parameter in command.params for option in parameter.opts
        }


@pytest.mark.exhaustive
def test_nothing_is_missed_when_the_queue_of_the_kernel_overflows(folder: Path) -> None:
    """Stopped, the process takes no events; more come than inotify keeps, and of the last folders there are none."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with command(folder) as process:
        (folder / "first.txt").write_text("first")
        until(lambda: indexed(folder) == 1)
        time.sleep(2)  # by now the kernel is asked
        process.send_signal(signal.SIGSTOP)
        for number in range(most // 3 + 2000):
            (folder / f"{number}.txt").write_text(f"text {number}")
        late = folder / "late" / "deep"
        late.mkdir(parents=True)
        (late / "a.txt").write_text("a")
        process.send_signal(signal.SIGCONT)
        until(lambda: indexed(folder) == most // 3 + 2002, 200)
        (late / "b.txt").write_text("b")
        until(lambda: indexed(folder) == most // 3 + 2003, 30)


def test_the_command_refuses_what_is_not_a_folder(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    done = run("watch", "watched/a.txt", "--store", "sqlite:index", "--encoder", "mock:", cwd=folder.parent)
    assert_one_line(done, "'watched/a.txt' is not a folder: only folders can be watched")
