"""Searching on the page: as one types, by pictures, with filters; what the address holds; how the results scroll."""

from __future__ import annotations

import base64
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import DROP, SCENES, Problems, gallery_folder, settled, shown
from tests.support.service import RunningService
from vlmsearch import Matches
from vlmsearch.demo.scenes import make_scene


def search(gallery: RunningService, *args: Any, **options: Any) -> Matches:
    return gallery.service.indexes["gallery"].pipeline.search(*args, limit=60, **options)


def found(gallery: RunningService, *args: Any, **options: Any) -> list[str]:
    return [match.document.id for match in search(gallery, *args, **options)]


def where_of(page: Page) -> Any:
    settled(page)
    return json.loads(parse_qs(urlsplit(page.url).query)["where"][0])


def test_without_a_query_all_documents_are_there(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".tools .count")).to_have_text(f"{SCENES + 2} documents")
    names = [Path(id).name for id in shown(page)]
    assert names[:2] == ["again.jpg", "small.jpg"]  # they have a date
    assert names[2:] == sorted(names[2:])


def test_pictures_come_before_texts_and_the_newest_first(page: Page, gallery: RunningService) -> None:
    pipeline = gallery.service.indexes["empty"].pipeline
    folder = gallery_folder(gallery) / "home"
    folder.mkdir()
    for day, name in enumerate(("b.png", "c.txt", "a.png", "d.txt"), start=10):
        path = folder / name
        if name.endswith("txt"):
            path.write_text(name)
        else:
            make_scene(day).draw(48).save(path)
        noon = datetime(2024, 6, day, 12).astimezone().timestamp()
        os.utime(path, (noon, noon))
    pipeline.index(folder)
    try:
        page.goto("/?index=empty")
        expect(page.locator(".card")).to_have_count(4)
        assert [Path(id).name for id in shown(page)] == ["a.png", "b.png", "d.txt", "c.txt"]
        page.get_by_label("date from").fill("2024-06-11")
        expect(page.locator(".card")).to_have_count(3)
        expect(page.locator(".chip")).to_have_text("date: from 2024-06-11")
        page.get_by_label("date up to").fill("2024-06-12")
        expect(page.locator(".chip")).to_have_text("date: 2024-06-11 to 2024-06-12")
        expect(page.locator(".card")).to_have_count(2)
        assert [Path(id).name for id in shown(page)] == ["a.png", "c.txt"]
        assert where_of(page) == {"date": {"$gte": 20240611, "$lte": 20240612}}
        expect(page.get_by_role("group", name="type").locator(".choice")).to_have_text(["png1", "txt1"])
        page.get_by_role("group", name="type").get_by_label("txt").check()
        expect(page.locator(".card")).to_have_count(1)
        page.locator(".card .open").click()
        page.get_by_role("dialog").get_by_role("button", name="2024-06-11").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert where_of(page) == {"date": 20240611, "type": "txt"}
        page.goto("/?index=empty&q=txt&all=1")
        page.get_by_label("Sort").select_option(label="Oldest first")
        settled(page)
        expect(page.locator(".card").first).to_contain_text("b.png")
    finally:
        page.goto("about:blank")  # it may be loading pictures of what is deleted
        pipeline.delete(list(pipeline.store.ids()))


def test_filters_never_lead_to_nothing(page: Page, gallery: RunningService) -> None:
    page.goto("/?q=a+heart")
    counts = page.locator(".choice .count")
    expect(counts.first).to_be_visible()
    settled(page)
    assert "0" not in counts.all_inner_texts()
    assert page.locator(".choice").count() == counts.count()
    objects = {match.document.metadata.get("objects") for match in search(gallery, "a heart")}
    group = page.get_by_role("group", name="objects")
    assert {int(text) for text in group.locator(".value").all_inner_texts()} == objects - {None}
    page.goto("/?index=reports")
    expect(page.locator(".card").first).to_be_visible()
    settled(page)
    assert not {"page", "pages", "parts", "title"} & set(page.locator(".filters legend").all_inner_texts())


def test_names_keep_their_ends(page: Page, gallery: RunningService) -> None:
    folder = gallery_folder(gallery) / "names"
    folder.mkdir()
    name = "a-picture-with-a-long-name-that-was-taken-on-the-beach-0042.jpeg"
    make_scene(3).draw(48).save(folder / name)
    pipeline = gallery.service.indexes["empty"].pipeline
    pipeline.index(folder)
    try:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto("/?index=empty")
        caption = page.locator(".caption")
        expect(caption).to_contain_text(name)
        settled(page)
        end = caption.locator(".unbroken")
        assert end.inner_text() == name[-9:]
        assert end.evaluate("(end) => end.getClientRects().length") == 1
        card, box = page.locator(".card").bounding_box(), end.bounding_box()
        assert card is not None
        assert box is not None
        assert box["x"] + box["width"] <= card["x"] + card["width"] + 1
        page.locator(".card .open").click()
        heading = page.get_by_role("dialog").locator("h2")
        expect(heading).to_have_text(name)
        assert heading.locator(".unbroken").evaluate("(end) => end.getClientRects().length") == 1
    finally:
        page.goto("about:blank")  # it may be loading pictures of what is deleted
        pipeline.delete(list(pipeline.store.ids()))


def test_the_circle_covers_no_words_on_a_phone(browser: Browser, gallery: RunningService) -> None:
    context = browser.new_context(
        base_url=gallery.url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    page = context.new_page()
    page.goto("/?index=notes")
    expect(page.locator(".card").first).to_be_visible()
    overlap = page.locator(".card").first.evaluate(
        """(card) => {
          const circle = card.querySelector('.pick').getBoundingClientRect();
          const words = document.createRange();
          words.selectNodeContents(card.querySelector('.words'));
          return [getComputedStyle(card.querySelector('.pick')).opacity, [...words.getClientRects()].some((line) =>
            line.right > circle.left && line.left < circle.right
            && line.bottom > circle.top && line.top < circle.bottom)];
        }"""
    )
    context.close()
    assert overlap[0] != "0"
    assert overlap[1] is False


def test_matches_appear_as_one_types(page: Page, gallery: RunningService) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("a heart", delay=40)
    settled(page)
    expect(page).to_have_url(re.compile("q=a\\+heart$"))
    expect(page.locator(".tools .count")).to_contain_text("match")
    assert shown(page) == found(gallery, "a heart")[: len(shown(page))]


def test_results_are_busy_from_the_first_key_to_the_matches(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    results = page.locator(".results")
    expect(results).to_have_attribute("aria-busy", "false")
    typed = page.locator("#q").evaluate(
        """(input) => {
          input.value = 'a heart';
          input.dispatchEvent(new Event('input'));
          return [document.querySelector('.results').getAttribute('aria-busy'), location.search];
        }"""
    )
    assert typed == ["true", ""], "before the search is made"
    expect(results).to_have_attribute("aria-busy", "false")
    expect(page).to_have_url(re.compile("q=a\\+heart$"))
    expect(page.locator(".tools .count")).to_contain_text("match")


def test_what_was_typed_is_forgotten_where_the_search_is_left(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.locator("#q").evaluate(
        """(input) => {
          input.value = 'a heart';
          input.dispatchEvent(new Event('input'));
          document.querySelector("#nav a[href*='view=ask']").click();
        }"""
    )
    expect(page.get_by_label("Question")).to_be_visible()
    page.wait_for_timeout(500)
    expect(page).to_have_url(re.compile(r"\?view=ask$"))
    expect(page.get_by_label("Question")).to_have_value("")


def test_an_answer_that_comes_late_is_not_shown(page: Page, gallery: RunningService) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if json.loads(route.request.post_data or "{}").get("text") == "a circle":
            held.append(route)
        else:
            route.continue_()

    page.route("**/search", hold)
    page.goto("/")
    with page.expect_request(lambda request: request.url.endswith("/search")):
        page.locator("#q").fill("a circle")
    expect(page).to_have_url(re.compile("q=a\\+circle$"))
    page.locator("#q").fill("a heart")
    settled(page)
    expect(page.locator(".tools .count")).to_contain_text("match")
    assert len(held) == 1
    held[0].fulfill(json={"matches": [], "cursor": None, "threshold": 0.3, "total": 0})
    page.wait_for_timeout(300)
    assert shown(page) == found(gallery, "a heart")[: len(shown(page))]


def test_a_word_that_was_typed_is_one_step_back(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.locator("#q").press_sequentially("a star", delay=250)
    settled(page)
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
    settled(page)
    told = int(row.locator(".count").inner_text())
    assert told == len(found(gallery, "a heart", where={"objects": 8}))
    row.locator("input").check()
    expect(page.locator(".tools .count")).to_have_text(f"{told} matches" if told > 1 else "1 match")
    assert sorted(shown(page)) == sorted(found(gallery, "a heart", where={"objects": 8}))
    expect(group.locator(".choice")).not_to_have_count(1)  # the other values stay to choose from
    page.get_by_role("button", name="Remove objects: 8").click()
    expect(row.locator("input")).not_to_be_checked()
    expect(page).not_to_have_url(re.compile("where"))


def test_filters_apply_without_a_query(page: Page, gallery: RunningService) -> None:
    page.goto("/")
    page.get_by_role("group", name="objects").get_by_label(re.compile("^5")).check()
    store = gallery.service.indexes["gallery"].pipeline.store
    all_ids = sorted(store.ids())
    expected = [document.id for document in store.get(all_ids) if document.metadata.get("objects") == 5]
    expect(page.locator(".card")).to_have_count(len(expected))
    assert shown(page) == sorted(expected)


def test_a_number_with_many_values_is_filtered_by_a_range(page: Page) -> None:
    page.goto("/?index=notes&q=weather&all=1")
    settled(page)  # the filters are drawn again with their counts, without what was typed
    page.get_by_label("day from").fill("190")
    page.get_by_label("day from").press("Enter")
    expect(page.locator(".tools .count")).to_have_text("10 matches")
    expect(page.locator(".chip", has_text="day: from 190")).to_be_visible()


def test_pages_load_while_scrolling(page: Page, gallery: RunningService) -> None:
    page.goto("/?index=notes&q=weather&all=1&sort=day")
    expect(page.locator(".tools .count")).to_have_text("200 matches")
    last = page.locator("[aria-posinset='200']")
    for _ in range(100):
        page.mouse.wheel(0, 3000)
        page.wait_for_timeout(150)
        if last.is_visible():
            break
    expect(last).to_be_visible()
    expect(last).to_contain_text("199")
    assert page.locator(".card").count() < 60  # what is far from the window is not in the page


def test_nothing_matches_until_what_comes_closest_is_asked_for(page: Page) -> None:
    page.goto("/?q=quarterly+tax+report")
    expect(page.locator(".tools .count")).to_have_text("No match. Closest, not sure:")
    expect(page.locator(".card").first).to_be_visible()
    assert 1 <= page.locator(".card").count() <= 3
    page.get_by_role("button", name="Show what comes closest, too").click()
    expect(page).to_have_url(re.compile("all=1"))
    expect(page.locator(".card").nth(9)).to_be_visible()
    page.goto("/?q=a+star&where=%7B%22objects%22%3A99%7D")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Remove the filters").click()
    expect(page.locator(".card").first).to_be_visible()


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


def test_what_is_no_picture_or_of_another_browser_is_refused(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.evaluate(DROP, [base64.b64encode(b"a text").decode(), "text/plain", "drop"])
    expect(page.locator("#said")).to_contain_text("not a picture")
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
    settled(page)
    expect(page.locator(".card").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_misspelt_word_has_a_note(page: Page) -> None:
    page.goto("/?index=notes&q=wheather")
    expect(page.get_by_role("note")).to_have_text("Shown for weather (no document has wheather).")
    page.goto("/?index=notes&q=weather")
    expect(page.locator(".card").first).to_be_visible()
    expect(page.get_by_role("note")).to_be_hidden()


def test_scores_that_are_uncalibrated_have_a_note(page: Page) -> None:
    page.goto("/?q=a+heart")
    expect(page.locator(".card").first).to_be_visible()
    expect(page.get_by_role("note")).to_be_hidden()

    def change(route: Route) -> None:
        answer = route.fetch().json()
        route.fulfill(json={**answer, "uncalibrated": {"clip/image": "demo-clip is made for drawn scenes"}})

    page.route("**/search", change)
    page.goto("/?q=a+star")
    expect(page.get_by_role("note")).to_have_text("Scores are uncalibrated: demo-clip is made for drawn scenes.")
    expect(page.locator(".card").first).to_be_visible()
