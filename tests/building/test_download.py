"""Files of the hub over plain HTTP: resumed, checked, kept once, and found by huggingface_hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from tests.support.hub import REVISION, Hub, taken_for_the_real_one
from tests.support.scripted_http import Answer, QuietHandler, running, scripted_server
from vlmsearch.building import download as downloading
from vlmsearch.building.download import Remote, download, get_json
from vlmsearch.building.hub import HubModel, fetch, kept_folder, look_up, model_card
from vlmsearch.errors import ModelUnavailableError

SOURCE = "somebody/large"
SIZE = 3_000_000


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(downloading, "_PAUSE_SECONDS", 0.001)
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(250)) * (SIZE // 250))
    with taken_for_the_real_one(tmp_path, monkeypatch) as server:
        server.models[SOURCE] = folder
        yield server


def get(hub: Hub) -> Path:
    model = look_up(SOURCE, "main", "help")
    return fetch(model, ("config.json", *model.weights), "help")


def test_a_download_that_is_cut_goes_on_where_it_was(hub: Hub) -> None:
    hub.cut_after, hub.cuts = 1_000_000, 2
    steps: list[tuple[int, int]] = []
    model = look_up(SOURCE, "main", "help")
    folder = fetch(model, model.weights, "help", lambda _, done, total: steps.append((done, total)))
    assert hub.ranges == ["1000000-", "2000000-"]
    assert (folder / "model.safetensors").read_bytes() == (hub.models[SOURCE] / "model.safetensors").read_bytes()
    assert steps[-1] == (SIZE, SIZE)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_what_came_before_the_process_ended_is_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_TRIES", 1)
    hub.cut_after, hub.cuts = 1_000_000, 1
    model = look_up(SOURCE, "main", "help")

    def cut(*_: object) -> None:
        raise ConnectionError("no route")

    with monkeypatch.context() as patch:
        real = downloading._append

        def once(*args: Any) -> None:
            patch.setattr(downloading, "_append", cut)
            real(*args)

        patch.setattr(downloading, "_append", once)
        with pytest.raises(ModelUnavailableError, match=r"1,000,000 of 3,000,000 bytes are here"):
            fetch(model, model.weights, "help")
    folder = get(hub)
    assert hub.ranges == ["1000000-"]
    assert (folder / "model.safetensors").stat().st_size == SIZE


def test_one_copy_is_kept_and_each_library_finds_what_the_other_downloaded(hub: Hub, tmp_path: Path) -> None:
    folder = get(hub)
    blobs = [path for path in (tmp_path / "hub").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in blobs) == SIZE + 2
    asked = len(hub.asked)
    assert snapshot_download(SOURCE, revision=REVISION, local_files_only=True) == str(folder)
    assert kept_folder(SOURCE, REVISION) == folder
    assert get(hub) == folder
    assert not any("/resolve/" in path for path in hub.asked[asked:])


def test_what_huggingface_hub_downloaded_is_used(hub: Hub) -> None:
    folder = Path(snapshot_download(SOURCE, revision="main"))
    assert kept_folder(SOURCE, REVISION) == kept_folder(SOURCE, "main") == folder
    hub.asked.clear()
    assert get(hub) == folder
    assert not any("/resolve/" in path for path in hub.asked)


def test_a_damaged_file_is_not_kept(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = look_up(SOURCE, "main", "help")
    with monkeypatch.context() as patch:
        patch.setattr("tests.support.hub.file_digest", lambda _: hashlib.sha256(b"another").hexdigest())
        with pytest.raises(ModelUnavailableError, match="came damaged"):
            fetch(model, ("config.json",), "help")
    assert not [path for path in (tmp_path / "hub").rglob("*") if path.is_file()]


def test_offline_means_that_nothing_is_asked(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailableError, match=r"HF_HUB_OFFLINE is set\)\. help$"):
        look_up(SOURCE, "main", "help")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    get(hub)
    hub.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert look_up(SOURCE, REVISION, "help").revision == REVISION
    assert hub.asked == []


CONTENT = bytes(range(250)) * 800
HEAD = Answer(200, CONTENT, {"ETag": f'"{hashlib.sha256(CONTENT).hexdigest()}"'})


def downloaded(url: str, folder: Path) -> bytes:
    """The file of a server, of which 1,000 bytes are here."""
    (folder / "blobs").mkdir()
    (folder / "blobs" / f"{hashlib.sha256(CONTENT).hexdigest()}.incomplete").write_bytes(CONTENT[:1000])
    download(Remote(f"{url}/file"), folder / "blobs", folder / "file", lambda *_: None)
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": str(2**40)}])
def test_a_file_that_is_longer_than_announced_ends_at_once(tmp_path: Path, headers: dict[str, str]) -> None:
    with scripted_server(HEAD, Answer(200, CONTENT * 2, headers)) as server:
        with pytest.raises(ValueError, match=r"more than the 200,000 bytes that it announced"):
            downloaded(server.url, tmp_path)
        assert len(server.requests) == 2
    assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(416, b"no"),
        Answer(206, CONTENT[999:]),
        Answer(206, CONTENT[999:], {"Content-Range": "bytes 999-199999/200000"}),
        Answer(206, CONTENT[1000:], {"Content-Range": "bytes 1000-199999/200001"}),
        Answer(200, CONTENT),
        Answer(200, CONTENT[:2000]),
    ],
)
def test_a_part_that_cannot_be_gone_on_with_is_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(downloading, "_PAUSE_SECONDS", 0.001)
    with scripted_server(HEAD, answer, Answer(200, CONTENT)) as server:
        assert downloaded(server.url, tmp_path) == CONTENT
    (tmp_path / "again").mkdir()
    with scripted_server(HEAD, answer) as server:
        if answer.body != CONTENT:
            with pytest.raises(OSError, match=r"of 200,000 bytes are here|416"):
                downloaded(server.url, tmp_path / "again")
        assert len(server.requests) <= 1 + downloading._TRIES


@pytest.mark.parametrize("status", [200, 206])
@pytest.mark.parametrize("headers", [{}, {"Content-Range": "bytes 1000-199999/200000"}])
def test_a_part_is_gone_on_with_however_the_server_says_it(
    tmp_path: Path, status: int, headers: dict[str, str]
) -> None:
    content = CONTENT[1000:] if headers or status == 206 else CONTENT
    with scripted_server(HEAD, Answer(status, content, headers)) as server:
        assert downloaded(server.url, tmp_path) == CONTENT
        assert [asked[2].get("Range") for asked in server.requests] == [None, "bytes=1000-"]


@pytest.mark.parametrize("kind", ["head", "json", "file"])
def test_a_server_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(downloading, "_WINDOW_SECONDS", 0.3)

    class Dripping(QuietHandler):
        def answer(self) -> None:
            if self.command == "HEAD" and kind == "file":
                self.send(200, CONTENT, HEAD.headers)
                return
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X: " if kind == "head" else b"\r\n"))
                for _ in range(1000):
                    self.wfile.write(b"[")
                    self.wfile.flush()
                    time.sleep(0.02)

    with running(Dripping) as url, pytest.raises(TimeoutError, match="too slow"):
        get_json(url) if kind == "json" else downloaded(url, tmp_path)


def test_a_disk_without_room_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=99))
    with scripted_server(HEAD) as server, pytest.raises(OSError, match=r"200,000 bytes, and 99 are free"):
        downloaded(server.url, tmp_path)
    assert len(server.requests) == 1


def test_an_interrupt_keeps_the_part(hub: Hub, tmp_path: Path) -> None:
    model = look_up(SOURCE, "main", "help")

    def interrupt(_: str, done: int, __: int) -> None:
        if done >= SIZE // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(model, model.weights, "help", interrupt)
    (part,) = (tmp_path / "hub").rglob("*.incomplete")
    begun = part.stat().st_size
    with ThreadPoolExecutor(2) as pool:  # two that want it at once
        assert len(set(pool.map(lambda _: get(hub), range(2)))) == 1
    assert hub.ranges == [f"{begun}-"]


def test_the_token_goes_along_to_the_same_server_alone() -> None:
    def may(url: str, following: str) -> bool:
        return downloading._may_have_token(url, following)

    assert may("https://hub/a", "https://hub/b")
    assert may("http://hub/a", "https://hub/a")
    assert not any(may("https://hub/a", url) for url in ("http://hub/a", "https://hub:444/a", "https://files/a"))


LISTED: dict[str, object] = {"rfilename": "a.json", "size": 1}
ODD = ("a", None, {"rfilename": 1}, *(LISTED | {"size": size} for size in (-1, "1", 1e9, 10**30)))


@pytest.mark.parametrize("siblings", [*([LISTED, odd] for odd in ODD), None, b"[" * 200_000, b'{"sha": "\xff"}'])
def test_an_odd_listing_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, siblings: object) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    listing = siblings if isinstance(siblings, bytes) else json.dumps({"sha": REVISION, "siblings": siblings}).encode()
    with scripted_server(Answer(200, listing)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(ModelUnavailableError, match=r"^a/b cannot be downloaded \(.*\)\. help$"):
            look_up("a/b", "main", "help")


def test_the_token_is_for_the_hub_alone(tmp_path: Path) -> None:
    """The hub sends to another server, which has the file; what it says of the file comes first."""
    content = b"weights" * 100
    there = Answer(200, content, {"ETag": '"of-the-other-server"'})
    linked = {"X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Linked-Size": str(len(content))}
    with scripted_server(there) as files:
        at = files.url  # the same host, at another port
        with scripted_server(Answer(302, b"", {"Location": f"{at}/file", **linked})) as hub:
            remote = Remote(f"{hub.url}/model.safetensors", "secret")
            assert download(remote, tmp_path / "blobs", tmp_path / "model.safetensors", lambda *_: None) == len(content)
    assert (tmp_path / "model.safetensors").read_bytes() == content
    assert {headers.get("Authorization") for _, _, headers, _ in hub.requests} == {"Bearer secret"}
    assert {headers.get("Authorization") for _, _, headers, _ in files.requests} == {None}
    for answer, kind in ((Answer(302, b"", {"Location": "/"}), OSError), (Answer(200, b"no json"), ValueError)):
        with scripted_server(answer) as hub, pytest.raises(kind):
            get_json(hub.url)


def test_a_server_that_stopped_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_opened", partial(downloading._opened, timeout=0.1))
    monkeypatch.setattr(downloading, "_PAUSE_SECONDS", 0.001)
    asked: list[str] = []
    over = threading.Event()

    class Stopped(QuietHandler):
        def answer(self) -> None:
            asked.append(self.command)
            self.send_response(200)
            self.send_header("ETag", '"' + "0" * 64 + '"')
            self.send_header("Content-Length", "1000")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"a" * 10)
                self.wfile.flush()
                over.wait(10)

    with running(Stopped) as url:
        with pytest.raises(OSError, match="10 of 1,000 bytes are here"):
            download(Remote(url), tmp_path / "blobs", tmp_path / "file", lambda *_: None)
        over.set()
    assert asked == ["HEAD", "GET", "GET"]


def test_a_packed_file_is_refused_at_once(tmp_path: Path) -> None:
    content = b"weights" * 100
    about = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Linked-Size": str(len(content))}
    packed = Answer(200, gzip.compress(content), {"Content-Encoding": "gzip"})
    with (
        scripted_server(Answer(200, b"", about), packed) as hub,
        pytest.raises(ValueError, match="a compressed answer"),
    ):
        download(Remote(hub.url), tmp_path / "blobs", tmp_path / "file", lambda *_: None)
    assert len(hub.requests) == 2


def test_no_token_goes_unencrypted_to_another_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    with pytest.raises(ModelUnavailableError, match="HF_TOKEN would cross the network to hub"):
        look_up("a/b", "main", "help")


@pytest.mark.parametrize("token", ["hf_1\nhf_2", "hf_\u00e9"])
def test_a_token_that_no_header_takes_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str
) -> None:
    (tmp_path / "token").write_text(token, encoding="utf-8")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    for given in ("", token):
        monkeypatch.setenv("HF_TOKEN", given)
        with pytest.raises(ModelUnavailableError, match=r"\(HF_TOKEN, or the file of the token, holds characters"):
            look_up("a/b", "main", "help")


def test_git_names_small_files_by_another_digest(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\n")
    assert downloading._digest(tmp_path / "file", "0" * 40) == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_names_that_lead_elsewhere_are_left_out() -> None:
    from vlmsearch.building.hub import _read_listing

    names = ["config.json", "../escape", "a/../../b", "/etc/passwd", "a" * 256, "1_Pooling/config.json", "config.json"]
    model = _read_listing("a/b", {"sha": REVISION, "siblings": [{"rfilename": name} for name in names]})
    assert list(model.files) == ["config.json", "1_Pooling/config.json"]
    with pytest.raises(ValueError, match="names no commit"):
        _read_listing("a/b", {"sha": "../..", "siblings": []})


@pytest.mark.parametrize(
    ("front", "card"),
    [
        ("license: mit\nlanguage: en", {"license": "mit", "language": "en"}),
        ("language:\n- en\n- 'de'\nlicense: other", {"language": ["en", "de"], "license": "other"}),
        ('language: [en, "fr"]\nwidget:\n  - text: a\n    src: b', {"language": ["en", "fr"], "widget": ["text: a"]}),
        ("license: {a: b}", {}),
    ],
)
def test_a_card_says_its_licence_and_languages(tmp_path: Path, front: str, card: dict[str, object]) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front}\n---\n# Title\nlicense: gpl\n")
    assert model_card(tmp_path) == card


def test_what_is_missing_is_counted(hub: Hub) -> None:
    model = look_up(SOURCE, "main", "help")
    assert model == HubModel(SOURCE, REVISION, {"config.json": 2, "model.safetensors": SIZE})
    assert model.missing_bytes() == SIZE
    get(hub)
    assert model.missing_bytes() == 0
