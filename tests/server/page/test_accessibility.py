"""axe finds nothing on any view, by day and by night, on a wide screen and on a phone; and nothing is cut off."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import gallery_folder, settled
from tests.support.service import RunningService

VIEWS = {
    "all": ("/", ".card"),
    "matches": ("/?q=a+green+heart&where=%7B%22objects%22%3A4%7D&all=1", ".card"),
    "nothing": ("/?q=a+star&where=%7B%22objects%22%3A99%7D", ".state"),
    "closest": ("/?q=quarterly+tax+report", ".card"),
    "empty": ("/?index=empty", ".state"),
    "unknown": ("/?index=unknown", ".state"),
    "picture": ("/?q=a+green+heart&open=scene-0004", ".verdict"),
    "note": ("/?index=notes&q=weather&open=note-003", ".verdict"),
    "ask": ("/?view=ask", ".state"),
    "answer": ("/?view=ask&q=Which+scenes+show+green+hearts%3F", ".cite"),
    "duplicates": ("/?view=duplicates", ".duplicates button"),
    "rejects": ("/?view=rejects", "tbody tr"),
    "activity": ("/?view=activity", ".card-form"),
}


def inspect(page: Page) -> None:
    settled(page)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "the page is wider than the window"


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        (1920, "light"),
        pytest.param(390, "light", marks=pytest.mark.exhaustive),
        pytest.param(1920, "dark", marks=pytest.mark.exhaustive),
    ],
)
def test_axe_finds_nothing(browser: Browser, gallery: RunningService, scheme: str, width: int) -> None:
    context = browser.new_context(
        base_url=gallery.url,
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    for name, (address, awaited) in VIEWS.items():
        page.goto(address)
        expect(page.locator(awaited).first, name).to_be_visible()
        page.wait_for_load_state("networkidle")
        inspect(page)
    context.close()


def test_axe_finds_nothing_in_dialogs_and_on_a_selection(page: Page, gallery: RunningService) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.locator(".card .pick").first.click()
    inspect(page)
    for button in ("Label …", "Remove …"):
        page.get_by_role("button", name=button).click()
        inspect(page)
        page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    inspect(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Add").click()
    pictures = sorted((gallery_folder(gallery) / "gallery").glob("*.png"))[:2]
    page.locator("#upload-files").set_input_files([*pictures, gallery_folder(gallery) / "report.pdf"])
    expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_have_count(2)
    inspect(page)
    page.goto("/?q=a+green+heart&open=scene-0004")
    page.locator(".figures summary").click()
    page.keyboard.press("z")
    expect(page.locator(".stage.zoomed")).to_be_visible()
    inspect(page)
    page.goto("/?view=duplicates")
    page.get_by_role("button", name=re.compile("^Look")).click()
    settled(page)
    expect(page.locator(".group").first).to_be_visible(timeout=60_000)
    page.wait_for_load_state("networkidle")
    inspect(page)


def test_results_are_announced_and_named(page: Page) -> None:
    page.goto("/?q=a+green+heart")
    expect(page.get_by_role("list", name="Results").get_by_role("listitem").first).to_have_attribute(
        "aria-posinset", "1"
    )
    expect(page.get_by_role("status").filter(has_text="match")).to_be_visible()
    expect(page.get_by_role("search")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the results")).to_be_focused()


def test_filters_fold_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/?q=a+green+heart&all=1")
    button = page.get_by_role("button", name="Filters", exact=True)
    panel = page.get_by_role("complementary", name="Filters")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(panel).to_be_hidden()
    button.click()
    expect(panel).to_be_visible()
    inspect(page)
    page.get_by_role("button", name="Close the filters").click()
    expect(panel).to_be_hidden()
    expect(button).to_be_focused()
