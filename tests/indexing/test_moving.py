"""Moving a live index to another model: the room is looked at beforehand, and no search fails meanwhile."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockStore

from tests.support.checkpoints import make_recipe
from tests.support.cli import ok, run
from tests.support.reindex_crash_points import FIRST, SECOND
from tests.support.siglip import make_siglip
from vlmsearch import (
    BackendUnavailableError,
    ConfigError,
    Document,
    Field,
    IndexMismatchError,
    Pipeline,
    Query,
    Record,
)
from vlmsearch.building.bundle import build_bundle
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.indexing.room import room_needed
from vlmsearch.models.recipe import read_recipe
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.sqlite.store import SqliteStore

TEXT = Field("minilm", "text")
OLD, NEW = "onnx:demo", "onnx:demo-clip"
SERVED = [
    *(pytest.param(kind, "demo", marks=pytest.mark.exhaustive) for kind in ("chroma server", "mongodb", "postgresql")),
    ("mongodb+chroma", "demo"),
    ("sqlite", "siglip"),
]
_names = map("moving-{}".format, count())


@pytest.fixture
def url(
    request: pytest.FixtureRequest, mongo_address: str, chroma_address: str, postgres_url: str, tmp_path: Path
) -> str:
    name = next(_names)
    return {
        "sqlite": f"sqlite:{tmp_path / 'index'}",
        "chroma server": f"chroma://{chroma_address}/{name}",
        "mongodb": f"mongodb://{mongo_address}/{name}",
        "mongodb+chroma": f"mongodb+chroma://{mongo_address}/{name}?chroma=http://{chroma_address}",
        "postgresql": f"{postgres_url}?table={name.replace('-', '_')}",
    }[request.param]


@pytest.fixture(scope="session")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a small SigLIP 2, whose space is another than CLIP's."""
    folder = tmp_path_factory.mktemp("siglip")
    checkpoint = make_siglip(folder / "checkpoint", positions=128)
    recipe = make_recipe(folder, checkpoint, space="siglip", relevance_scenes=300)
    build_bundle(read_recipe(recipe), out=folder / "bundle", precisions=["fp32"])
    return f"onnx:{folder / 'bundle'}"


@pytest.fixture
def models(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The encoders that an index is moved from and to."""
    return ("onnx:demo-clip", request.getfixturevalue("siglip")) if request.param == "siglip" else (OLD, NEW)


def scenes(folder: Path, count: int) -> list[Document]:
    """Scenes, each second one with its picture."""
    documents = []
    for number in range(count):
        scene, path = make_scene(number), folder / f"{number}.png"
        if number % 2:
            scene.draw(96).save(path)
        text = f"{scene.caption()} number{number}"
        documents.append(Document(f"{number}", text=text, image=path if number % 2 else None, metadata={"n": number}))
    return documents


class Searchers:
    """Threads that search without a pause; ``failed`` is what was raised, or found and not expected."""

    def __init__(self, pipeline: Pipeline, documents: Sequence[Document]) -> None:
        self.failed: list[object] = []
        self.searches = 0
        self._pipeline, self._documents = pipeline, documents
        self._over = threading.Event()

    @contextmanager
    def at_it(self, threads: int = 2) -> Iterator["Searchers"]:
        running = [threading.Thread(target=self._search, args=[number]) for number in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in running:
                thread.join()

    def wait_for_more(self, searches: int = 10) -> None:
        most, deadline = self.searches + searches, time.monotonic() + 60
        while self.searches < most and not self.failed:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _search(self, number: int) -> None:
        while not self._over.is_set() and not self.failed:
            document = self._documents[number % len(self._documents)]
            try:
                found = [match.document.id for match in self._pipeline.search(document.text, min_score=0, limit=30)]
                if document.id not in found:
                    self.failed.append((document.id, found))
                like = self._pipeline.search_many([Query(like=[document.id])], min_score=0)[0]
                if not like:
                    self.failed.append(f"nothing like {document.id}")
            except Exception as exc:  # noqa: BLE001 - any is a failed search
                self.failed.append(exc)
            self.searches += 2
            number += 7


CUT_OFF = """
import os, signal, time
from vlmsearch.cli import main
from vlmsearch.stores.generations import GenerationalStore

def die(*_):
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)

GenerationalStore.switch = die
main()
"""


@pytest.mark.parametrize(("url", "models"), SERVED, indirect=True)
def test_a_service_moves_to_another_model_without_a_failed_search(
    url: str, models: tuple[str, str], tmp_path: Path
) -> None:
    old, new = models
    documents, written = scenes(tmp_path, 240), dict[str, str | None]()
    kept, others = documents[:200], documents[200:]
    arguments = ["reindex", "--store", url, "--encoder", new, "--drop-old"]
    with (
        Pipeline.open(encoder=old, store=url, next_encoders=[new]) as service,
        Pipeline.open(encoder=old, store=url, next_encoders=[new]) as writer,
    ):
        writer.add(documents)
        with Searchers(service, kept).at_it() as searchers:
            for how, code in ((["-c", CUT_OFF], -signal.SIGKILL), (["-m", "vlmsearch"], 0)):
                with subprocess.Popen([sys.executable, *how, *arguments], stdout=subprocess.DEVNULL) as process:
                    turns = 0
                    while process.poll() is None:
                        turns += 1
                        with suppress(BackendUnavailableError, IndexMismatchError):  # for a moment
                            write(writer, f"late {code} {turns}", others.pop().id if others else "none", written)
                        time.sleep(0.02)
                assert process.returncode == code
            searchers.wait_for_more()
        assert searchers.failed == []
        assert searchers.searches > 20
        assert "+" not in service.encoder.fingerprint, "it searches with the model that the index has"
        assert writer.add(Document("new", text="newer")).added == 1
        found = {document.id: document.text for document in service.store.get([*written, "new", *map(str, range(200))])}
        late = {id: text for id, text in written.items() if text}
        assert len(late) > 2  # how many depends on the machine
        assert found == {document.id: document.text for document in kept} | late | {"new": "newer"}
        assert service.check().missing == ()
        image = kept[7].image
        assert isinstance(image, Path)
        fields = {match.document.id: match.fields for match in service.search(image=image, limit=300, min_score=0)}
        found_by = fields["7"][f"{service.encoder.spaces[0].name}/image"]
        assert found_by.rank == 1
        assert found_by.score == pytest.approx(1, abs=1e-3)
        assert service.search(kept[8].text, limit=1, min_score=0)[0].document.id == "8"
        with open_store(url) as store:
            assert isinstance(store, GenerationalStore)
            assert (store.kept_generations(), store.read_slot("next")) == (["2"], None)


def write(writer: Pipeline, late: str, gone: str, written: dict[str, str | None]) -> None:
    """Add a document and remove another; ``written`` has what was done."""
    writer.delete(gone)
    written[gone] = None
    writer.add(Document(late, text=f"a late one, {late}"))
    written[late] = f"a late one, {late}"


@pytest.mark.parametrize("is_shared", [False, True], ids=["a store of its own", "the store of the service"])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_service_that_reindexes_itself_fails_no_search(url: str, is_shared: bool, tmp_path: Path) -> None:
    documents = scenes(tmp_path, 200)
    with (
        Pipeline.open(encoder=OLD, store=url, next_encoders=[NEW]) as service,
        open_store(url) as other,
        open_encoder(NEW) as encoder,
    ):
        service.add(documents)
        with Searchers(service, documents).at_it() as searchers:
            searchers.wait_for_more()
            assert reindex(service.store if is_shared else other, encoder).switched
            searchers.wait_for_more()
            assert drop_old(other)
            searchers.wait_for_more()
        assert searchers.failed == []
        assert service.encoder.fingerprint == encoder.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [False, True], ids=["a store of its own", "the store of the service"])
@pytest.mark.parametrize("kind", ["sqlite", "mock"])
def test_an_index_that_moves_back_and_forth_is_searched_all_the_time(
    kind: str, is_shared: bool, tmp_path: Path
) -> None:
    store = SqliteStore(str(tmp_path / "index")) if kind == "sqlite" else MockStore()
    documents = [Document(f"{i}", text=f"text number{i}") for i in range(25)]
    with Pipeline(FIRST, store, next_encoders=[SECOND]) as service:
        service.add(documents)
        with Searchers(service, documents).at_it(threads=4) as searchers:
            for turn in range(10):
                searchers.wait_for_more(4)
                mine = service.store if is_shared else store.over("index")
                assert reindex(mine, FIRST if turn % 2 else SECOND).switched
                assert drop_old(mine)
        assert searchers.failed == []
        assert service.search("number3", limit=1)[0].document.id == "3"


@pytest.mark.parametrize("url", ["sqlite", "chroma server", "mongodb+chroma", "postgresql"], indirect=True)
def test_a_write_whose_index_is_removed_meanwhile_says_so(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as store:
        assert isinstance(store, GenerationalStore)
        pipeline, check = Pipeline(FIRST, store), store.check_in_use
        pipeline.add(Document("a", text="a red star"))

        def check_and_lose() -> None:
            monkeypatch.undo()
            check()
            assert reindex(store.over("index"), SECOND).switched
            assert drop_old(store.over("index"))

        store.bind(FIRST.fingerprint, FIRST.spaces)
        record = Record(Document("b", text="b"), {TEXT: FIRST.encode_texts(["b"])["minilm"][0]})
        monkeypatch.setattr(store, "check_in_use", check_and_lose)
        with pytest.raises(IndexMismatchError, match="built anew with model 2 since it was opened"):
            store.upsert([record])


# ---- what it takes


@pytest.mark.parametrize(
    "url",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("mongodb", "postgresql"))],
    indirect=True,
)
def test_the_room_is_within_a_factor_of_two_of_the_truth(url: str, tmp_path: Path) -> None:
    with open_encoder(OLD) as first, open_encoder(NEW) as second, open_store(url) as store:
        Pipeline(first, store).add(scenes(tmp_path, 400))
        expected = room_needed(store, second.fingerprint, second.spaces)
        before = store.disk_use().bytes  # type: ignore[attr-defined]
        assert reindex(store, second).switched
        added = store.disk_use().bytes - before  # type: ignore[attr-defined]
        assert 0.5 < expected.bytes_added / added < 2
        assert room_needed(store, first.fingerprint, first.spaces).bytes_added > 0


def test_an_unfinished_index_is_not_counted_again(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        documents = [Document(f"{i}", text=f"text {i}") for i in range(60)]
        Pipeline(FIRST, store).add(documents)
        whole = room_needed(store, SECOND.fingerprint, SECOND.spaces).bytes_added
        Pipeline(SECOND, store.beside(SECOND.fingerprint, SECOND.spaces)).add(documents[:40])
        assert room_needed(store, SECOND.fingerprint, SECOND.spaces).bytes_added < 0.6 * whole


def test_nothing_is_begun_where_the_disk_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = f"sqlite:{tmp_path / 'index'}", tmp_path / "scenes"
    folder.mkdir()
    scenes(folder, 20)
    ok("index", folder, "--store", store, "--encoder", OLD)
    arguments = ("reindex", "--store", store, "--encoder", NEW)
    free = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    refused = run(*arguments)
    assert refused.returncode == 1
    assert "make room, or begin all the same with --ignore-space" in refused.stderr
    assert "demo-minilm" in ok("info", "--store", store), "nothing was begun"
    said = ok(*arguments, "--ignore-space").splitlines()
    assert said[0].startswith("10 documents, 10 encoded: it took ")
    assert "in use from now on" in said[1]
    assert ok(*arguments).startswith("10 documents, 0 encoded: "), "there is nothing to renew"


def test_a_file_is_smaller_when_the_old_index_is_removed(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        Pipeline(FIRST, store).add(Document(f"{i}", text=f"text {i}") for i in range(2000))
        use = store.disk_use()
        assert reindex(store, SECOND).switched
        assert store.disk_use().bytes > 1.8 * use.bytes
        assert drop_old(store)
        assert store.disk_use().bytes == pytest.approx(use.bytes, rel=0.1)
    assert (tmp_path / "index").stat().st_size == pytest.approx(use.bytes, rel=0.1)


def test_a_next_encoder_is_open_as_its_url_says() -> None:
    with pytest.raises(TypeError, match=r"Pipeline\.open\(next_encoders='mock:'\)"):
        Pipeline(MockEncoder(), MemoryStore(), next_encoders=["mock:"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="nonsense"):
        Pipeline.open(encoder="mock:", store="mock:", next_encoders=["nonsense:"])
