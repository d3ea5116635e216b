"""Files of several documents: the page that was found, the others, and the file itself at that page."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from tests.support.browser import REPORT
from tests.support.service import RunningService


def test_the_page_that_was_found_is_shown_with_the_others(page: Page) -> None:
    page.goto("/?index=reports&q=the+invoice+of+the+printer")
    card = page.locator(".card")
    expect(card).to_have_count(1)
    expect(card.locator(".part")).to_have_text("page 2 and 1 more")
    card.locator(".open").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_have_attribute("aria-label", "report.pdf, page 2")
    expect(dialog.locator(".text-of")).to_contain_text(REPORT[1])
    shown = dialog.locator(".stage img")
    expect(shown).to_be_visible()
    assert shown.evaluate("(image) => image.decode().then(() => image.naturalHeight > image.naturalWidth)")
    others = dialog.get_by_role("region", name="Also in this file")
    expect(others.get_by_role("link")).to_contain_text("page 4")
    others.get_by_role("link").click()
    expect(page.get_by_role("dialog")).to_have_attribute("aria-label", "report.pdf, page 4")
    expect(page.get_by_role("dialog").locator(".text-of")).to_contain_text(REPORT[3])


def test_the_file_is_opened_at_the_page(page: Page, gallery: RunningService) -> None:
    page.goto("/?index=reports&q=the+invoice+of+the+printer")
    page.locator(".card .open", has_text="page 2").click()
    link = page.get_by_role("link", name="Open the file at page 2")
    parts = urlsplit(link.get_attribute("href") or "")
    assert parts.fragment == "page=2"
    whole = gallery.http.get(f"/{parts.path.lstrip('/')}?{parts.query}")
    assert whole.headers["content-type"] == "application/pdf"
    assert whole.content.startswith(b"%PDF-")


def test_the_lines_that_were_read_in_a_picture_are_framed(page: Page) -> None:
    page.goto("/?index=reports&q=plumber")
    page.locator(".card .open").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("mark")).to_have_text(["plumber"])
    frame = dialog.locator(".held .box")
    expect(frame).to_have_count(1)
    shown, framed = dialog.locator(".held img").bounding_box(), frame.bounding_box()
    assert shown is not None
    assert framed is not None
    assert [
        round((framed["x"] - shown["x"]) / shown["width"], 1),
        round((framed["y"] - shown["y"]) / shown["height"], 1),
        round(framed["width"] / shown["width"], 1),
        round(framed["height"] / shown["height"], 1),
    ] == [0.1, 0.5, 0.5, 0.2]
    expect(dialog.locator(".metadata")).not_to_contain_text("10,50,50,20")
