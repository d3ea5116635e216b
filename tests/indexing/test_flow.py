"""The flow of indexing, on the demo models and the in-memory store; crashes on a file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from click.testing import CliRunner
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.folders import shut
from tests.support.odd_images import odd_files
from vlmsearch import BackendError, ConfigError, Document, IndexMismatchError, InvalidInputError, Pipeline, Record
from vlmsearch.cli import cli
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.indexing import sources
from vlmsearch.indexing.items import ReadOptions
from vlmsearch.indexing.reading import received
from vlmsearch.indexing.sources import Paths, file_id
from vlmsearch.media.images import IMAGE_SUFFIXES
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.base import reject_list_of
from vlmsearch.types import ImageSource, Stamp


@pytest.fixture(scope="module")
def encoder() -> Iterator[OnnxEncoder]:
    with OnnxEncoder("demo") as opened:
        yield opened


@pytest.fixture
def pipeline(encoder: OnnxEncoder) -> Pipeline:
    return Pipeline(encoder, MemoryStore())


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    for seed in range(40):
        make_scene(seed).draw(96).save(folder / f"{seed:02}.png")
    return folder


def copy(gallery: Path, to: Path, names: Sequence[str]) -> list[Path]:
    to.mkdir(exist_ok=True)
    for name in names:
        (to / name).write_bytes((gallery / name).read_bytes())
    return [to / name for name in names]


def test_a_second_run_skips_what_is_unchanged_and_replaces_what_changed(
    pipeline: Pipeline, gallery: Path, tmp_path: Path
) -> None:
    first, second, third = copy(gallery, tmp_path / "photos", ["00.png", "01.png", "02.png"])
    report = pipeline.index([tmp_path / "photos"])
    assert (report.added, report.updated, report.unchanged) == (3, 0, 0)
    second.write_bytes((gallery / "07.png").read_bytes())
    os.utime(first)
    report = pipeline.index([tmp_path / "photos"])
    assert (report.added, report.updated, report.unchanged) == (0, 1, 2)
    assert pipeline.search(image=gallery / "07.png", limit=1, min_score=0)[0].document.id == str(second)
    assert len(pipeline.store) == 3
    assert third.exists()


def test_a_table_that_was_moved_with_its_images_is_found_where_it_is(
    pipeline: Pipeline, gallery: Path, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    copy(gallery, before, ["00.png"])
    (before / "t.jsonl").write_text('{"id": "a", "image": "00.png"}')
    assert pipeline.index(before / "t.jsonl").added == 1
    before.rename(after)
    assert pipeline.index(after / "t.jsonl").updated == 1
    assert pipeline.store.get(["a"])[0].image == after / "00.png"
    assert pipeline.index(after / "t.jsonl").unchanged == 1


def test_a_row_that_went_to_another_table_is_not_pruned_with_the_first(pipeline: Pipeline, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    rows = [f'{{"id": "{id}", "text": "a red star"}}\n' for id in "abc"]
    first.write_text("".join(rows))
    pipeline.index(first)
    first.write_text(rows[0])
    second.write_text("".join(rows[1:]))
    pipeline.index(second)
    assert pipeline.index(second).unchanged == 2
    assert pipeline.index(first, prune=True).pruned == 0
    second.write_text(rows[1])
    assert pipeline.index(second, prune=True).pruned == 1
    assert sorted(pipeline.store.ids()) == ["a", "b"]


def test_an_image_of_the_caller_that_is_cut_off_or_closed_stops_no_other(pipeline: Pipeline, gallery: Path) -> None:
    whole, data = gallery / "00.png", (gallery / "01.png").read_bytes()
    cut, closed = PIL.Image.open(BytesIO(data[: len(data) // 2])), PIL.Image.open(whole)
    closed.close()
    report = pipeline.add(
        Document(id, image=image) for id, image in (("cut", cut), ("closed", closed), ("whole", PIL.Image.open(whole)))
    )
    assert report.added == 1
    assert list(pipeline.store.ids()) == ["whole"]
    assert {reject.id for reject in report.rejects} == {"cut", "closed"}


def test_an_image_of_several_documents_is_the_same_in_all(pipeline: Pipeline, gallery: Path) -> None:
    with PIL.Image.open(gallery / "00.png") as picture:
        large = BytesIO()
        picture.resize((900, 900)).save(large, "PNG")
    report = pipeline.add(
        Document(f"{turn}-{i}", image=image)
        for turn, image in enumerate(PIL.Image.open(BytesIO(large.getvalue())) for _ in range(10))
        for i in range(4)
    )
    assert (report.added, report.rejects) == (40, ())
    assert len({stamp.digest for stamp in pipeline.store.stamps(list(pipeline.store.ids())).values()}) == 1


def test_text_and_metadata_count_as_content(pipeline: Pipeline) -> None:
    document = Document("a", text="a red star", metadata={"n": 1})
    assert pipeline.add([document]).added == 1
    assert pipeline.add([document]).unchanged == 1
    assert pipeline.add([Document("a", text="a red star", metadata={"n": 2})]).updated == 1
    assert pipeline.add([Document("a", text="a blue star", metadata={"n": 2})]).updated == 1
    assert pipeline.store.get(["a"])[0].text == "a blue star"


def test_images_from_memory_are_indexed_and_not_kept(pipeline: Pipeline) -> None:
    image = make_scene(5).draw(128)
    assert pipeline.add([Document("a", image=image)]).added == 1
    assert pipeline.add([Document("a", image=image.copy())]).unchanged == 1
    match = pipeline.search(image=image, limit=1, min_score=0)[0]
    assert match.document == Document("a")
    assert max(field.score for field in match.fields.values()) == pytest.approx(1.0, abs=1e-4)


def test_prune_removes_what_is_gone_and_nothing_else(pipeline: Pipeline, gallery: Path, tmp_path: Path) -> None:
    first, second = copy(gallery, tmp_path / "photos", ["00.png", "01.png"])
    copy(gallery, tmp_path / "other", ["02.png"])
    pipeline.index([tmp_path / "photos", tmp_path / "other"])
    pipeline.add([Document("note", text="a note")])
    first.unlink()
    assert pipeline.index([tmp_path / "photos"]).pruned == 0
    assert pipeline.index([tmp_path / "photos"], prune=True).pruned == 1
    assert set(pipeline.store.ids()) == {str(second), str(tmp_path / "other/02.png"), "note"}


def test_a_folder_that_is_empty_all_at_once_loses_nothing_and_is_named(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "kept").mkdir()
    texts = [tmp_path / "disk" / f"{number}.txt" for number in range(3)]
    for text in [*texts, tmp_path / "kept" / "a.txt", tmp_path / "kept" / "b.txt"]:
        text.write_text(f"a note {text}")
    pipeline.index([tmp_path / "disk", tmp_path / "kept"])
    for text in texts:
        text.unlink()
    (tmp_path / "kept" / "b.txt").unlink()
    report = pipeline.index([tmp_path / "disk", tmp_path / "kept"], prune=True)
    assert [(reject.id, reject.code) for reject in report.rejects] == [(str(tmp_path / "disk"), "unreadable")]
    assert "is its disk mounted?" in report.rejects[0].message
    assert (report.pruned, set(pipeline.store.ids())) == (1, {*map(str, texts), str(tmp_path / "kept" / "a.txt")})
    texts[0].write_text("it is back")
    assert pipeline.index(tmp_path / "disk", prune=True).pruned == 2


def test_prune_removes_the_last_document_of_a_folder_or_table(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    text, table = tmp_path / "texts" / "a.txt", tmp_path / "rows.jsonl"
    text.write_text("a note")
    table.write_text('{"id": "row", "text": "a row"}\n')
    pipeline.index([text.parent, table])
    text.unlink()
    assert pipeline.index(Paths([text.parent], prune_empty=True), prune=True).pruned == 1
    table.write_text("")
    assert pipeline.index(table, prune=True).pruned == 1
    assert len(pipeline.store) == 0
    with pytest.raises(ConfigError, match="no images, texts or rows"):
        pipeline.index([text.parent, table], prune=True)


def test_a_folder_whose_files_all_need_options_says_which(pipeline: Pipeline, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.pdf", "c.PDF"):
        (tmp_path / name).write_bytes(b"not looked at")
    with pytest.raises(ConfigError, match="were left out, since they are read with an option: `pdf`, `video`"):
        pipeline.index(tmp_path)
    (tmp_path / "note.txt").write_text("a note")
    assert pipeline.index(tmp_path).added == 1


def test_images_stop_no_run_of_an_encoder_without_images(gallery: Path, tmp_path: Path) -> None:
    (image,) = copy(gallery, tmp_path / "mixed", ["00.png"])
    (tmp_path / "mixed" / "a.txt").write_text("a red star")
    with OnnxEncoder("demo-minilm") as encoder, MemoryStore() as store:
        texts = Pipeline(encoder, store)
        report = texts.index([tmp_path / "mixed"])
        assert report.added == 1
        (reject,) = report.rejects
        assert (reject.id, reject.code) == (str(image), "unsupported")
        assert reject.message == f"{image}: {encoder.fingerprint} encodes no images"
        assert texts.add([Document("both", text="a blue ring", image=image)]).added == 1
        assert {match.document.id for match in texts.search("a ring", min_score=0)} == {
            "both",
            str(tmp_path / "mixed" / "a.txt"),
        }
        for text in (None, "a ring"):
            with pytest.raises(ConfigError, match="encodes no images: ask with a text"):
                texts.search(text, image=image)


def test_prune_removes_nothing_below_a_folder_that_cannot_be_listed(
    pipeline: Pipeline, gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    gone, kept = copy(gallery, photos, ["00.png", "01.png"])
    (below,) = copy(gallery, photos / "shut", ["02.png"])
    pipeline.index(photos)
    gone.unlink()
    with monkeypatch.context() as patch:
        shut(patch, photos / "shut")
        report = pipeline.index(photos, prune=True)
    assert [(r.id, r.code) for r in report.rejects] == [(str(photos / "shut"), "unreadable")]
    assert report.pruned == 1
    assert set(pipeline.store.ids()) == {str(kept), str(below)}
    assert [r.id for r in reject_list_of(pipeline.store).rejects()] == [str(photos / "shut")]
    with monkeypatch.context() as patch:
        shut(patch, photos)
        report = pipeline.index(photos, prune=True)
    assert (report.pruned, [r.id for r in report.rejects]) == (0, [str(photos)])
    assert pipeline.index(photos).unchanged == 2
    assert reject_list_of(pipeline.store).rejects() == []


def test_a_bad_file_is_rejected_skipped_and_released_once_it_is_mended(
    pipeline: Pipeline, gallery: Path, tmp_path: Path
) -> None:
    good, bad = copy(gallery, tmp_path / "photos", ["00.png", "01.png"])
    bad.write_bytes(bad.read_bytes()[:200])
    report = pipeline.index([tmp_path / "photos"])
    assert (report.added, [(r.id, r.code) for r in report.rejects]) == (1, [(str(bad), "truncated")])
    assert [r.id for r in reject_list_of(pipeline.store).rejects()] == [str(bad)]
    again = pipeline.index([tmp_path / "photos"])
    assert (again.unchanged, len(again.rejects)) == (1, 1)
    retried = pipeline.index([tmp_path / "photos"], retry_rejects=True)
    assert [r.code for r in retried.rejects] == ["truncated"]
    bad.write_bytes((gallery / "01.png").read_bytes())
    assert pipeline.index([tmp_path / "photos"]).added == 1
    assert reject_list_of(pipeline.store).rejects() == []
    assert good.exists()


def test_a_bad_row_is_released_once_it_is_mended_or_gone(pipeline: Pipeline, tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    good, bad = '{"id": "a", "text": "a star"}', '{"id": "b", "text": {"a": "ring"}}'
    table.write_text(f"{good}\n{bad}\nno JSON\n{{")
    assert len(pipeline.index(table).rejects) == 3
    mended = bad.replace('{"a": "ring"}', '"a ring"')
    table.write_text(f"{good}\n{mended}\nno JSON")
    assert pipeline.index(table).added == 1
    assert [reject.id for reject in reject_list_of(pipeline.store).rejects()] == [f"{table}:3"]
    table.write_text(f"{good}\n{mended}")
    pipeline.index(table)
    assert reject_list_of(pipeline.store).rejects() == []


def test_a_file_that_goes_bad_is_found_no_longer(pipeline: Pipeline, gallery: Path, tmp_path: Path) -> None:
    (path,) = copy(gallery, tmp_path / "photos", ["00.png"])
    pipeline.index([tmp_path / "photos"])
    path.write_bytes(b"")
    report = pipeline.index([tmp_path / "photos"])
    assert [r.code for r in report.rejects] == ["empty"]
    assert len(pipeline.store) == 0


def test_strict_raises_at_the_first_bad_file(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no jpeg")
    with pytest.raises(InvalidInputError, match=r"bad\.jpg") as caught:
        pipeline.index([tmp_path], strict=True)
    assert caught.value.code in ("corrupt", "truncated")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (Document("a"), "empty"),
        (Document("a", text=""), "empty"),
        (Document("", text="x"), "invalid"),
        (Document("a", text="x", metadata=dict.fromkeys(map(str, range(1_001)), 1)), "too_large"),
        (Document("a", image=Path("/no/such.jpg")), "unreadable"),
        (Document("a", image=b""), "empty"),
        (Document("a", image=b"GIF89a"), "truncated"),
    ],
)
def test_documents_that_cannot_be_used_are_rejected_with_a_code(
    pipeline: Pipeline, document: Document, code: str
) -> None:
    report = pipeline.add([document, Document("good", text="a red star")])
    assert report.added == 1
    (reject,) = report.rejects
    assert reject.code == code or (code == "truncated" and reject.code == "corrupt")


def test_the_last_of_equal_ids_wins(pipeline: Pipeline) -> None:
    pipeline.add([Document("a", text="first"), Document("a", text="second")])
    assert pipeline.store.get(["a"]) == [Document("a", text="second")]


def test_another_encoder_is_refused_before_anything_is_written(encoder: OnnxEncoder) -> None:
    store = MemoryStore()
    Pipeline(encoder, store).add([Document("a", text="a red star")])
    other = Pipeline(MockEncoder(), store)
    with pytest.raises(IndexMismatchError, match="demo-clip:"):
        other.add([Document("b", text="never")])
    with pytest.raises(IndexMismatchError, match="demo-clip:"):
        other.search("a red star")
    assert list(store.ids()) == ["a"]


class FailingStore(MemoryStore):
    """Fails at the third batch."""

    writes = 0

    def upsert(self, records: Sequence[Record]) -> None:
        self.writes += 1
        if self.writes == 3:
            raise BackendError("disk full")
        super().upsert(records)


class MeetingEncoder(MockEncoder):
    """Holds each thread's first image back until as many threads as there are cores have one."""

    def __init__(self, cores: int) -> None:
        super().__init__()
        self._meeting = threading.Barrier(cores)
        self._seen = threading.local()

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        if not hasattr(self._seen, "before"):
            self._seen.before = True
            self._meeting.wait(timeout=30)
        return image


def test_every_core_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = 6
    monkeypatch.setattr("vlmsearch.indexing.flow.available_cores", lambda: cores)
    picture = make_scene(1).draw(32)
    documents = (Document(str(i), image=picture) for i in range(200))
    assert Pipeline(MeetingEncoder(cores), MemoryStore()).add(documents).added == 200


def test_a_failing_store_ends_the_run_with_its_error_and_no_thread_stays() -> None:
    store = FailingStore()
    pipeline = Pipeline(MockEncoder(), store)
    with pytest.raises(BackendError, match="disk full"):
        pipeline.add(Document(str(i), text=f"text {i}") for i in range(100_000))
    assert 0 < len(store) < 3000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vlmsearch-read")]
    report = pipeline.add(Document(str(i), text=f"text {i}") for i in range(1000))
    assert report.added + report.unchanged == 1000


def test_an_error_of_the_callers_own_iterator_is_raised_and_what_was_done_stays() -> None:
    def documents() -> Iterator[Document]:
        for i in range(500):
            yield Document(str(i), text=f"text {i}")
        raise KeyboardInterrupt

    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        Pipeline(MockEncoder(), store).add(documents())
    report = Pipeline(MockEncoder(), store).add(Document(str(i), text=f"text {i}") for i in range(600))
    assert report.added + report.unchanged == 600
    assert len(store) == 600


def test_progress_counts_to_the_end() -> None:
    seen: list[int] = []
    Pipeline(MockEncoder(), MemoryStore()).add(
        (Document(str(i), text=f"text {i}") for i in range(300)), on_progress=seen.append
    )
    assert seen == sorted(seen)
    assert seen[-1] == 300


def test_two_hundred_odd_files_never_stop_a_run_and_the_good_ones_are_found(pipeline: Pipeline, tmp_path: Path) -> None:
    files = odd_files(tmp_path / "odd", seed=11)
    assert len(files) >= 200
    report = pipeline.index([tmp_path / "odd"])
    failed = {reject.id for reject in report.rejects}
    indexed = set(pipeline.store.ids())
    good = [file for file in files if file.expected == {"ok"} and file.path.suffix.lower() in IMAGE_SUFFIXES]
    assert len(good) >= 40
    for file in good:
        assert file_id(str(file.path)) in indexed, file
        assert file_id(str(file.path)) not in failed
        found = pipeline.search(image=file.path, limit=5, min_score=0)
        assert max(field.score for match in found for field in match.fields.values()) > 0.999
    assert indexed.isdisjoint(failed)


def test_the_store_is_asked_about_many_documents_at_once(tmp_path: Path) -> None:
    class Counting(MemoryStore):
        asked = 0

        def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
            self.asked += 1
            return super().stamps(ids)

    store = Counting()
    with Pipeline(MockEncoder(), store) as pipeline:
        documents = [Document(str(i), text=f"text {i}") for i in range(5000)]
        assert pipeline.add(documents).added == 5000
        store.asked = 0
        assert pipeline.add(documents).unchanged == 5000
        assert store.asked <= 10 + 5000 / 512


def test_documents_that_come_slowly_or_are_heavy_do_not_wait_for_others() -> None:
    done: list[int] = []
    seen_early = threading.Event()

    def progress(count: int) -> None:
        done.append(count)
        if count:
            seen_early.set()

    def slow() -> Iterator[Document]:
        yield Document("first", text="a red star")
        for i in range(1000):
            time.sleep(0.01)
            yield Document(str(i), text=f"text {i}")
            if seen_early.is_set():
                return

    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        assert pipeline.add(slow(), on_progress=progress).added < 1001
    assert seen_early.is_set()


def test_an_index_is_listed_once_where_no_bar_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a red star")
    (tmp_path / "b.jsonl").write_text('{"id": "b", "text": "a blue heart"}')
    reads: list[str] = []
    scandir = os.scandir

    def note_folder(path: str) -> object:
        reads.append(str(path))
        return scandir(path)

    def note_table(function: str, value: dict[str, str], reading: ReadOptions, *, name: str) -> object:
        reads.append(value["table"])
        return received(function, value, reading, name=name)

    monkeypatch.setattr(os, "scandir", note_folder)
    monkeypatch.setattr(sources, "received", note_table)
    monkeypatch.setattr(sources, "call", lambda *_, **__: pytest.fail("the rows were counted"))
    command = ["index", str(tmp_path / "in"), str(tmp_path / "b.jsonl"), "--store", f"sqlite:{tmp_path / 'index'}"]
    done = CliRunner().invoke(cli, [*command, "--encoder", "mock:", "--json"])
    assert done.exit_code == 0, done.output
    assert [reads.count(str(tmp_path / name)) for name in ("in", "b.jsonl")] == [1, 1]


def test_a_row_of_too_many_columns_is_rejected_and_the_index_stays_usable(tmp_path: Path) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(
        f"id,text,{','.join(f'c{i}' for i in range(9000))}\n"
        f"full,a red star,{','.join(map(str, range(9000)))}\n"
        f"sparse,a blue heart,{','.join(map(str, range(500)))}{',' * 8500}\n"
    )
    for _ in range(2):
        with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
            report = pipeline.index(wide)
            assert [(reject.id, reject.code) for reject in report.rejects] == [("full", "too_large")]
            assert "metadata have at most 1,000 keys, not 9,000" in report.rejects[0].message
            assert [match.document.id for match in pipeline.search("star", where={"c499": 499}, min_score=0)] == [
                "sparse"
            ]
            assert pipeline.add(Document("next", text="a green dog")).seen == 1
            with pytest.raises(InvalidInputError, match="at most 1,000"):
                pipeline.add(Document("other", text="t", metadata={f"k{i}": i for i in range(200_000)}), strict=True)


_CHILD = """
import sys
from vlmsearch import Document, Pipeline
pipeline = Pipeline.open(encoder="mock:", store=f"sqlite:{sys.argv[1]}")
print("ready", flush=True)
pipeline.add(
    (Document(str(i), text=f"text {i}") for i in range(int(sys.argv[2]))),
    on_progress=lambda done: print(done, flush=True),
)
"""


def _child(path: Path, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path), str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("turns", [2, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_an_interrupted_run_opens_searches_and_completes(how: signal.Signals, turns: int, tmp_path: Path) -> None:
    count, rng = 3000, np.random.default_rng(4)
    for _ in range(turns):
        child = _child(tmp_path / "index", count)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.15)))
        child.send_signal(how)
        child.communicate()
        with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
            done = len(pipeline.store)
            assert done > 0
            assert pipeline.search("text 3", limit=3, min_score=0)[0].document.text == "text 3"
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        report = pipeline.add(Document(str(i), text=f"text {i}") for i in range(count))
        assert report.added + report.unchanged + report.updated == count
        assert sorted(pipeline.store.ids(), key=int) == [str(i) for i in range(count)]
        found = pipeline.search("text 7", limit=100, min_score=0)
        assert len({match.document.id for match in found}) == len(found)


_FLAT = """
import resource, sys
import numpy as np
from vlmsearch import Document, Field, Pipeline
from vlmsearch_mocks import MemoryStore, MockEncoder

class Forgetful(MemoryStore):
    def upsert(self, records):
        pass

pipeline = Pipeline(MockEncoder(), Forgetful())
peaks = []
for count in (10_000, 40_000):
    pipeline.add(Document(str(i), text=f"text {i} " + "word " * 100) for i in range(count))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


@pytest.mark.slow
def test_memory_of_the_flow_does_not_grow_with_the_documents() -> None:
    done = subprocess.run([sys.executable, "-c", _FLAT], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 12_000, "kilobytes more for 30,000 more documents"
