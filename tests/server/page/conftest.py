"""A browser, and a service with a gallery whose page it shows.

The browser is there for one module at a time: Playwright's event loop runs in the thread of the tests for as long.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.browser import REPORT, SCENES, Problems
from tests.support.long_texts import long_record
from tests.support.parts import check_server_mark
from tests.support.pdf_files import write_pdf
from tests.support.service import RunningService, serving
from vlmsearch.cli.demo import draw_gallery
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.types import Document

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    check_server_mark()
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("the page is tested in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def problems() -> Problems:
    """What the page of a test wrote to the console."""
    return Problems()


@pytest.fixture
def page(browser: Browser, problems: Problems, gallery: RunningService) -> Iterator[Page]:
    """A page of its own, at the gallery's address; what it writes to the console as an error fails the test."""
    context = browser.new_context(base_url=gallery.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    opened.on("console", problems.note)
    opened.on("pageerror", lambda error: problems.found.append(str(error)))
    yield opened
    context.close()
    assert problems.found == []


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a gallery of drawn scenes, one of them three times, and one that is damaged; notes; and a PDF."""
    folder = tmp_path_factory.mktemp("gallery")
    table = draw_gallery(folder, SCENES, quiet=True)
    duplicates = folder / "duplicates"
    duplicates.mkdir()
    scene = Image.open(folder / "gallery" / "scene-0004.png")
    scene.resize((160, 160)).convert("RGB").save(duplicates / "small.jpg", quality=80)
    scene.convert("RGB").save(duplicates / "again.jpg", quality=92)
    (duplicates / "torn.png").write_bytes((folder / "gallery" / "scene-0005.png").read_bytes()[:500])
    settings = ServerSettings(
        indexes={
            "gallery": IndexSettings(f"sqlite:{folder / 'index'}", "onnx:demo", "onnx:demo-gpt2", allow=(str(folder),)),
            "notes": IndexSettings("mock:", "mock:", generator=""),
            "handbooks": IndexSettings("mock:", "mock:", generator="mock:"),
            "empty": IndexSettings("mock:", "mock:", generator=""),
            "reports": IndexSettings("mock:", "onnx:demo", generator="", allow=(str(folder / "reports"),)),
        },
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        running.service.indexes["gallery"].pipeline.index([table, duplicates])
        running.service.indexes["notes"].pipeline.add(
            Document(f"note-{n:03}", text=f"a note of the day {n} about the weather", metadata={"day": n})
            for n in range(200)
        )
        handbooks = running.service.indexes["handbooks"].pipeline
        handbooks.add(Document("kite", text="a red kite", metadata={"kind": "note"}))
        handbooks.store.upsert([long_record(handbooks.encoder, "books/handbook.txt", metadata={"kind": "book"})])
        report = write_pdf(folder / "report.pdf", REPORT, title="A year of shapes")
        reports = running.service.indexes["reports"].pipeline
        reports.index(Paths([report], options=SourceOptions(pdf=True)))
        receipt = folder / "receipt.png"
        Image.new("RGB", (100, 100), "white").save(receipt)
        read = {"ocr": "10,10,50,20;10,50,50,20"}  # as `--ocr` keeps where the lines are
        reports.add(Document(str(receipt), text="a receipt\nof the plumber", image=receipt, metadata=read))
        yield running
