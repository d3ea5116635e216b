"""A model hub on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

SOURCE = "somebody/tiny-bert"


NO_FILE = {"X-Error-Code": "EntryNotFound"}


REVISION = "0123456789abcdef0123456789abcdef01234567"
_ASKED = re.compile(
    r"/api/models/(?P<listed>[^/]+/[^/]+)(?:/(?:revision|(?P<tree>tree))/(?P<revision>[^/]+)(?P<inner>/.+)?)?"
    r"|/(?P<resolved>[^/]+/[^/]+)/resolve/(?P<at>main|[0-9a-f]{40})/(?P<file>.+)"
)


class Hub(ThreadingHTTPServer):
    """Serves models, each at one commit that is its branch main, as the hub does, and notes what was asked for."""

    daemon_threads = True

    def __init__(self, models: Mapping[str, Path] | Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = {SOURCE: models} if isinstance(models, Path) else dict(models)
        self.asked: list[str] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}"

    def files(self, source: str) -> dict[str, Path]:
        """The files of a model by their names."""
        folder = self.models[source]
        return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append(path)
        found = _ASKED.fullmatch(path)
        source = found["listed"] or found["resolved"] if found else ""
        if found is None or source not in self.server.models or found["revision"] not in (None, "main", REVISION):
            code = "RepoNotFound" if found is None or source not in self.server.models else "RevisionNotFound"
            self._send(b"{}", with_body, {"X-Error-Code": code}, status=404)
            return
        files = self.server.files(source)
        if found["resolved"]:
            self._send_file(files.get(found["file"]), with_body)
        elif found["inner"]:
            self._send(b"{}", with_body, NO_FILE, status=404)
        elif found["tree"]:
            tree = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": "0" * 40}
                for name, file in files.items()
            ]
            self._send(json.dumps(tree).encode(), with_body, {})
        else:
            listing = {"id": source, "sha": REVISION, "siblings": [{"rfilename": name} for name in files]}
            self._send(json.dumps(listing).encode(), with_body, {})

    def _send_file(self, file: Path | None, with_body: bool) -> None:
        if file is None:
            self._send(b"{}", with_body, NO_FILE, status=404)
            return
        data = file.read_bytes()
        headers = {"X-Repo-Commit": REVISION, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        self._send(data, with_body, headers)

    def _send(self, data: bytes, with_body: bool, headers: dict[str, str], *, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def taken_for_the_real_one(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with nothing on it yet that this process takes for the real one, with empty caches and an empty folder."""
    server = Hub({})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    patch.setenv("VLMSEARCH_CACHE", str(folder / "cache"))
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
