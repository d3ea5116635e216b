#!/usr/bin/env bash
# uvicorn 0.54.0: `--root-path /search` is put before every path, also before one that has it already. So behind a proxy
# that passes the prefix on, each route answers 404, which looks like a fault of the proxy. FastAPI's own `root_path`
# takes both kinds of paths, but with it the folders of static files are lost where the prefix was cut off.
# Seen (starlette 1.10.0, fastapi 0.165.0):
#   uvicorn's root path: /items 200, /search/items 404, /static/a.txt 200, /search/static/a.txt 404
#   fastapi's root path: /items 200, /search/items 200, /static/a.txt 404, /search/static/a.txt 200
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uvicorn==0.54.0 fastapi==0.165.0 starlette==1.10.0 2>/dev/null
echo text > "$folder/a.txt"
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

import uvicorn
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

PATHS = ("/items", "/search/items", "/static/a.txt", "/search/static/a.txt")


def answers(of_uvicorn, of_fastapi):
    app = FastAPI(root_path=of_fastapi)
    app.add_api_route("/items", lambda: [])
    app.mount("/static", StaticFiles(directory=sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, root_path=of_uvicorn, log_config=None))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        while not server.started:
            time.sleep(0.01)
        statuses = []
        for path in PATHS:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{listening.getsockname()[1]}{path}") as answer:
                    statuses.append(answer.status)
            except urllib.error.HTTPError as exc:
                statuses.append(exc.code)
        server.should_exit = True
        return statuses


seen = {"uvicorn": answers("/search", ""), "fastapi": answers("", "/search")}
for name, statuses in seen.items():
    print(f"{name}'s root path:", ", ".join(f"{path} {status}" for path, status in zip(PATHS, statuses)))
if seen != {"uvicorn": [200, 404, 200, 404], "fastapi": [200, 200, 404, 200]}:
    sys.exit("changed: other statuses")
PYTHON
