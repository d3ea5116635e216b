"""The HTTP service in this process, on a free port, with uvicorn as users run it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.support.once import once
from vlmsearch import Document
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.app import create_app
from vlmsearch.server.run import HttpServer, listen
from vlmsearch.server.service import Service
from vlmsearch.server.settings import IndexSettings, ServerSettings

TEXTS = {
    "a": "a dog in the snow",
    "b": "a blue car",
    "c": "a dog of 2021",
    "d": "two cats on a sofa",
}


@dataclass(frozen=True)
class RunningService:
    """A service and how to reach it."""

    url: str
    service: Service
    http: httpx.Client


@contextmanager
def serving(settings: ServerSettings) -> Iterator[RunningService]:
    """The service of some settings, on a free port."""
    settings = replace(settings, port=0)
    with listen(settings) as listening, Service.open(settings) as service:
        server = HttpServer(create_app(service), service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="service")
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=120) as http:
                yield RunningService(url, service, http)
        finally:
            service.stop()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def notes_and_empty(folder: Path) -> Iterator[RunningService]:
    """A service with two indexes: ``notes`` with texts and pictures, for reading, and ``empty``."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for seed in (1, 2):
        make_scene(seed).draw(64).save(pictures / f"{seed}.png")
    settings = ServerSettings(
        indexes={
            "notes": IndexSettings(
                f"sqlite:{folder / 'notes'}", "mock:", "extractive:", "mock:", allow=(str(pictures),)
            ),
            "empty": IndexSettings("mock:", "mock:", generator=""),
        },
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        pipeline = running.service.indexes["notes"].pipeline
        pipeline.add(Document(id, text=text, metadata={"n": i}) for i, (id, text) in enumerate(TEXTS.items()))
        pipeline.index(pictures)
        yield running


@pytest.fixture(scope="session")
def running_service(tmp_path_factory: pytest.TempPathFactory) -> RunningService:
    """The service of `notes_and_empty` for the whole session."""
    return once(notes_and_empty, tmp_path_factory)


def free_socket() -> socket.socket:
    """A socket that listens on a free port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening
