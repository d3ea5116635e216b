"""A model hub on this machine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

from tests.support.scripted_http import QuietHandler
from vlmsearch._util.files import file_digest

SOURCE = "somebody/tiny-bert"


NO_FILE = {"X-Error-Code": "EntryNotFound"}


REVISION = "0123456789abcdef0123456789abcdef01234567"
_ASKED = re.compile(
    r"/api/models/(?P<listed>[^/]+/[^/]+)(?:/(?:revision|(?P<tree>tree))/(?P<revision>[^/]+)(?P<inner>/.+)?)?"
    r"|/(?P<resolved>[^/]+/[^/]+)/resolve/(?P<at>main|[0-9a-f]{40})/(?P<file>.+)"
)


class Hub(ThreadingHTTPServer):
    """Serves models, each at one commit that is its branch main, as the hub does, and notes what was asked for.

    ``commits`` are those of models that are not at `REVISION`. After ``cut_after`` bytes of a file the connection is
    closed, as often as ``cuts`` says.
    """

    daemon_threads = True

    def __init__(self, models: Mapping[str, Path] | Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = {SOURCE: models} if isinstance(models, Path) else dict(models)
        self.asked: list[str] = []
        self.commits: dict[str, str] = {}
        self.cut_after, self.cuts = 0, 0
        self.ranges: list[str] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}"

    def files(self, source: str) -> dict[str, Path]:
        """The files of a model by their names."""
        folder = self.models[source]
        return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


class _Handler(QuietHandler):
    server: Hub

    def answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append(path)
        found = _ASKED.fullmatch(path)
        source = found["listed"] or found["resolved"] if found else ""
        if found is None or source not in self.server.models or not self._has(source, found["revision"]):
            code = "RepoNotFound" if found is None or source not in self.server.models else "RevisionNotFound"
            self.send(404, b"{}", {"X-Error-Code": code})
            return
        files = self.server.files(source)
        if found["resolved"]:
            self._send_file(files.get(found["file"]), self._commit(source))
        elif found["inner"]:
            self.send(404, b"{}", NO_FILE)
        elif found["tree"]:
            tree = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": "0" * 40}
                for name, file in files.items()
            ]
            self.send(200, json.dumps(tree).encode())
        else:
            siblings = [{"rfilename": name, "size": file.stat().st_size} for name, file in files.items()]
            listing = {"id": source, "sha": self._commit(source), "siblings": siblings}
            self.send(200, json.dumps(listing).encode())

    def _has(self, source: str, revision: str | None) -> bool:
        return revision in (None, "main", self._commit(source))

    def _commit(self, source: str) -> str:
        return self.server.commits.get(source, REVISION)

    def _send_file(self, file: Path | None, commit: str) -> None:
        if file is None:
            self.send(404, b"{}", NO_FILE)
            return
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if begin:
            self.server.ranges.append(f"{begin}-")
        size = file.stat().st_size
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{_digest(file, file.stat().st_mtime_ns)}"',
            "Content-Length": str(size - begin),
            **({"Content-Range": f"bytes {begin}-{size - 1}/{size}"} if begin else {}),
        }
        self.send_response(206 if begin else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._copy(file, begin, size)

    def _copy(self, file: Path, begin: int, size: int) -> None:
        """Send a file, or a part of it and then nothing."""
        is_cut = self.server.cuts > 0 and size - begin > self.server.cut_after > 0
        left = self.server.cut_after if is_cut else size - begin
        with file.open("rb") as data:
            data.seek(begin)
            while left and (block := data.read(min(left, 2**20))):
                self.wfile.write(block)
                left -= len(block)
        if is_cut:
            self.server.cuts -= 1
            self.close_connection = True


@cache
def _digest(file: Path, changed: int) -> str:
    """The digest of a file as it was changed at a time."""
    return file_digest(file)


@contextmanager
def taken_for_the_real_one(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with nothing on it yet that this process takes for the real one, with empty caches and an empty folder."""
    server = Hub({})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    patch.setenv("VLMSEARCH_CACHE", str(folder / "cache"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setenv("HF_ENDPOINT", server.endpoint)
    patch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.endpoint)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "ENDPOINT", server.endpoint)
    (folder / "here").mkdir()
    patch.chdir(folder / "here")
    yield server
    server.shutdown()
    server.server_close()
