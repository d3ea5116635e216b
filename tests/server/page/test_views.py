"""The other views: answers, duplicates, the rejects, the work of the server; and what is done with a selection."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.support.browser import Problems, gallery_folder, settled
from tests.support.service import RunningService
from vlmsearch import Document
from vlmsearch.demo.scenes import make_scene

QUESTION = "Which scenes show green hearts?"


def test_an_answer_cites_what_can_be_opened(page: Page, gallery: RunningService) -> None:
    answer = gallery.service.indexes["gallery"].pipeline.ask(QUESTION)
    assert answer.citations
    page.goto("/?view=ask")
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Enter")
    cited = page.locator(".cite")
    expect(cited.first).to_be_visible()
    assert cited.all_inner_texts()[: len(answer.citations)] == [str(each.number) for each in answer.citations]
    expect(page.locator(".sources li")).to_have_count(len(answer.matches))
    cited.first.click()
    expect(page.get_by_role("dialog")).to_have_attribute("aria-label", answer.citations[0].id)
    page.keyboard.press("Escape")
    expect(page.locator(".cite").first).to_be_visible()
    page.wait_for_url(lambda url: "open=" not in url)  # or the way back is what the new load ends
    page.reload()
    expect(page.get_by_label("Question")).to_have_value(QUESTION)
    expect(page.locator(".cite").first).to_be_visible()  # a link to a question asks it


def test_sources_say_how_they_were_read_and_a_question_brings_a_picture(page: Page, tmp_path: Path) -> None:
    make_scene(5).draw(96).save(tmp_path / "mine.png")
    page.goto("/?view=ask&q=Which+scenes+show+green+hearts")
    expect(page.locator(".sources .read").first).to_have_text(re.compile("^(text|name alone|seen)"))
    with page.expect_request(lambda request: request.url.endswith("/ask")) as sent:
        page.locator("input[type=file]").set_input_files(tmp_path / "mine.png")
    body: Any = sent.value.post_data_json
    assert body["question"] == "Which scenes show green hearts"
    assert body["image"].startswith("data:image/png;base64,")
    expect(page.locator(".chip.picture img")).to_be_visible()
    page.get_by_role("button", name="Remove your picture").click()
    expect(page.locator(".chip.picture")).to_have_count(0)
    expect(page).to_have_url(re.compile("view=ask"))


def test_duplicates_are_found_side_by_side_and_selected(page: Page) -> None:
    page.goto("/?view=duplicates")
    page.get_by_role("button", name=re.compile("^Look")).click()
    settled(page)  # the groups of a job before are gone
    group = page.locator(".group").first
    expect(group).to_be_visible(timeout=60_000)
    expect(group).to_contain_text("small.jpg")
    expect(group).to_contain_text("again.jpg")
    expect(group).to_contain_text("160 \u00d7 160")
    expect(group.locator("b", has_text="largest")).to_have_count(1)
    page.get_by_role("button", name="Select all but the largest").click()
    expect(page.locator("#selection")).to_contain_text("selected")
    largest = group.locator("li", has=page.locator("b", has_text="largest"))
    expect(largest.locator("input")).not_to_be_checked()
    expect(group.locator("input:checked")).to_have_count(group.locator("li").count() - 1)
    seen = page.get_by_role("button", name=re.compile("^Look")).evaluate(
        """(button) => {
          button.click();
          return [document.querySelector('.duplicates').ariaBusy, document.querySelectorAll('.group').length > 0];
        }"""
    )
    assert seen == ["true", True], "groups of the job before are busy until another has begun"
    settled(page)
    expect(page.locator(".group").first).to_be_visible(timeout=60_000)


def test_what_was_left_out_is_listed_with_its_reason(page: Page) -> None:
    page.goto("/?view=rejects")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("torn.png")
    expect(row.locator("b")).to_have_text("truncated")
    page.get_by_label("Name").fill("other")
    expect(row).to_have_count(0)
    page.goto("/?index=notes&view=rejects")
    expect(page.get_by_role("heading", name="Nothing was rejected")).to_be_visible()


def test_a_folder_is_indexed_with_its_progress(page: Page, gallery: RunningService) -> None:
    folder = gallery_folder(gallery) / "later"
    folder.mkdir(exist_ok=True)
    make_scene(77).draw(96).save(folder / "late.png")
    page.goto("/?view=activity")
    page.get_by_label("Index a folder").fill(str(folder))
    page.keyboard.press("Enter")
    job = page.locator(".jobs li").first
    expect(job).to_contain_text(f"Index {folder}")
    expect(job).to_contain_text("1 added", timeout=60_000)
    page.reload()
    expect(page.locator(".jobs li").first).to_contain_text("1 added")
    gallery.service.indexes["gallery"].pipeline.delete([str(folder / "late.png")])


def test_what_was_not_read_is_said_of_a_job_an_index_and_a_document(page: Page, gallery: RunningService) -> None:
    folder = gallery_folder(gallery) / "papers"
    folder.mkdir(exist_ok=True)
    for name in ("lease.docx", "page.html", "a.log", "note.txt"):
        (folder / name).write_text("a note")
    unread = {"unread": "2 comments, 1 text box", "unread_count": 3}
    (folder / "table.jsonl").write_text(json.dumps({"id": "lease", "text": "a lease of a house", **unread}))
    said = "1 document has parts that were not read: 2 comments, 1 text box."
    page.goto("/?view=activity")
    for path, notes in (
        ("table.jsonl", [said]),
        ("table.jsonl", ["1 document in the index has parts that were not read."]),
        (".", ["2 files left out for want of an option: office 2.", "2 other files: .jsonl 1, .log 1."]),
    ):
        count = len(gallery.service.jobs.all())
        expect(page.locator(".jobs li")).to_have_count(count)  # those of other tests come after the page
        page.get_by_label("Index a folder").fill(str(folder / path))
        page.keyboard.press("Enter")
        expect(page.locator(".jobs li")).to_have_count(count + 1)
        for note in notes:
            expect(page.locator(".jobs li").first).to_contain_text(note, timeout=60_000)
    page.goto("/?view=rejects")
    expect(page.locator("main")).to_contain_text(said)
    page.get_by_role("link", name="Show them").click()
    settled(page)
    page.locator(".card .open").click()
    about = page.locator("dialog.picture .about")
    expect(about).to_contain_text("Not read: 2 comments, 1 text box.")
    expect(about.locator("dt", has_text="unread")).to_have_count(0)
    gallery.service.indexes["gallery"].pipeline.delete(["lease", str(folder / "note.txt")])


def test_a_folder_that_is_not_allowed_is_refused_in_words(page: Page, problems: Problems) -> None:
    problems.allowed.append("40")
    page.goto("/?view=activity")
    page.get_by_label("Index a folder").fill("/etc")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("/etc")


def test_what_is_selected_is_labelled_and_removed(page: Page, gallery: RunningService) -> None:
    store = gallery.service.indexes["notes"].pipeline.store
    pipeline = gallery.service.indexes["notes"].pipeline
    pipeline.add(Document(f"zebra-{n}", text=f"a zebra number {n}") for n in range(3))
    try:
        page.goto("/?index=notes&q=zebra")
        expect(page.locator(".tools .count")).to_have_text("3 matches")
        page.locator(".card").first.hover()
        page.locator(".card .pick").first.click()
        page.locator(".card .pick").nth(1).click()
        chosen = page.locator(".card.selected .open").evaluate_all(
            "all => all.map((each) => new URLSearchParams(each.search).get('open'))"
        )
        page.get_by_role("button", name="Label …").click()
        page.get_by_role("textbox", name="Label").fill("animal")
        page.get_by_role("button", name="Write").click()
        expect(page.locator("#said")).to_have_text("2 documents changed.")
        assert [document.metadata.get("label") for document in store.get(chosen)] == ["animal", "animal"]
        expect(page.get_by_role("group", name="label")).to_contain_text("animal")
        expect(page.locator("#selection")).to_be_hidden()
        page.locator(".card .pick").first.click()
        page.get_by_role("button", name="Remove …").click()
        page.get_by_role("button", name="Remove", exact=True).click()
        expect(page.locator("#said")).to_have_text("1 document removed from the index.")
        expect(page.locator(".tools .count")).to_have_text("2 matches")
    finally:
        page.goto("about:blank")  # it may be loading pictures of what is deleted
        pipeline.delete([f"zebra-{n}" for n in range(3)])


def test_a_selection_is_searched_by(page: Page) -> None:
    page.goto("/?q=a+green+heart&all=1")
    expect(page.locator(".card").first).to_be_visible()
    page.locator(".card .pick").first.click()
    page.locator(".card .pick").nth(2).click(modifiers=["Shift"])
    expect(page.locator("#selection")).to_contain_text("3 documents selected")
    page.get_by_role("button", name="More like these").click()
    expect(page.locator(".chip", has_text="like")).to_have_count(3)
    expect(page.locator("#selection")).to_be_hidden()
