#!/usr/bin/env bash
# openai 3.57.0 (Python): embeddings.create gives the rows in the order of the server and not in that of their `index`, and
# does not check them. Where the server leaves out an index of 0, as those behind protobuf (Gemini's) do, the attribute
# of type int is None, so that sorting by it fails.
# Seen:
#   [(1, [0.5]), (None, [0.25])]
#   sorted: TypeError: '<' not supported between instances of 'NoneType' and 'int'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        rows = [{"object": "embedding", "index": 1, "embedding": [0.5]}, {"object": "embedding", "embedding": [0.25]}]
        data = json.dumps({"object": "list", "model": "m", "data": rows}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")
rows = [(row.index, row.embedding) for row in client.embeddings.create(model="m", input=["a", "b"]).data]
print(rows)
try:
    sorted(rows)
except TypeError as exc:
    print(f"sorted: TypeError: {exc}")
if rows != [(1, [0.5]), (None, [0.25])]:
    sys.exit("changed: openai orders the rows, or checks their index")
PYTHON
