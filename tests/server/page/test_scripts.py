"""Documents that bring scripts: none runs, in no view of the page and in no page that a command writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import cli
from tests.support.browser import Problems
from tests.support.service import RunningService, serving
from vlmsearch import Document, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.settings import IndexSettings, ServerSettings

SCRIPTS = (
    "<script>ran()</script>",
    "<img src=x onerror=ran()>",
    "\"'><svg onload=ran()>",
    "</title></style></textarea></script><iframe srcdoc='<script>parent.ran()</script>'>",
    "javascript:ran()",
    "{{constructor.constructor('ran()')()}}",
    "\u202e</b>\u2066<script>ran()</script>",
)


ALL = " ".join(SCRIPTS)


def documents(folder: Path) -> Iterator[Document]:
    """Documents whose ids, texts, names of files, and names and values of metadata are scripts."""
    metadata = {"title": ALL, "label": ALL, "ocr": ALL, "url": "javascript:ran()", **{one: one for one in SCRIPTS}}
    yield Document(ALL, text=f"an evil dog {ALL}", metadata=metadata)
    for script in SCRIPTS[1:3]:
        picture = folder / f"{script}.png"
        make_scene(1).draw(96).save(picture)
        yield Document(str(picture), text=f"an evil dog {script}", image=picture, metadata=metadata)


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("evil")
    settings = ServerSettings(
        indexes={"evil": IndexSettings(f"sqlite:{folder / 'index'}", "onnx:demo", "extractive:", allow=(str(folder),))},
        uploads=str(folder / "uploads"),
    )
    torn = folder / "<img src=torn onerror=ran()>.png"
    torn.write_bytes(b"\x89PNG\r\n\x1a\n")
    with serving(settings) as running:
        pipeline = running.service.indexes["evil"].pipeline
        assert pipeline.add(documents(folder)).added == 3
        pipeline.index(torn)
        yield running


@pytest.fixture
def watched(browser: Browser, problems: Problems) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what ran in it: scripts, dialogs, and requests that its own address did not get."""
    context = browser.new_context(bypass_csp=False)
    page, ran = context.new_page(), list[str]()
    page.expose_function("ran", lambda: ran.append("script"))
    page.on("dialog", lambda dialog: ran.append(dialog.message))
    page.on("console", problems.note)
    page.on("pageerror", lambda error: problems.found.append(str(error)))
    yield page, ran
    context.close()
    assert ran == []
    assert problems.found == []


def check(page: Page) -> None:
    """Assert that nothing in a page is markup that a document brought."""
    page.wait_for_load_state("networkidle")
    found = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => one.matches("iframe, object, embed, svg[onload]")
          || [...one.attributes].some(({ name, value }) => name.startsWith("on") || /^\\s*javascript:/i.test(value)
            && ["href", "src", "action", "formaction", "xlink:href"].includes(name))).map((one) => one.outerHTML)"""
    )
    assert found == []


def test_no_view_of_the_page_runs_what_documents_say(watched: tuple[Page, list[str]], evil: RunningService) -> None:
    page, _ = watched
    ids = list(evil.service.indexes["evil"].pipeline.store.ids())
    views = [
        ({"q": "evil dog", "all": "1"}, ".card"),
        *(({"q": "evil dog", "all": "1", "open": id}, "dialog[open]") for id in ids),
        ({"q": ALL, "all": "1"}, "main"),
        ({"q": "dog", "where": json.dumps({SCRIPTS[0]: SCRIPTS[1]}), "all": "1"}, "main"),
        ({"view": "ask", "q": "an evil dog"}, ".sources li"),
        ({"view": "ask", "q": ALL}, "main"),
        ({"view": "rejects"}, "tbody tr"),
        ({"view": "activity"}, ".card-form"),
        ({"view": "duplicates"}, ".duplicates button"),
    ]
    for view, awaited in views:
        page.goto(f"{evil.url}/?{urlencode(view)}")
        expect(page.locator(awaited).first).to_be_visible()
        check(page)
    page.locator(".duplicates button").first.click()
    expect(page.locator(".group").first).to_be_visible(timeout=60_000)
    check(page)
    page.goto(f"{evil.url}/?q=evil+dog&all=1")
    expect(page.locator("body")).to_contain_text("<script>ran()</script>")


def test_no_page_that_a_command_writes_runs_what_documents_say(watched: tuple[Page, list[str]], tmp_path: Path) -> None:
    page, _ = watched
    store = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(encoder="onnx:demo", store=store) as pipeline:
        assert pipeline.add(documents(tmp_path)).added == 3
    written = tmp_path / "page.html"
    done = cli.run("search", f"an evil dog {ALL}", "--all", "--store", store, "--html", str(written))
    assert written.is_file(), done.stderr
    page.goto(written.as_uri())
    expect(page.locator("body")).to_contain_text("ran()")
    check(page)
