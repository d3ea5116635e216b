"""A server that is after the files and the memory of its clients."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import vlmsearch.client
from tests.support.cli import run
from tests.support.scripted_http import QuietHandler, running
from vlmsearch import BackendError, Document, InvalidInputError, Pipeline, Query, RemoteImage, RemotePipeline, connect
from vlmsearch.demo.scenes import make_scene
from vlmsearch.index import add_reported

MIB = 2**20


class HostileServer:
    """A server each of whose documents has a file of the client as its image; ``got`` is all that it was sent."""

    def __init__(self, target: Path, picture: bytes) -> None:
        self.url = ""
        self.picture = picture
        self.document = {"id": "holiday", "text": "a dog", "image": str(target), "metadata": {"image": str(target)}}
        self.got: list[str] = []
        self.endless: bytes | None = None
        """A piece of the body that every answer repeats 300 times in place of what it should be."""

    def answer(self, path: str) -> bytes:
        match = {**self.document, "score": 0.9, "fields": {}, "parts": {}}
        answers: dict[str, object] = {
            "search": {"matches": [match], "cursor": None, "threshold": 0.3},
            "search_many": {"results": [{"matches": [match], "cursor": None, "threshold": 0.3}]},
            "ask": {"text": "a dog", "citations": [], "removed": [], "matches": [match], "dropped": []},
        }
        verb = path.partition("?")[0].rpartition("/")[2]
        if verb in ("image", "thumbnail"):
            return self.picture
        if verb == "documents" and "?" in path:
            return json.dumps({"documents": [self.document], "missing": [], "after": None}).encode()
        counts = dict.fromkeys(("added", "updated", "unchanged", "pruned", "unlabelled", "seconds"), 0)
        return json.dumps(answers.get(verb, {**counts, "added": 1, "rejects": []})).encode()


@contextmanager
def serving(hostile: HostileServer) -> Iterator[None]:
    class Handler(QuietHandler):
        def answer(self) -> None:
            hostile.got.append(self.body().decode())
            if hostile.endless is None:
                self.send(200, hostile.answer(self.path))
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            for _ in range(300):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(hostile.endless), hostile.endless))

    with running(Handler) as hostile.url:
        yield


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "id_ed25519"
    path.write_bytes(b"a secret of the client " * 3)
    return path


@pytest.fixture
def hostile(secret: Path, tmp_path: Path) -> Iterator[HostileServer]:
    picture = tmp_path / "scene.jpg"
    make_scene(1).draw(32).save(picture)
    server = HostileServer(secret, picture.read_bytes())
    with serving(server):
        yield server


@pytest.fixture
def remote(hostile: HostileServer) -> Iterator[RemotePipeline]:
    with connect(hostile.url) as pipeline:
        yield pipeline


def test_no_file_of_the_client_is_sent_with_what_a_server_said(
    hostile: HostileServer, remote: RemotePipeline, secret: Path
) -> None:
    [match] = remote.search("dog")
    image = match.document.image
    assert image == RemoteImage(hostile.url, "default", "holiday", str(secret))
    remote.search(image=image)
    remote.search("dog", without=image)
    remote.search_many([Query(image=image), Query("a", without=[Query(image=image)])])
    remote.ask("which dog?", image=image)
    remote.add([replace(document, metadata={"seen": True}) for document in remote.get(["holiday"])])
    remote.add([replace(document, metadata={}) for document in remote.documents()])
    sent = "".join(hostile.got)
    assert base64.b64encode(secret.read_bytes()).decode()[:40] not in sent
    assert sent.count(base64.b64encode(hostile.picture).decode()) == 7


def test_the_image_of_a_server_is_given_to_no_other_server_and_to_no_pipeline_here(
    hostile: HostileServer, remote: RemotePipeline, secret: Path
) -> None:
    [match] = remote.search("dog")
    image = match.document.image
    assert isinstance(image, RemoteImage)
    other = HostileServer(secret, b"")
    with serving(other), connect(other.url) as elsewhere:
        with pytest.raises(InvalidInputError, match=f"'holiday' is on {hostile.url}"):
            elsewhere.search(image=image)
        assert [reject.code for reject in add_reported(elsewhere, match.document).rejects] == ["unreadable"]
        assert other.got == []
    with Pipeline.open(encoder="mock:", store="mock:") as here:
        [reject] = add_reported(here, match.document).rejects
        assert (reject.code, hostile.url in reject.message) == ("unreadable", True)
        here.add(Document("a", text="a dog"))
        with pytest.raises(InvalidInputError, match="is on http"):
            here.search(image=image)
    assert not any("a secret" in said for said in hostile.got)


def test_the_command_shows_pictures_of_the_server_and_none_of_the_client(
    hostile: HostileServer, secret: Path, tmp_path: Path
) -> None:
    make_scene(2).draw(32).save(secret, "PNG")
    page = tmp_path / "page.html"
    assert run("search", "dog", "--server", hostile.url, "--html", str(page)).returncode == 0
    assert "data:image/jpeg" in page.read_text()
    hostile.picture = b"no image"
    assert run("search", "dog", "--server", hostile.url, "--html", str(page)).returncode == 0
    assert "data:image/jpeg" not in page.read_text()


@pytest.mark.parametrize("verb", ["thumbnail", "image", "like", "search", "documents", "label", "stream", "text"])
def test_no_answer_takes_more_memory_than_one_of_its_kind(
    verb: str, hostile: HostileServer, remote: RemotePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vlmsearch.client._MAX_BYTES <= 512 * MIB
    monkeypatch.setattr(vlmsearch.client, "_MAX_BYTES", 8 * MIB)
    hostile.endless = b"A" * MIB
    if verb == "text":
        hostile.endless = b'event: token\ndata: {"text": "%s"}\n\n' % (b"A" * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(BackendError, match="8,388,608 bytes"):
            ask_for(verb, remote, hostile.url)
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()


def ask_for(verb: str, remote: RemotePipeline, url: str) -> None:
    if verb in ("stream", "text"):
        with remote.ask("which?", stream=True) as parts:
            list(parts)
    elif verb == "label":
        list(remote.label(["dog"]))
    elif verb == "like":
        remote.search(image=RemoteImage(url, "default", "holiday", "a.jpg"))
    elif verb == "search":
        remote.search("dog")
    elif verb == "documents":
        list(remote.documents())
    else:
        getattr(remote, verb)("holiday")


def test_nested_json_and_wrong_bytes_are_errors_of_the_server(hostile: HostileServer, remote: RemotePipeline) -> None:
    for nested in (b"[" * MIB, b"\xff\xfe"):
        hostile.answer = lambda _, said=nested: said  # type: ignore[method-assign, misc]
        with pytest.raises(BackendError, match="something else than JSON"):
            remote.search("dog")
        with pytest.raises(BackendError):
            list(remote.ask("which?", stream=True))


def test_an_answer_of_another_form_is_an_error_that_names_the_field(
    hostile: HostileServer, remote: RemotePipeline
) -> None:
    answers: list[object] = [[], {"matches": [{"id": "a", "score": "high", "fields": {}}], "threshold": 0.3}]
    for wrong in answers:
        hostile.answer = lambda _, said=wrong: json.dumps(said).encode()  # type: ignore[method-assign, misc]
        with pytest.raises(BackendError, match="another version of vlmsearch"):
            remote.search("dog")
    with pytest.raises(BackendError, match=r"score: .* not 'high'"):
        remote.search("dog")
