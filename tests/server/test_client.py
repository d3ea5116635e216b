"""`vlmsearch.connect`: what a pipeline on a server does, and that it is what the pipeline there does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import vlmsearch.client
from tests.support.scripted_http import Answer, scripted_server
from tests.support.service import TEXTS, RunningService, free_socket, serving
from tests.support.threads import in_this_thread
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    Citation,
    ConfigError,
    Document,
    GenerationOptions,
    IndexMismatchError,
    InvalidInputError,
    JudgedQuery,
    Match,
    Matches,
    MissingDependencyError,
    ModelUnavailableError,
    OverloadedError,
    Pipeline,
    QualityError,
    Query,
    RejectedDocumentsWarning,
    RemoteImage,
    RemotePipeline,
    SourceOptions,
    VlmsearchError,
    connect,
)
from vlmsearch.client import _error_of
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.errors import api_error, error_of
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.wire import Json, to_json

FOUND = json.dumps({"matches": [], "cursor": None, "threshold": 0.3}).encode()


def error(kind: str, message: str = "no", code: str | None = None) -> bytes:
    detail = {"type": kind, "message": message, "code": code, "param": None, "request_id": "1"}
    return json.dumps({"error": detail}).encode()


@pytest.fixture(scope="module")
def here(running_service: RunningService) -> Pipeline:
    return running_service.service.indexes["notes"].pipeline


@pytest.fixture(scope="module")
def there(running_service: RunningService) -> Iterator[RemotePipeline]:
    with connect(running_service.url, index="notes") as pipeline:
        yield pipeline


@pytest.fixture
def writable(tmp_path: Path) -> Iterator[RunningService]:
    """A service with an index of its own, which may read a folder with four files."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    make_scene(3).draw(128).save(pictures / "scene.png")
    make_scene(3).draw(128).resize((96, 96)).save(pictures / "smaller.png")
    (pictures / "note.txt").write_text("a note of a lake")
    (pictures / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "onnx:demo", allow=(str(pictures),))
    with serving(ServerSettings(indexes={"default": index}, uploads=str(tmp_path / "uploads"))) as running:
        yield running


def forms(found: Iterable[Match]) -> list[Json]:
    """The matches as they are sent, with images by the server's names of them."""
    return list(map(to_json, found))


def picture(here: Pipeline) -> Path:
    return next(Path(id) for id in here.store.ids() if id.endswith("1.png"))


@pytest.mark.parametrize(
    "options",
    [
        {"text": "dog snow"},
        {"text": "a dog -snow"},
        {"text": "dog", "limit": 1, "offset": 1, "min_score": 0.0},
        {"like": "a", "min_score": 0.0},
        {"text": "dog", "like": ["c"], "without": ["b"], "min_score": 0.0},
        {"text": "dog", "without": "snow"},
        {"text": "a", "where": {"n": {"$gte": 1}}, "min_score": 0.0, "sort": "-n", "count": True, "facets": ["n"]},
        {"text": "dog", "weights": {"words": 0}, "diversity": 0.5},
    ],
)
def test_a_search_finds_what_the_pipeline_there_finds(
    options: dict[str, Any], here: Pipeline, there: RemotePipeline
) -> None:
    expected, found = here.search(**options), there.search(**options)
    assert found
    assert forms(found) == forms(expected)
    assert (found.cursor, found.total, found.facets, found.threshold) == (
        expected.cursor,
        expected.total,
        expected.facets,
        expected.threshold,
    )


def test_halves_of_characters_are_unknown_ids_and_no_words(here: Pipeline, there: RemotePipeline) -> None:
    for pipe in (here, there):
        assert pipe.get(["\udcff", "a", "b\0"]) == pipe.get("a")
        assert pipe.delete(["\udcff", "b\0"]) == 0
        assert not pipe.search("\udcff")
        with pytest.raises(ConfigError, match="no document"):
            pipe.search(like="\udcff")
        with pytest.raises(ConfigError, match="is no key of metadata"):
            pipe.search("dog", where={"\udcff": 1})


def test_pages_follow_each_other(there: RemotePipeline) -> None:
    first = there.search("dog", limit=1, min_score=0)
    second = there.search("dog", limit=1, min_score=0, cursor=first.cursor)
    assert [first[0].document.id, second[0].document.id] == [
        match.document.id for match in there.search("dog", limit=2, min_score=0)
    ]


def test_an_image_is_searched_by_as_a_file_as_bytes_decoded_and_as_the_servers(
    running_service: RunningService, here: Pipeline, there: RemotePipeline
) -> None:
    path = picture(here)
    with Image.open(path) as decoded:
        decoded.load()
    kept = RemoteImage(running_service.url, "notes", str(path), str(path))
    for image in (path, path.read_bytes(), decoded, kept):
        document = there.search(image=image)[0].document
        assert (document.id, document.image) == (str(path), kept)
    assert forms(there.search("dog", without=path, min_score=0)) == forms(here.search("dog", without=path, min_score=0))


def test_the_reranker_of_the_server_judges(here: Pipeline, there: RemotePipeline) -> None:
    assert forms(there.search("dog", rerank=True)) == forms(here.search("dog", rerank="mock:"))
    assert forms(there.search("dog", rerank=True)) != forms(there.search("dog"))


def test_several_queries_go_in_one_request(here: Pipeline, there: RemotePipeline) -> None:
    queries: list[str | Query] = [
        "dog snow",
        Query(like=["a"]),
        Query("dog", without=[Query("snow")]),
        Query(image=picture(here)),
    ]
    assert list(map(forms, there.search_many(queries, limit=3))) == [
        forms(found) for found in here.search_many(queries, limit=3)
    ]
    with pytest.raises(ConfigError, match="excludes one text"):
        there.search_many([Query("dog", without=[Query("snow"), Query("rain")])])
    with pytest.raises(TypeError, match="takes a list"):
        there.search_many("dog")


@pytest.mark.parametrize("id", ["a", "b", "not there"])
def test_an_explanation_is_that_of_the_pipeline_there(id: str, here: Pipeline, there: RemotePipeline) -> None:
    assert there.explain("a dog -snow", id, parts=True) == here.explain("a dog -snow", id, parts=True)


def test_an_answer_and_a_stream_of_it(here: Pipeline, there: RemotePipeline) -> None:
    expected = here.ask("Which dog?", limit=2)
    answer = there.ask("Which dog?", limit=2)
    assert (answer.text, answer.citations) == (expected.text, expected.citations)
    assert forms(answer.matches) == forms(expected.matches)
    with there.ask("Which dog?", limit=2, stream=True) as parts:
        pieces = list(parts)
        assert parts.answer() == answer
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == expected.text
    assert [piece for piece in pieces if isinstance(piece, Citation)] == list(expected.citations)
    short = there.ask("Which dog?", options=GenerationOptions(max_tokens=1))
    assert short.text == here.ask("Which dog?", options=GenerationOptions(max_tokens=1)).text
    with there.ask("Which dog?", stream=True) as parts:
        assert next(parts)
        assert parts.matches
    assert parts.answer().text in expected.text


def test_documents_are_read_by_id_and_all_of_them(
    here: Pipeline, there: RemotePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.get(["c", "not there", "a"]) == here.store.get(["c", "a"])
    assert there.get("b")[0].text == TEXTS["b"]
    monkeypatch.setattr(vlmsearch.client, "_PAGE", 2)
    assert [document.id for document in there.documents()] == sorted(here.store.ids())


def test_images_come_whole_and_scaled(here: Pipeline, there: RemotePipeline) -> None:
    path = picture(here)
    assert there.image(str(path)) == path.read_bytes()
    assert there.thumbnail(str(path), size=32).startswith(b"\xff\xd8")
    assert '<img alt="' in there.get(str(path))[0]._repr_html_(), "a notebook shows it"
    assert len(there) == there.count() == len(here)
    with pytest.raises(ConfigError, match="'a'"):
        there.image("a")


def test_an_index_says_what_it_is(running_service: RunningService, here: Pipeline, there: RemotePipeline) -> None:
    assert there.info()["documents"] == len(here.store)
    assert [index["name"] for index in there.indexes()] == ["notes", "empty"]
    assert there.rejects() == []
    assert repr(there) == f"RemotePipeline({running_service.url!r}, index='notes')"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"text": " "}, InvalidInputError, "a query needs a text"),
        ({"like": "not there"}, ConfigError, "not there"),
        ({"text": "a", "limit": 0}, ConfigError, "limit"),
        ({"text": "a", "where": {"n": {"$near": 1}}}, ConfigError, r"\$near"),
        ({"image": b"no image"}, InvalidInputError, "format"),
        ({"image": Path("not/there.png")}, InvalidInputError, "not/there.png"),
        ({"image": "no/file.png"}, InvalidInputError, "no/file.png"),
        ({"image": "https://example.org/a.png"}, InvalidInputError, "download it first"),
        ({"text": "a", "facets": "n"}, ConfigError, "list of strings"),
    ],
)
def test_what_the_pipeline_there_raises_is_raised(
    options: dict[str, Any], kind: type[Exception], message: str, there: RemotePipeline
) -> None:
    with pytest.raises(kind, match=message):
        there.search(**options)


def test_the_code_of_a_bad_image_comes_along(there: RemotePipeline) -> None:
    with pytest.raises(InvalidInputError) as caught:
        there.search(image=b"no image")
    assert caught.value.code == "unsupported"


def test_an_index_or_a_generator_that_is_not_there(running_service: RunningService) -> None:
    with connect(running_service.url, index="other") as pipeline, pytest.raises(ConfigError, match="other"):
        pipeline.search("dog")
    with connect(running_service.url, index="empty") as pipeline:
        assert list(pipeline.search("dog")) == []
        with pytest.raises(ConfigError, match="no generator"):
            pipeline.ask("Which dog?")
        with pytest.raises(ConfigError, match="no generator"):
            pipeline.ask("Which dog?", stream=True)


@pytest.mark.parametrize("other", [None, [1]])
def test_what_is_missing_or_unread_is_no_key_too_many(writable: RunningService, other: object) -> None:
    document = {"id": "wide", "text": "a dog", "metadata": {f"k{i}": i for i in range(1000)} | {"other": other}}
    with connect(writable.url) as there:
        assert there.add([document]).added == 1
    answer = writable.http.post("/api/v1/indexes/default/documents", json={"documents": [document]})
    assert answer.json()["unchanged"] == 1


def test_documents_are_added_with_their_images_in_batches(
    writable: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vlmsearch.client, "_BATCH_DOCUMENTS", 2)
    mine = tmp_path / "mine.png"
    make_scene(5).draw(64).save(mine)
    documents = [
        Document("text", text="a dog", metadata={"tags": ["b", "a"], "a": float("inf")}),
        Document("file", image=mine),
        Document("bytes", image=mine.read_bytes(), text="the same"),
        Document("bad", image=b"no image"),
        Document("gone", image=tmp_path / "gone.png"),
        Document("\n", text="an id that no store has"),
        Document("many", text="x", metadata=dict.fromkeys(map(str, range(1_001)), 0)),
    ]
    done: list[int] = []
    with connect(writable.url) as pipeline:
        with pytest.warns(RejectedDocumentsWarning, match="4 of 7 documents cannot be used"):
            report = pipeline.add(iter(documents), on_progress=done.append)
        assert report.added == 3
        assert {reject.id: reject.code for reject in report.rejects} == {
            "bad": "unsupported",
            "gone": "unreadable",
            "\n": "invalid",
            "many": "too_large",
        }
        assert done == sorted(done)
        assert done[-1] == len(documents)
        assert len(done) == 2
        assert pipeline.get("text")[0].metadata == {"tags": ("b", "a"), "unread": "1 a value", "unread_count": 1}
        assert report.unread == {"a value": 1}
        assert pipeline.image("file") == pipeline.image("bytes") == mine.read_bytes()
        assert [reject.id for reject in pipeline.rejects()] == ["bad"]
        assert pipeline.add(documents[0]).unchanged == 1
        with pytest.raises(InvalidInputError, match="gone"):
            pipeline.add(documents[4], strict=True)
        with pytest.raises(InvalidInputError):
            pipeline.add(documents[3], strict=True, retry_rejects=True)
        with pytest.raises(TypeError, match="not str"):
            pipeline.add(["text"])  # type: ignore[list-item]
        assert pipeline.delete(["text", "file", "not there"]) == 2
        assert [document.id for document in pipeline.documents()] == ["bytes"]


def test_files_of_the_server_are_indexed_labelled_compared_and_measured(
    writable: RunningService, tmp_path: Path
) -> None:
    folder, here = tmp_path / "pictures", writable.service.indexes["default"].pipeline
    steps: dict[str, list[int]] = {"index": [], "label": [], "duplicates": [], "eval": []}
    with connect(writable.url) as pipeline:
        report = pipeline.index(folder, on_progress=steps["index"].append)
        assert (report.added, [Path(reject.id).name for reject in report.rejects]) == (3, ["broken.png"])
        assert pipeline.index([folder, folder / "note.txt"]).unchanged == 3

        found = list(pipeline.label(["lake", "car"], min_score=0, write=True, on_progress=steps["label"].append))
        expected = list(here.label(["lake", "car"], min_score=0))
        assert [to_json(each.document) for each in found] == [to_json(each.document) for each in expected]
        assert [each.labels for each in found] == [each.labels for each in expected]
        assert all(each.written for each in found)
        assert not any(each.written for each in pipeline.label(["lake", "car"], min_score=0, write=True))
        assert {each.document.metadata["label"] for each in found} <= {"lake", "car"}

        duplicates = pipeline.duplicates(on_progress=steps["duplicates"].append)
        [group] = duplicates.groups
        assert [file.path.name for file in group.files] == ["scene.png", "smaller.png"]
        assert [group.files[0].width, duplicates.compared] == [128, 2]

        lake = str(folder / "note.txt")
        queries = [JudgedQuery("1", {lake: 1}, "a lake"), JudgedQuery("2", {}, "xylophone")]
        measured = pipeline.evaluate(queries, on_progress=steps["eval"].append)
        assert "<svg" in measured._repr_html_()
        assert measured["queries"] == 2
        assert measured["fields"]["fused"]["measures"]["nDCG@10"]["value"] == 1

        (folder / "note.txt").unlink()
        assert pipeline.index(folder, prune=True).pruned == 1
    for name, done in steps.items():
        assert done, name
        assert done == sorted(done), name


def test_readers_are_named_for_the_files_of_the_server(writable: RunningService, tmp_path: Path) -> None:
    (tmp_path / "pictures" / "note.md").write_text("---\nreaders: group:hr\n---\nA dog.")
    with connect(writable.url) as pipeline:
        for given in (None, ["user:bob", "user:ann"], []):
            pipeline.index("note.md", options=SourceOptions(readers=given))
            [document] = pipeline.get(str(tmp_path / "pictures" / "note.md"))
            assert document.readers == frozenset(["group:hr"] if given is None else given)


def test_columns_of_a_table_are_named_for_the_server(writable: RunningService, tmp_path: Path) -> None:
    table = tmp_path / "pictures" / "goods.csv"
    table.write_text("sku;title;body\n007;Star;a red star\n")
    with connect(writable.url) as pipeline:
        assert pipeline.index(table, options=SourceOptions(columns={"id": "sku", "text": ["title", "body"]})).added == 1
        assert pipeline.get("007")[0].text == "Star\n\na red star"
    job = {"kind": "index", "paths": ["goods.csv"], "columns": "body"}
    answer = writable.http.post("/api/v1/indexes/default/jobs", json=job)
    assert (answer.status_code, "such as text=body,image=photo,id=sku" in answer.text) == (400, True)


def test_paths_that_the_operator_did_not_allow_are_refused(writable: RunningService, tmp_path: Path) -> None:
    with connect(writable.url) as pipeline:
        for path in (tmp_path, tmp_path / "pictures" / ".." / "index", "/etc/passwd", tmp_path / "pictures" / "none"):
            with pytest.raises(ConfigError, match="is not there, or not below"):
                pipeline.index(path)


def test_a_job_that_is_given_up_is_cancelled(writable: RunningService, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "pictures" / f"{number}.txt").write_text(f"note {number}")

    def give_up(_done: int) -> None:
        raise KeyboardInterrupt

    with connect(writable.url) as pipeline:
        with pytest.raises(KeyboardInterrupt):
            pipeline.index(tmp_path / "pictures", on_progress=give_up)
        [job] = writable.service.jobs.all()
        until = time.monotonic() + 30
        while not job.is_over:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert job.token.cancelled


@pytest.mark.parametrize("answer", ["{}", '{"status": "ok"}', '{"documents": 1e999}', '{"documents": [null]}'])
def test_json_of_another_server_is_neither_a_count_nor_an_empty_result(answer: str) -> None:
    with scripted_server(Answer(200, answer.encode())) as server, connect(server.url) as pipeline:
        for ask in (pipeline.count, lambda: pipeline.search("a")):
            with pytest.raises(BackendError, match=r"answers in another form, (documents: |'(documents|matches)' is )"):
                ask()


def test_many_threads_share_a_client(running_service: RunningService, here: Pipeline) -> None:
    expected = forms(here.search("dog snow"))
    with connect(running_service.url, index="notes") as pipeline, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: forms(pipeline.search("dog snow")), range(80)))
    assert all(each == expected for each in found)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note the seconds that a client would have waited."""
    seconds: list[float] = []
    monkeypatch.setattr("time.sleep", in_this_thread(seconds.append))
    return seconds


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int, waits: list[float]) -> None:
    kind = {429: "overloaded", 503: "backend_unavailable"}[status]
    busy = Answer(status, error(kind), {"Retry-After": "1"})
    with scripted_server(busy, Answer(200, FOUND)) as server, connect(server.url) as pipeline:
        assert pipeline.search("a") == Matches(threshold=0.3)
        assert waits == [1]
        assert [body for *_, body in server.requests] == [server.requests[0][3]] * 2


@pytest.mark.usefixtures("waits")
def test_what_stays_busy_is_said() -> None:
    with (
        scripted_server(Answer(429, error("rate_limited", "ten a second"), {"Retry-After": "0"})) as server,
        connect(server.url) as pipeline,
    ):
        with pytest.raises(OverloadedError, match="ten a second"):
            pipeline.search("a")
        assert len(server.requests) == 4
    with (
        scripted_server(Answer(429, error("rate_limited"), {"Retry-After": "3600"})) as server,
        connect(server.url) as pipeline,
    ):
        with pytest.raises(OverloadedError) as caught:
            pipeline.search("a")
        assert caught.value.retry_after == 3600
        assert len(server.requests) == 1


@pytest.mark.usefixtures("waits")
def test_a_job_is_started_again_only_where_it_was_not_accepted() -> None:
    gone = Answer(503, error("backend_unavailable"), {"Retry-After": "0"})
    started, over = (
        Answer(202, b'{"id": "1"}'),
        b'event: done\ndata: {"result": {"groups": [], "compared": 0, "unread": []}}\n\n',
    )
    with scripted_server(gone, started) as server, connect(server.url) as pipeline:
        with pytest.raises(BackendUnavailableError):
            pipeline.duplicates()
        assert len(server.requests) == 1
    with scripted_server(Answer(None), started) as server, connect(server.url) as pipeline:
        with pytest.raises(BackendUnavailableError):
            pipeline.duplicates()
        assert len(server.requests) == 1
    full = Answer(429, error("overloaded"), {"Retry-After": "0"})
    with scripted_server(full, started, Answer(200, over)) as server, connect(server.url) as pipeline:
        assert pipeline.duplicates().compared == 0
        assert [path.rpartition("/")[2] for _, path, *_ in server.requests] == ["jobs", "jobs", "events"]


@pytest.mark.usefixtures("waits")
def test_a_job_whose_events_end_early_is_followed_further() -> None:
    progress = b'event: progress\ndata: {"done": 1, "total": 2}\n\n: keep-alive\n\n'
    over = b'event: done\ndata: {"result": {"groups": [], "compared": 7, "unread": []}}\n\n'
    answers = (Answer(202, b'{"id": "1"}'), Answer(200, progress), Answer(200, over))
    done: list[int] = []
    with scripted_server(*answers) as server, connect(server.url) as pipeline:
        assert pipeline.duplicates(on_progress=done.append).compared == 7
    assert done == [1]


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (
            b'event: failed\ndata: {"error": {"type": "backend_failed", "message": "the disk is full"}}\n\n',
            BackendError,
            "disk",
        ),
        (b"event: cancelled\ndata: {}\n\n", BackendError, "cancelled"),
        (
            b'event: failed\ndata: {"error": {"type": "index_mismatch", "message": "another model"}}\n\n',
            IndexMismatchError,
            "model",
        ),
    ],
)
def test_a_job_that_fails_there_fails_here(event: bytes, kind: type[Exception], message: str) -> None:
    answers = (Answer(202, b'{"id": "1"}'), Answer(200, event), Answer(202, b"{}"))
    with scripted_server(*answers) as server, connect(server.url) as pipeline, pytest.raises(kind, match=message):
        pipeline.duplicates()


def test_a_stream_that_breaks_says_so() -> None:
    begun = b'event: token\ndata: {"text": "The dog"}\n\n'
    with scripted_server(Answer(200, begun)) as server, connect(server.url) as pipeline:
        with pipeline.ask("which?", stream=True) as parts, pytest.raises(BackendUnavailableError, match="went away"):
            list(parts)
        assert parts.answer().text == "The dog"
    failed = begun + b'event: error\ndata: {"error": {"type": "backend_failed", "message": "out of memory"}}\n\n'
    with (
        scripted_server(Answer(200, failed)) as server,
        connect(server.url) as pipeline,
        pipeline.ask("which?", stream=True) as parts,
        pytest.raises(BackendError, match="out of memory"),
    ):
        list(parts)


def test_a_server_that_is_not_there_or_silent_or_another_is_named() -> None:
    with free_socket() as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with connect(url, timeout=0.2) as pipeline, pytest.raises(BackendUnavailableError, match=r"0\.2 seconds"):
            pipeline.search("a")
    for index in ("", ".", ".."):
        with pytest.raises(ConfigError, match=f"no index is named '{index}'"):
            connect(url, index=index)
    for status, kind in ((200, BackendError), (404, BackendError), (502, BackendUnavailableError)):
        with (
            scripted_server(Answer(status, b"<html>nginx</html>")) as server,
            connect(server.url) as pipeline,
            pytest.raises(kind, match="vlmsearch"),
        ):
            pipeline.search("a")


def test_a_token_is_sent_and_never_in_the_open_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_server(Answer(200, FOUND)) as server:
        for token, sent in ((None, None), ("mine", "Bearer mine")):
            with connect(server.url, token=token) as pipeline:
                pipeline.search("a")
            assert server.requests[-1][2].get("Authorization") == sent
        monkeypatch.setenv("VLMSEARCH_TOKEN", "theirs")
        with connect(f"{server.url}/prefix/") as pipeline:
            pipeline.search("a")
        assert server.requests[-1][2]["Authorization"] == "Bearer theirs"
        assert server.requests[-1][1] == "/prefix/api/v1/indexes/default/search"
    with pytest.raises(ConfigError, match="VLMSEARCH_TOKEN would cross the network"):
        connect("http://192.0.2.1:8080")
    connect("https://192.0.2.1:8080").close()
    connect("http://192.0.2.1:8080", allow_plain_http=True).close()


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_an_error_of_configuration(status: int) -> None:
    kind = {401: "unauthenticated", 403: "forbidden"}[status]
    with (
        scripted_server(Answer(status, error(kind, "this token is not known"))) as server,
        connect(server.url) as pipeline,
        pytest.raises(ConfigError, match="not known"),
    ):
        pipeline.search("a")


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("x"),
        IndexMismatchError("x"),
        InvalidInputError("corrupt", "x"),
        MissingDependencyError("x"),
        ModelUnavailableError("x"),
        QualityError("x"),
        OverloadedError("x", retry_after=1),
        BackendUnavailableError("x"),
        BackendError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_class_over_http(error: VlmsearchError) -> None:
    there = _error_of(error_of(api_error(error), "1").error)
    assert type(there) is type(error)
    assert (str(there), getattr(there, "code", None)) == ("x", getattr(error, "code", None))


def test_closing_a_stream_lets_the_server_know() -> None:
    gone = threading.Event()
    with free_socket() as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                event = b'event: token\ndata: {"text": "a"}\n\n'
                connection.sendall(head + b"%x\r\n%s\r\n" % (len(event), event))
                while connection.recv(65536):  # the body, which may come later than the head
                    pass
                gone.set()

        thread = threading.Thread(target=serve)
        thread.start()
        with connect(f"http://127.0.0.1:{listening.getsockname()[1]}") as pipeline:
            parts = pipeline.ask("which?", stream=True)
            assert next(parts) == "a"
            parts.close()
            assert gone.wait(60)
        thread.join()


def test_pictures_are_described_by_the_model_of_the_server(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_scene(seed).draw(64).save(tmp_path / f"{seed}.png")
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "onnx:demo", "mock:?pictures=4", allow=(str(tmp_path),))
    blind = IndexSettings("mock:", "onnx:demo", "mock:")
    with serving(ServerSettings(indexes={"default": index, "blind": blind}, uploads=str(tmp_path / "up"))) as running:
        steps: list[int] = []
        with connect(running.url) as pipeline:
            assert [index["can"]["describe"] for index in pipeline.indexes()] == [True, False]
            pipeline.index(tmp_path)
            report = pipeline.describe(limit=1)
            assert (report.described, report.left) == (1, 1)
            assert pipeline.describe(on_progress=steps.append).described == 1
            assert steps
            assert {document.text for document in pipeline.documents()} == {"A mock reply."}
            assert pipeline.describe(fields=["colour"]).rejects[0].code == "invalid"
        with connect(running.url, index="blind") as other:
            other.add(Document("a", text="a dog"))
            with pytest.raises(ConfigError, match="sees no pictures"):
                other.describe()
