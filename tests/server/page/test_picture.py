"""The view of one document: why it was found, what is like it, and what is done with it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import settled, shown
from tests.support.service import RunningService

QUERY = "a large green heart"


def open_first(page: Page, query: str = QUERY) -> str:
    page.goto(f"/?q={query.replace(' ', '+')}")
    page.locator(".card .open").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    return page.get_by_role("dialog").get_attribute("aria-label") or ""


def test_it_says_why_the_document_was_found(page: Page, gallery: RunningService) -> None:
    id = open_first(page)
    told = gallery.service.indexes["gallery"].pipeline.explain(QUERY, id, limit=60)
    assert told.document is not None
    assert told.document.text is not None
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Why it was found")).to_be_visible()
    expect(dialog.locator(".fields")).to_be_hidden()
    dialog.get_by_text("Figures").click()
    expect(dialog).to_contain_text(told.reason)
    rows = dialog.locator(".fields li")
    expect(rows).to_have_count(len(told.fields) + 2)
    adds = [text.replace("\u2212", "-") for text in rows.locator(".adds").all_inner_texts()]
    parts = [field.weight * field.evidence if field.counts else 0 for field in told.fields.values()]
    assert [float(text) for text in adds] == pytest.approx([told.prior, *parts, told.log_odds], abs=0.006)
    assert dialog.locator("mark").all_inner_texts() == [told.document.text[start:end] for start, end in told.marked]


def test_it_says_it_in_words_first(page: Page, gallery: RunningService) -> None:
    id = open_first(page, "heart")
    told = gallery.service.indexes["gallery"].pipeline.explain("heart", id, limit=60)
    assert told.relevance is not None
    assert told.relevance >= 0.9
    expect(page.locator(".verdict")).to_have_text(
        re.compile("^Very likely: the picture matches, the caption says \u201chearts?\u201d.$")
    )
    page.goto("/?q=heart&open=scene-0005")
    expect(page.get_by_text("Why it was not found")).to_be_visible()
    expect(page.locator(".verdict")).to_have_text(re.compile("^Unlikely: the picture looks like something else"))
    page.goto("/?index=notes&q=weather")
    page.locator(".card .open").first.click()
    expect(page.locator(".verdict")).to_have_text("Very likely: the text says \u201cweather\u201d.")


def test_it_zooms_with_the_button_the_key_and_a_click(page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 700})
    open_first(page)
    picture, stage = page.locator(".stage img"), page.locator(".stage")
    expect(picture).to_have_js_property("complete", True)
    expect(page.locator(".verdict")).to_be_visible()  # what is beside the picture has its size
    fits = picture.bounding_box()
    assert fits is not None
    button = page.get_by_role("button", name="Zoom")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    large = picture.bounding_box()
    assert large is not None
    assert large["width"] >= 2 * fits["width"]
    before = stage.evaluate("(stage) => stage.scrollLeft")
    box = stage.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 160, steps=4)
    page.mouse.up()
    assert stage.evaluate("(stage) => stage.scrollLeft") == pytest.approx(before + 80, abs=2)
    expect(button).to_have_attribute("aria-pressed", "true")  # dragging is no click
    page.keyboard.press("z")
    expect(picture).to_have_js_property("clientWidth", round(fits["width"]))
    picture.click(position={"x": 10, "y": 10})
    expect(button).to_have_attribute("aria-pressed", "true")
    assert stage.evaluate("(stage) => stage.scrollLeft") == 0  # the corner that was clicked is shown
    page.keyboard.press("ArrowRight")
    expect(page.locator("dialog[open] .place")).to_contain_text("2 of")
    expect(page.locator(".stage.zoomed")).to_have_count(0)  # the next one fits again


def test_it_shows_the_parts_that_mattered(page: Page) -> None:
    open_first(page)
    page.get_by_role("button", name="What in it mattered?").click()
    switch = page.get_by_label("Darken what did not matter in the picture")
    expect(switch).to_be_checked()
    expect(page.locator("canvas.veil")).to_be_visible()
    covered = page.locator("canvas.veil").evaluate(
        """(canvas) => {
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const dark = data.filter((value, at) => at % 4 === 3);
          return [dark.reduce((a, b) => Math.min(a, b)), dark.reduce((a, b) => Math.max(a, b))];
        }"""
    )
    assert covered[0] < 40  # what mattered most is hardly covered
    assert covered[1] > 150
    switch.uncheck()
    expect(page.locator("canvas.veil")).to_be_hidden()
    expect(page.locator(".text-of [class^=lit]").first).to_be_visible()


def test_the_next_one_is_shown_and_the_back_button_closes(page: Page) -> None:
    first = open_first(page)
    expect(page.locator("dialog[open] .place")).to_contain_text("1 of")
    page.get_by_role("button", name="The next one").click()
    expect(page.locator("dialog[open] .place")).to_contain_text("2 of")
    assert page.get_by_role("dialog").get_attribute("aria-label") != first
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#q")).to_have_value(QUERY)


def test_a_picture_that_was_closed_is_not_one_step_back(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.locator("#q").fill(QUERY)
    page.locator("#q").press("Enter")
    settled(page)
    expect(page.locator(".tools .count")).to_contain_text("match")
    page.locator(".card .open").first.click()
    expect(page.locator("dialog[open] .place")).to_contain_text("1 of")
    page.keyboard.press("ArrowRight")
    expect(page.locator("dialog[open] .place")).to_contain_text("2 of")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.wait_for_url(lambda url: "open" not in url)
    page.go_back()
    expect(page.locator("#q")).to_have_value("")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_link_to_a_document_needs_no_results(page: Page) -> None:
    page.goto("/?open=scene-0007")
    expect(page.get_by_role("dialog")).to_contain_text("scene-0007")
    expect(page.get_by_role("dialog").locator(".stage img")).to_have_js_property("naturalWidth", 256)
    page.goto("/?open=nowhere")
    expect(page.get_by_role("dialog")).to_contain_text("not in the index any more")


def test_more_and_less_like_it(page: Page, gallery: RunningService) -> None:
    id = open_first(page)
    page.get_by_role("button", name="Less like this").click()
    expect(page.locator(".chip", has_text=f"not like {id}")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert id not in shown(page)
    page.goto(f"/?open={id}")
    page.get_by_role("button", name="More like this").click()
    expect(page.locator(".chip", has_text=f"like {id}")).to_be_visible()
    expect(page.locator(".tools .count")).to_contain_text("match")
    alike = gallery.service.indexes["gallery"].pipeline.search(like=id, limit=60)
    count = f"{len(alike)} match{'' if len(alike) == 1 else 'es'}"
    expect(page.locator(".tools .count")).to_have_text(count if alike else "No match. Closest, not sure:")


def test_a_detail_becomes_a_filter(page: Page) -> None:
    page.goto("/?open=scene-0007")
    details = page.get_by_role("dialog").locator(".metadata")
    value = details.locator("dd").first.inner_text()
    details.locator("dd button").first.click()
    expect(page.locator(".chip")).to_contain_text(value)


def test_a_document_without_a_picture_is_its_text(page: Page) -> None:
    page.goto("/?index=notes&open=note-003")
    expect(page.get_by_role("dialog").locator(".text")).to_have_text("a note of the day 3 about the weather")
    expect(page.get_by_role("dialog").locator(".stage")).to_be_hidden()
