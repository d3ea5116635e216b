"""Passages of long texts on the page: the one that fits is shown, and the document opens there."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from tests.support.long_texts import PASSAGES

QUERY = "emergency number of the plumber"
HANDBOOK = "books/handbook.txt"


def address(**state: str) -> str:
    return "/?" + urlencode({"index": "handbooks", **state})


def test_a_match_is_shown_by_its_passage(page: Page) -> None:
    page.goto(address(q=QUERY))
    card = page.locator(".card").first
    expect(card.locator(".words strong")).to_have_text("Keys")
    expect(card.locator(".words")).to_contain_text("… ")
    expect(card.locator(".words")).to_contain_text("The emergency number of the plumber is 4471.")
    expect(card.locator(".words")).not_to_contain_text("carps")
    expect(card.locator(".part")).to_contain_text("passage 3")
    card.locator(".open").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Passage 3: Keys, characters 512")
    expect(dialog.locator(".passage")).to_have_text(PASSAGES[2].strip())
    expect(dialog.locator(".passage")).to_be_in_viewport()
    expect(dialog.locator(".text")).to_contain_text("carps")
    expect(dialog.locator(".passage mark").first).to_be_visible()
    assert page.evaluate("new URLSearchParams(location.search).get('open')") == f"{HANDBOOK}#passage=3"


def test_a_link_opens_a_passage(page: Page) -> None:
    page.goto(address(open=f"{HANDBOOK}#passage=2"))
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h2")).to_have_text("handbook.txt")
    expect(dialog.locator(".passage")).to_have_text(PASSAGES[1].strip())
    page.goto(address(open=HANDBOOK))
    expect(dialog.locator(".text")).to_contain_text("carps")
    expect(dialog.locator(".passage")).to_have_count(0)


def test_a_citation_opens_the_passage_that_it_cites(page: Page) -> None:
    page.goto(address(view="ask"))
    match: dict[str, object] = {
        "id": HANDBOOK,
        "text": "".join(PASSAGES),
        "image": None,
        "metadata": {},
        "score": 0.9,
        "parts": {},
    }
    match["passage"] = {
        "number": 3,
        "start": 512,
        "end": 512 + len(PASSAGES[2]),
        "heading": "Keys",
        "text": PASSAGES[2],
    }
    answer = {
        "text": "It is 4471 [1].",
        "citations": [{"number": 1, "id": HANDBOOK, "passage": f"{HANDBOOK}#passage=2"}],
        "matches": [match],
        "dropped": [],
        "removed": [],
        "is_unsure": False,
        "read_as": {},
        "read": {},
    }
    body = f"event: answer\ndata: {json.dumps(answer)}\n\n"
    page.route("**/ask", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.fill("#q", QUERY)
    page.keyboard.press("Enter")
    source = page.locator(".sources a")
    expect(source).to_contain_text("Keys")
    expect(source).to_contain_text("is 4471")
    page.locator(".cite").click()
    expect(page.get_by_role("dialog").locator(".passage")).to_have_text(PASSAGES[1].strip())
    page.keyboard.press("Escape")
    source.click()
    expect(page.get_by_role("dialog").locator(".passage")).to_have_text(PASSAGES[2].strip())


def test_documents_are_counted_and_not_their_passages(page: Page) -> None:
    page.goto(address())
    expect(page.locator(".card")).to_have_count(2)
    expect(page.locator(".tools .count")).to_have_text("2 documents, 3 passages")
