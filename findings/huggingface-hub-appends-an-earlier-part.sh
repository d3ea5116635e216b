#!/usr/bin/env bash
# huggingface_hub 2.4.0 resumes a download by appending what a 206 brings, and does not look where that part begins.
# Caches that keep blocks answer from the beginning of the block, which RFC 9110 allows: the file grows too long.
# Seen:
#   asked for bytes=1000-
#   sent bytes 512-2999/3000
#   OSError: 3488 bytes of 3000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check huggingface_hub==2.4.0
cd "$folder"
HF_HUB_DISABLE_PROGRESS_BARS=1 "$folder/venv/bin/python" - <<'PYTHON'
import io
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from huggingface_hub.file_download import http_get

CONTENT = bytes(range(250)) * 12


class Cache(BaseHTTPRequestHandler):
    def do_GET(self):
        about = f"bytes 512-{len(CONTENT) - 1}/{len(CONTENT)}"
        print(f"asked for {self.headers['Range']}\nsent {about}", flush=True)
        self.send_response(206)
        self.send_header("Content-Range", about)
        self.send_header("Content-Length", str(len(CONTENT) - 512))
        self.end_headers()
        self.wfile.write(CONTENT[512:])

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Cache)
threading.Thread(target=server.serve_forever, daemon=True).start()
file, error = io.BytesIO(CONTENT[:1000]), None
file.seek(1000)
try:
    http_get(f"http://127.0.0.1:{server.server_port}/file", file, resume_size=1000, expected_size=len(CONTENT))
except OSError as exc:
    error = exc
size = len(file.getvalue())
print(f"{type(error).__name__}: {size} bytes of {len(CONTENT)}")
sys.exit(error is None or size != 3488)
PYTHON
