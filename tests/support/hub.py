"""A model hub on this machine."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SOURCE = "somebody/tiny-bert"


NO_FILE = {"X-Error-Code": "EntryNotFound"}


REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves one model at one revision, as the hub does, and notes what was asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        self.asked: list[str] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path == f"/api/models/{SOURCE}/revision/{REVISION}":
            siblings = [{"rfilename": name} for name in self.server.files]
            self._send(json.dumps({"id": SOURCE, "sha": REVISION, "siblings": siblings}).encode(), with_body, {})
        elif path == f"/api/models/{SOURCE}/tree/{REVISION}":
            tree = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": "0" * 40}
                for name, file in self.server.files.items()
            ]
            self._send(json.dumps(tree).encode(), with_body, {})
        elif path.startswith(f"/{SOURCE}/resolve/{REVISION}/"):
            file = self.server.files.get(path.split(REVISION + "/")[1])
            if file is None:
                self._send(b"{}", with_body, NO_FILE, status=404)
                return
            data = file.read_bytes()
            headers = {"X-Repo-Commit": REVISION, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
            self._send(data, with_body, headers)
        elif path.startswith(f"/api/models/{SOURCE}/tree/{REVISION}/"):
            self._send(b"{}", with_body, NO_FILE, status=404)
        else:
            self._send(b"{}", with_body, {"X-Error-Code": "RevisionNotFound"}, status=404)

    def _send(self, data: bytes, with_body: bool, headers: dict[str, str], *, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass
