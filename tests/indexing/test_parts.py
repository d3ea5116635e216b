"""Files of several documents: PDF pages, indexed, changed, broken, deleted, interrupted and searched."""

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.facts import own
from tests.support.pdf_files import write_odd_sizes, write_pdf, write_scan
from vlmsearch import (
    BackendError,
    Document,
    ImageLimits,
    IndexReport,
    MetadataChange,
    Paths,
    Pipeline,
    Record,
    SourceOptions,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.indexing import flow
from vlmsearch.indexing.reindex import reindex
from vlmsearch.media.images import read_image
from vlmsearch.stores.base import reject_list_of
from vlmsearch.stores.sqlite.store import SqliteStore

PDF = SourceOptions(pdf=True)


@pytest.fixture(scope="module")
def encoder() -> Iterator[OnnxEncoder]:
    with OnnxEncoder("demo") as opened:
        yield opened


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(MockEncoder(), MemoryStore())


def run(pipeline: Pipeline, *paths: Path, prune: bool = False, retry_rejects: bool = False) -> IndexReport:
    return pipeline.index(Paths(paths, options=PDF), prune=prune, retry_rejects=retry_rejects)


def counts(report: IndexReport) -> tuple[int, int, int, int]:
    return report.added, report.updated, report.unchanged, report.pruned


def ids_of(path: Path, pages: int) -> set[str]:
    return {str(path), *(f"{path}#page={number}" for number in range(1, pages + 1))}


def test_pages_are_indexed_found_and_deleted_with_their_file(encoder: OnnxEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    report = write_pdf(folder / "report.pdf", ["rain in spring", "a red dog", "a red dog and a cat"], title="Animals")
    other = write_pdf(folder / "other.pdf", ["a red dog in the snow", "stock prices"])
    (folder / "note.txt").write_text("a red dog in a note")
    with SqliteStore(str(tmp_path / "index")) as store:
        pipeline = Pipeline(encoder, store)
        assert counts(run(pipeline, folder)) == (8, 0, 0, 0)
        assert set(pipeline.store.ids()) == {*ids_of(report, 3), *ids_of(other, 2), str(folder / "note.txt")}
        found = pipeline.search("a red dog", count=True, min_score=0.5, facets=["page"])
        files = [match.document.id.partition("#")[0] for match in found]
        assert sorted(files) == sorted({str(report), str(other), str(folder / "note.txt")})
        best = found[files.index(str(report))]
        assert best.document.id == f"{report}#page=2"
        assert best.document.part is not None
        assert best.document.part.page == best.document.metadata["page"] == 2
        assert next(iter(best.parts)) == f"{report}#page=3"
        assert best.score >= best.parts[f"{report}#page=3"] >= 0.5
        assert (found.total, sum(found.facets["page"].values())) == (3, 2)
        pages = [pipeline.search("a red dog", limit=1, min_score=0.5)]
        while pages[-1].cursor:
            pages.append(pipeline.search("a red dog", limit=1, min_score=0.5, cursor=pages[-1].cursor))
        assert [page[0].document.id for page in pages if page] == [match.document.id for match in found]
        every = pipeline.search("a red dog", min_score=0.5, limit=20, group=False, count=True)
        assert {f"{report}#page=2", f"{report}#page=3", f"{other}#page=1"} <= {match.document.id for match in every}
        assert not any(match.parts for match in every)
        assert every.total == len(every) > len(found)
        assert isinstance(best.document.image, Path)
        alike = pipeline.search(image=best.document.image, min_score=0, limit=20, group=False)
        cosines = {
            match.document.id: match.fields["clip/image"].score for match in alike if "clip/image" in match.fields
        }
        assert cosines[best.document.id] == pytest.approx(1, abs=1e-3)
        [whole] = pipeline.store.get([str(report)])
        assert own(whole.metadata) == {"pages": 3, "parts": 3, "title": "Animals"}
        assert whole.text == "Animals"
        assert whole.image == Path(f"{report}#page=1")
        assert counts(run(pipeline, folder)) == (0, 0, 3, 0)
        assert pipeline.delete(str(report)) == 4
        assert set(pipeline.store.ids()) == {*ids_of(other, 2), str(folder / "note.txt")}


def test_a_changed_file_loses_the_pages_that_it_no_longer_has(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [f"page {i}" for i in range(5)])
    pipeline.add(Document(f"{path}#page=9", text="mine, and not from the file"))
    assert counts(run(pipeline, tmp_path)) == (6, 0, 0, 0)
    write_pdf(path, ["page 0", "another", "page 2"])
    assert counts(run(pipeline, tmp_path)) == (0, 2, 2, 2)
    assert set(pipeline.store.ids()) == ids_of(path, 3) | {f"{path}#page=9"}
    assert pipeline.store.get([f"{path}#page=2"])[0].text == "another"
    assert counts(run(pipeline, tmp_path)) == (0, 0, 1, 0)


def test_an_unchanged_file_is_not_opened(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pdf(tmp_path / "a.pdf", ["one", "two"])
    run(pipeline, tmp_path)
    monkeypatch.setattr("vlmsearch.media.pdf._open", lambda path: pytest.fail(f"{path} was opened"))
    assert counts(run(pipeline, tmp_path)) == (0, 0, 1, 0)


def test_a_file_that_is_gone_is_pruned_with_its_pages(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    other = write_pdf(tmp_path / "b.pdf", ["three"])
    run(pipeline, tmp_path)
    assert counts(run(pipeline, tmp_path, prune=True)) == (0, 0, 2, 0)
    path.unlink()
    assert counts(run(pipeline, tmp_path)) == (0, 0, 1, 0)
    assert counts(run(pipeline, tmp_path, prune=True)) == (0, 0, 1, 3)
    assert set(pipeline.store.ids()) == ids_of(other, 1)


def test_a_file_that_is_named_is_read_without_its_option_and_stays(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    (tmp_path / "note.txt").write_text("a note")
    assert counts(pipeline.index(path)) == (3, 0, 0, 0)
    assert counts(pipeline.index(str(tmp_path / "*.pdf"))) == (0, 0, 1, 0)  # what a shell makes of it is the same
    report = pipeline.index(tmp_path, prune=True)
    assert (counts(report), report.left_out) == ((1, 0, 0, 0), {"pdf": 1})
    assert set(pipeline.store.ids()) == ids_of(path, 2) | {str(tmp_path / "note.txt")}
    assert counts(run(pipeline, tmp_path)) == (0, 0, 2, 0)


def test_a_file_that_breaks_is_rejected_without_its_pages_until_it_is_mended(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    whole = path.read_bytes()
    run(pipeline, tmp_path)
    path.write_bytes(b"%PDF-1.7 and nothing else")
    for pruned in (2, 0):
        report = run(pipeline, tmp_path)
        assert [(reject.id, reject.code) for reject in report.rejects] == [(str(path), "truncated")]
        assert report.pruned == pruned
        assert not list(pipeline.store.ids())
    path.write_bytes(whole)
    assert counts(run(pipeline, tmp_path)) == (3, 0, 0, 0)
    assert not reject_list_of(pipeline.store).rejects()


def test_a_page_that_cannot_be_used_stops_no_other_and_is_tried_again_when_asked(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_odd_sizes(tmp_path / "a.pdf", [(595, 100), (595, 595), (595, 100)])
    small = Pipeline(MockEncoder(), pipeline.store, image_limits=ImageLimits(pixels=1_000_000))
    with monkeypatch.context() as patch:
        patch.setattr(flow, "read_image", lambda path, *_: pytest.fail(f"{path} was read: pages come with images"))
        for _ in range(2):
            report = run(small, tmp_path)
            assert [(reject.id, reject.code) for reject in report.rejects] == [(f"{path}#page=2", "too_large")]
        assert set(pipeline.store.ids()) == ids_of(path, 3) - {f"{path}#page=2"}
    assert [reject.id for reject in run(pipeline, tmp_path).rejects] == [f"{path}#page=2"]
    assert counts(run(pipeline, tmp_path, retry_rejects=True)) == (1, 0, 3, 0)
    assert not reject_list_of(pipeline.store).rejects()
    assert set(pipeline.store.ids()) == ids_of(path, 3)


def test_reindexing_keeps_pages_and_what_says_that_they_are_unchanged(encoder: OnnxEncoder, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write_pdf(tmp_path / "in/a.pdf", ["one", "two"])
    with SqliteStore(str(tmp_path / "index")) as store:
        old = Pipeline(MockEncoder(), store)
        run(old, tmp_path / "in")
        stamps = store.stamps(sorted(ids_of(path, 2)))
        report = reindex(store, encoder)
        assert (report.encoded, report.lost, report.switched) == (3, (), True)
        assert store.stamps(sorted(ids_of(path, 2))) == stamps
        assert counts(run(Pipeline(encoder, store), tmp_path / "in")) == (0, 0, 1, 0)


def test_a_scan_is_found_by_a_picture_and_its_image_is_that_of_the_path(encoder: OnnxEncoder, tmp_path: Path) -> None:
    scenes = [make_scene(seed).draw(300) for seed in range(4)]
    path = write_scan(tmp_path / "scan.pdf", scenes)
    pipeline = Pipeline(encoder, MemoryStore())
    run(pipeline, path)
    for number in range(1, 5):
        query = Path(f"{path}#page={number}")
        found = [match.document for match in pipeline.search(image=query, group=False, limit=2)]
        assert f"{path}#page={number}" in {document.id for document in found}, "beside the whole file"
        assert read_image(query)[:2] == b"BM"


class Failing(MemoryStore):
    """Break off at a write, as a process that is killed does."""

    left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise BackendError("killed")

    def upsert(self, records: Sequence[Record]) -> None:
        self._count()
        super().upsert(records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        self._count()
        return super().update_metadata(changes)

    def delete(self, ids: Sequence[str]) -> int:
        self._count()
        return super().delete(ids)

    def reject(self, rejects: Sequence[object]) -> None:
        self._count()
        super().reject(rejects)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["shorter", "longer", "broken", "shorter after it was interrupted"])
def test_a_run_that_is_broken_off_at_any_write_is_completed_by_the_next(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "STORED_TOGETHER", 1)
    monkeypatch.setattr(flow, "BATCH", 2)
    monkeypatch.setattr(flow, "LOOKED_UP", 2)
    path = tmp_path / "a.pdf"
    texts = [f"page {i}" for i in range(7)]
    for writes in range(40):
        store = Failing()
        pipeline = Pipeline(MockEncoder(), store)
        write_pdf(path, texts)
        if change == "shorter after it was interrupted":
            store.left = 3
            with pytest.raises(BackendError, match="killed"):
                run(pipeline, tmp_path)
            assert str(path) not in set(store.ids())
            store.left = 10**9
        else:
            run(pipeline, tmp_path)
        if change == "broken":
            path.write_bytes(b"%PDF-1.7 and nothing else")
        else:
            write_pdf(path, [*texts, "more"] if change == "longer" else ["page 0", "new"])
        store.left = writes
        try:
            run(pipeline, tmp_path)
            is_done = True
        except BackendError:
            is_done = False
        store.left = 10**9
        run(pipeline, tmp_path)
        pages = {"longer": 8, "broken": 0}.get(change, 2)
        assert set(store.ids()) == (ids_of(path, pages) if pages else set()), writes
        assert {reject.id for reject in store.rejects()} == (set() if pages else {str(path)})
        assert counts(run(pipeline, tmp_path))[:2] == (0, 0)
        if is_done:
            break
    assert is_done
    assert writes > 2


@pytest.mark.slow
def test_a_file_that_is_put_back_after_its_successor_was_interrupted_is_whole_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "STORED_TOGETHER", 1)
    monkeypatch.setattr(flow, "BATCH", 2)
    path = tmp_path / "a.pdf"
    for writes in range(40):
        store = Failing()
        pipeline = Pipeline(MockEncoder(), store)
        write_pdf(path, ["one", "two", "three"])
        run(pipeline, tmp_path)
        old = path.read_bytes()
        write_pdf(path, [f"another {page}" for page in range(8)])
        store.left = writes
        try:
            run(pipeline, tmp_path)
            is_done = True
        except BackendError:
            is_done = False
        store.left = 10**9
        path.write_bytes(old)
        run(pipeline, tmp_path, prune=True)
        pages = [f"{path}#page={page}" for page in (1, 2, 3)]
        assert set(store.ids()) == {str(path), *pages}, writes
        assert [document.text for document in store.get(pages)] == ["one", "two", "three"], writes
        assert counts(run(pipeline, tmp_path, prune=True)) == (0, 0, 1, 0)
        if is_done:
            break
    assert is_done
    assert writes > 3


_CHILD = """
import sys
from vlmsearch import Paths, Pipeline, SourceOptions
pipeline = Pipeline.open(encoder="mock:", store=f"sqlite:{sys.argv[1]}")
print("ready", flush=True)
pipeline.index(Paths([sys.argv[2]], options=SourceOptions(pdf=True)), on_progress=lambda done: print(done, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_is_completed_by_the_next(how: signal.Signals, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [f"page {i}" for i in range(300)], size=(200, 200))
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(tmp_path / "index"), str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdout.readline()
        time.sleep(0.1)
        child.send_signal(how)
        child.communicate()
        with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
            there = set(pipeline.store.ids())
            assert there
            assert str(path) not in there or there == ids_of(path, 300)
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        run(pipeline, path)
        assert set(pipeline.store.ids()) == ids_of(path, 300)


_FLAT = """
import resource, sys
from vlmsearch import Paths, Pipeline, SourceOptions
from vlmsearch_mocks import MemoryStore, MockEncoder

class Forgetful(MemoryStore):
    def upsert(self, records):
        pass

peaks = []
for path in sys.argv[1:]:
    Pipeline(MockEncoder(), Forgetful()).index(Paths([path], options=SourceOptions(pdf=True)))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_pages(tmp_path: Path) -> None:
    few = write_pdf(tmp_path / "few.pdf", [f"page {i}" for i in range(300)], size=(100, 100))
    many = write_pdf(tmp_path / "many.pdf", [f"page {i}" for i in range(1500)], size=(100, 100))
    done = subprocess.run(
        [sys.executable, "-c", _FLAT, str(few), str(many)], capture_output=True, text=True, check=True
    )
    first, second = map(int, done.stdout.split())
    assert second - first < 40_000, "kilobytes more for 1,200 more pages"


def test_a_region_of_an_image_is_a_part_too(encoder: OnnxEncoder, tmp_path: Path) -> None:
    Image.new("RGB", (200, 100), "red").save(tmp_path / "a.png")
    region = f"{tmp_path / 'a.png'}#xywh=100,0,100,100"
    pipeline = Pipeline(encoder, MemoryStore())
    pipeline.index(tmp_path)
    pipeline.add(Document(region, image=Path(region)))
    [found] = pipeline.search(image=tmp_path / "a.png", min_score=0)
    assert {found.document.id, *found.parts} == {str(tmp_path / "a.png"), region}


@pytest.mark.parametrize("call", range(1, 12))
def test_a_page_that_another_process_deletes_during_a_run_fails_nothing(tmp_path: Path, call: int) -> None:
    path, index = tmp_path / "files" / "a.pdf", str(tmp_path / "index")
    path.parent.mkdir()
    write_pdf(path, [f"page {number}" for number in range(6)])
    with SqliteStore(index) as store:
        run(Pipeline(MockEncoder(), store), path.parent)
    write_pdf(path, [f"page {number} anew" for number in range(2)])
    calls = itertools.count(1)
    with SqliteStore(index) as other:

        class Beside(SqliteStore):
            def __getattribute__(self, name: str) -> object:
                if name in ("stamps", "get", "ids", "delete", "upsert", "update_metadata") and next(calls) == call:
                    other.delete([f"{path}#page=1", f"{path}#page=6"])
                return super().__getattribute__(name)

        with Beside(index) as store:
            report = run(Pipeline(MockEncoder(), store), path.parent)
            assert report.rejects == ()
    with SqliteStore(index) as store:
        run(Pipeline(MockEncoder(), store), path.parent)
        assert set(store.ids()) - {f"{path}#page=1"} == ids_of(path, 2) - {f"{path}#page=1"}
        assert store.check().clean
