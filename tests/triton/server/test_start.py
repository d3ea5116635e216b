"""Starting a server that fails by chance, or for good."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.triton_server import free_ports
from vlmsearch.errors import BackendError
from vlmsearch.triton.server.commands import Endpoints
from vlmsearch.triton.server.server import Server
from vlmsearch.triton.server.supervise import SupervisedCommand, supervise

PROGRAM = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

starts, races, port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) <= races:
    print("terminate called after throwing an instance of 'boost::interprocess::lock_exception'", flush=True)
    os.abort()
if Path(f"{starts}.missing").exists():
    print("E1 the repository is not there", flush=True)
    sys.exit(1)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        reason = Path(f"{starts}.reason")
        state = {"state": "UNAVAILABLE", "reason": reason.read_text()} if reason.exists() else {"state": "READY"}
        self.answer(json.dumps([{"name": "only", "version": "1"} | state]).encode())

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def server(tmp_path: Path, races: int) -> tuple[Server, Path]:
    ends, starts = free_ports(), tmp_path / "starts"
    return Server(program(starts, races, ends), ends), starts


def program(starts: Path, races: int, ends: Endpoints) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(starts), str(races), str(ends.http)]


@pytest.mark.parametrize("races", [0, 2])
def test_a_server_that_met_a_race_of_its_own_is_started_again(tmp_path: Path, races: int) -> None:
    running, starts = server(tmp_path, races)
    with running.start():
        assert running.wait_ready(seconds=60) == ["only"]
    assert len(starts.read_text()) == races + 1


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("No module named 'vlmsearch'", " (the server's Python lacks what the models need: pip install -r "),
        ("the plan was built for another GPU", ""),
    ],
)
def test_a_model_that_failed_is_named_with_the_reason_and_what_to_do(tmp_path: Path, reason: str, advice: str) -> None:
    running, starts = server(tmp_path, 0)
    Path(f"{starts}.reason").write_text(f"Internal: {reason}\n\nAt:\n  model.py(7): <module>\n")
    with running.start(), pytest.raises(BackendError) as caught:
        running.wait_ready(seconds=60)
    found, _, rest = str(caught.value).partition("requirements.txt")
    assert found == f"1 of 1 models failed: only: Internal: {reason}{advice}"
    assert rest == (", in the repository)" if advice else "")


def test_it_is_not_started_for_ever(tmp_path: Path) -> None:
    running, starts = server(tmp_path, 9)
    with pytest.raises(BackendError, match=r"SIGABRT.*lock_exception"):
        running.start().wait_ready(seconds=60)
    assert len(starts.read_text()) == 3


@pytest.mark.parametrize("races", [0, 1])
def test_any_other_end_is_an_error_at_once(tmp_path: Path, races: int) -> None:
    running, starts = server(tmp_path, races)
    Path(f"{starts}.missing").touch()
    with pytest.raises(BackendError, match=r"^the server ended \(exit status 1\): E1 the repository is not there$"):
        running.start().wait_ready(seconds=60)
    assert len(starts.read_text()) == races + 1


def test_a_server_that_dies_while_it_answers_is_not_ready() -> None:
    ends = free_ports()
    with socket.create_server(("127.0.0.1", ends.http)) as listener:

        def answer() -> None:
            for _ in range(2):
                client, _address = listener.accept()
                with client:
                    client.recv(999)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(BackendError, match="was not ready after"):
            Server([], ends).wait_ready(seconds=0.15)


def test_the_last_lines_are_told_while_more_come() -> None:
    before, three = sys.getswitchinterval(), " | ".join(["a line of the log"] * 3)
    server = Server([sys.executable, "-c", "while True: print('a line of the log')"], free_ports())
    sys.setswitchinterval(1e-6)
    try:
        with server.start():
            while server.tail() != three:
                time.sleep(0.01)
            assert {server.tail() for _ in range(20_000)} == {three}
    finally:
        sys.setswitchinterval(before)


def test_a_server_runs_on_when_nobody_reads_along_any_more() -> None:
    def show(_line: str) -> None:
        raise BrokenPipeError

    with Server([sys.executable, "-c", "print('a line of the log\\n' * 20_000)"], free_ports(), show=show) as running:
        end = threading.Thread(target=running.start().wait, daemon=True)
        end.start()
        end.join(30)
        assert not end.is_alive()


@pytest.mark.parametrize("moment", ["before the process is there", "while its models load"])
def test_a_signal_stops_the_server_whenever_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real, late, said = Server.start, threading.Event(), list[str]()

    def start(self: Server) -> Server:
        if moment.startswith("before"):
            os.kill(os.getpid(), signal.SIGTERM)
            return real(self)
        started = real(self)
        os.kill(os.getpid(), signal.SIGTERM)
        return started

    def again() -> None:
        late.set()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Server, "start", start)
    ends = free_ports()
    service = SupervisedCommand(program(tmp_path / "starts", 0, ends), {}, ends, 60)
    watchdog = threading.Timer(20, again)
    watchdog.start()
    supervise(service, restart=True, show=None, say=said.append)
    watchdog.cancel()
    assert not late.is_set()
    assert said == []


def test_ctrl_c_that_is_for_something_else_stops_no_server_in_the_background(tmp_path: Path) -> None:
    """As a script's ``vlmsearch triton serve repository &`` is started: with SIGINT ignored."""
    still = threading.Event()

    def end() -> None:
        still.set()
        os.kill(os.getpid(), signal.SIGTERM)

    watchdog = threading.Timer(1, end)

    def say(line: str) -> None:
        if line.startswith("ready:"):
            os.kill(os.getpid(), signal.SIGINT)
            watchdog.start()

    ends = free_ports()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        supervise(
            SupervisedCommand(program(tmp_path / "starts", 0, ends), {}, ends, 60), restart=True, show=None, say=say
        )
    finally:
        watchdog.cancel()
        signal.signal(signal.SIGINT, before)
    assert still.is_set()
