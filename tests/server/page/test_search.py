"""Searching on the page: as one types, by pictures, with filters; what the address holds; how the results scroll."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import SCENES, Problems, gallery_folder
from tests.support.service import RunningService

DROP = """([encoded, type, event]) => {
  const bytes = Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], 'query', {type}));
  if (event === 'paste') document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true}));
  else for (const name of ['dragenter', 'drop'])
    document.body.dispatchEvent(new DragEvent(name, {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def shown(page: Page) -> list[str]:
    """The ids of the cards, in their order."""
    hrefs: list[str] = page.locator(".card .open").evaluate_all(
        "all => all.map((each) => new URLSearchParams(each.search).get('open'))"
    )
    return hrefs


def found(gallery: RunningService, *args: Any, index: str = "gallery", **options: Any) -> list[str]:
    pipeline = gallery.service.indexes[index].pipeline
    return [match.document.id for match in pipeline.search(*args, limit=60, **options)]


def test_without_a_query_all_documents_are_there(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".tools .count")).to_have_text(f"{SCENES + 2} documents")
    assert shown(page) == sorted(shown(page))


def test_matches_appear_as_one_types(page: Page, gallery: RunningService) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("a heart", delay=40)
    expect(page.locator(".tools .count")).to_contain_text("match")
    assert shown(page) == found(gallery, "a heart")[: len(shown(page))]
    assert "q=a+heart" in page.url


def test_an_answer_that_comes_late_is_not_shown(page: Page, gallery: RunningService) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if json.loads(route.request.post_data or "{}").get("text") == "a circle":
            held.append(route)
        else:
            route.continue_()

    page.route("**/search", hold)
    page.goto("/")
    page.locator("#q").fill("a circle")
    page.wait_for_timeout(500)
    assert len(held) == 1
    page.locator("#q").fill("a heart")
    expect(page.locator(".tools .count")).to_contain_text("match")
    held[0].fulfill(json={"matches": [], "cursor": None, "threshold": 0.3, "total": 0})
    page.wait_for_timeout(300)
    assert shown(page) == found(gallery, "a heart")[: len(shown(page))]


def test_a_word_that_was_typed_is_one_step_back(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.locator("#q").press_sequentially("a star", delay=250)
    expect(page.locator(".tools .count")).to_contain_text("match")
    page.go_back()
    expect(page.locator(".tools .count")).to_contain_text("documents")
    expect(page.locator("#q")).to_have_value("")
    page.go_forward()
    expect(page.locator("#q")).to_have_value("a star")
    expect(page.locator(".tools .count")).to_contain_text("match")


def test_a_link_shows_what_it_was_made_from(page: Page, gallery: RunningService) -> None:
    where = {"objects": {"$in": [1, 2, 3]}}
    page.goto(f"/?q=a+heart&where={json.dumps(where)}&sort=-objects")
    expect(page.locator(".tools .count")).to_contain_text("match")
    assert shown(page) == found(gallery, "a heart", where=where, sort="-objects")[: len(shown(page))]
    expect(page.get_by_label("Sort")).to_have_value("-objects")
    expect(page.locator(".chip")).to_have_text("objects: 1 or 2 or 3")


def test_filters_count_and_narrow_and_are_taken_off(page: Page, gallery: RunningService) -> None:
    page.goto("/?q=a+heart")
    group = page.get_by_role("group", name="objects")
    row = group.locator(".choice", has_text="8").first
    expect(row.locator(".count")).not_to_have_text("0")
    told = int(row.locator(".count").inner_text())
    assert told == len(found(gallery, "a heart", where={"objects": 8}))
    row.locator("input").check()
    expect(page.locator(".tools .count")).to_have_text(f"{told} matches" if told > 1 else "1 match")
    assert sorted(shown(page)) == sorted(found(gallery, "a heart", where={"objects": 8}))
    expect(group.locator(".choice")).not_to_have_count(1)  # the other values stay to choose from
    page.get_by_role("button", name="Remove objects: 8").click()
    expect(row.locator("input")).not_to_be_checked()
    assert "where" not in page.url


def test_filters_apply_without_a_query(page: Page, gallery: RunningService) -> None:
    page.goto("/")
    page.get_by_role("group", name="objects").locator(".choice", has_text="5").locator("input").check()
    store = gallery.service.indexes["gallery"].pipeline.store
    all_ids = sorted(store.ids())
    expected = [document.id for document in store.get(all_ids) if document.metadata.get("objects") == 5]
    expect(page.locator(".card")).to_have_count(len(expected))
    assert shown(page) == sorted(expected)


def test_a_number_with_many_values_is_filtered_by_a_range(page: Page) -> None:
    page.goto("/?index=notes&q=weather&all=1")
    page.get_by_label("day from").fill("190")
    page.get_by_label("day from").press("Enter")
    expect(page.locator(".tools .count")).to_have_text("10 matches")
    expect(page.locator(".chip", has_text="day: from 190")).to_be_visible()


def test_pages_load_while_scrolling(page: Page, gallery: RunningService) -> None:
    page.goto("/?index=notes&q=weather&all=1&sort=day")
    expect(page.locator(".tools .count")).to_have_text("200 matches")
    for _ in range(12):
        page.mouse.wheel(0, 3000)
        page.wait_for_timeout(150)
    expect(page.locator("[aria-posinset='200']")).to_be_visible()
    expect(page.locator("[aria-posinset='200']")).to_contain_text("199")
    assert page.locator(".card").count() < 60  # what is far from the window is not in the page


def test_nothing_matches_until_what_comes_closest_is_asked_for(page: Page) -> None:
    page.goto("/?q=quarterly+tax+report")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Show what comes closest").click()
    expect(page.locator(".card").first).to_be_visible()
    assert "all=1" in page.url


def test_an_empty_index_says_how_to_fill_it(page: Page) -> None:
    page.goto("/?index=empty")
    expect(page.get_by_role("heading", name="This index is empty")).to_be_visible()
    expect(page.locator("pre")).to_contain_text("vlmsearch index")


def test_another_index_is_chosen(page: Page) -> None:
    page.goto("/?q=a+heart")
    page.get_by_label("Index", exact=True).select_option("notes")
    expect(page.locator(".tools .count")).to_have_text("200 documents")
    page.goto("/?index=unknown")
    expect(page.get_by_role("alert")).to_contain_text("no such index")


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_a_picture_is_searched_by(page: Page, gallery: RunningService, way: str) -> None:
    path = gallery_folder(gallery) / "gallery" / "scene-0004.png"
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    if way == "choose":
        page.locator("input[type=file]").set_input_files(path)
    else:
        page.evaluate(DROP, [base64.b64encode(path.read_bytes()).decode(), "image/png", way])
    expect(page.locator(".chip.picture img")).to_be_visible()
    expect(page.locator(".tools .count")).to_contain_text("match")
    assert shown(page) == found(gallery, image=path)[: len(shown(page))]
    page.reload()
    expect(page.locator(".tools .count")).to_contain_text("match")  # the browser keeps the picture
    page.get_by_role("button", name="Remove your picture").click()
    expect(page.locator(".tools .count")).to_contain_text("documents")


def test_what_is_no_picture_is_refused(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.evaluate(DROP, [base64.b64encode(b"a text").decode(), "text/plain", "drop"])
    expect(page.locator("#said")).to_contain_text("not a picture")


def test_a_link_to_a_picture_of_another_browser_says_so(page: Page) -> None:
    page.goto("/?image=unknown")
    expect(page.get_by_role("alert")).to_contain_text("in another browser")


def test_an_error_is_shown_and_tried_again(page: Page, problems: Problems) -> None:
    problems.allowed.append("503")
    answer = {"error": {"type": "backend_unavailable", "message": "mongodb does not answer", "code": None}}
    page.route("**/search", lambda route: route.fulfill(status=503, json=answer))
    page.goto("/?q=a+heart")
    expect(page.get_by_role("alert")).to_contain_text("mongodb does not answer")
    page.unroute("**/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".tools .count")).to_contain_text("match")


def test_the_keyboard_moves_selects_and_opens(page: Page) -> None:
    page.goto("/?q=a+heart")
    expect(page.locator(".card").first).to_be_visible()
    ids = shown(page)
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    expect(page.locator("#selection")).to_contain_text("1 document selected")
    expect(page.locator(".card").nth(1).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("dialog")).to_have_attribute("aria-label", ids[2])
    page.keyboard.press("Escape")
    expect(page.locator(".card .open").nth(2)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#q")).to_be_focused()


def test_the_page_asks_nobody_else(page: Page, gallery: RunningService) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/?q=a+heart")
    page.locator(".card .open").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert asked
    assert [url for url in asked if not url.startswith((gallery.url, "data:", "blob:"))] == []


def test_matches_stay_where_counting_fails(page: Page, problems: Problems) -> None:
    problems.allowed.append("503")

    def fail(route: Route) -> None:
        if json.loads(route.request.post_data or "{}").get("count"):
            route.fulfill(status=503, json={"error": {"type": "overloaded", "message": "too much", "code": None}})
        else:
            route.continue_()

    page.route("**/search", fail)
    page.goto("/?index=notes&q=weather&all=1")
    expect(page.locator(".tools .count")).to_have_text("More than 60 matches")
    page.wait_for_timeout(600)
    expect(page.locator(".card").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
