"""Adding files to an index from the page; the keys; what is offered to whom."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DROP, gallery_folder, settled
from tests.support.service import RunningService
from vlmsearch.demo.scenes import make_scene
from vlmsearch.stores.base import Store


@pytest.fixture
def store(gallery: RunningService) -> Iterator[Store]:
    """An index that is empty before and after. Tests ask for it before their page, which shows it to its end."""
    pipeline = gallery.service.indexes["empty"].pipeline
    yield pipeline.store
    pipeline.delete(list(pipeline.store.ids()))


def png(folder: Path, name: str, seed: int) -> Path:
    make_scene(seed).draw(48).save(folder / name)
    return folder / name


def test_files_are_added_and_replaced(store: Store, page: Page, tmp_path: Path) -> None:
    page.goto("/?index=empty")
    page.get_by_role("button", name="Add files").click()
    dialog = page.get_by_role("dialog", name="Add files")
    note = tmp_path / "note.md"
    note.write_text("the ferry leaves at nine")
    (tmp_path / "table.pdf").write_bytes(b"%PDF")
    page.locator("#upload-files").set_input_files([png(tmp_path, "one.png", 1), note, tmp_path / "table.pdf"])
    expect(dialog.get_by_role("alert")).to_contain_text("\u201ctable.pdf\u201d")
    page.locator("#upload-files").set_input_files(png(tmp_path, "two.PNG", 2))
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    dialog.get_by_label("Caption").fill("a scene of the page")
    dialog.get_by_role("button", name="Add 3 files").click()
    expect(page.locator("#said")).to_have_text("3 added.")
    expect(dialog).to_have_count(0)
    expect(page.locator(".card")).to_have_count(3)
    one, text, two = (store.get([id])[0] for id in ("one.png", "note.md", "two.PNG"))
    today = int(date.today().strftime("%Y%m%d"))  # noqa: DTZ011 - as the browser has it
    assert (one.text, dict(one.metadata)) == ("a scene of the page", {"type": "png", "date": today})
    assert dict(two.metadata) == dict(one.metadata)
    assert (text.text, text.metadata["type"]) == ("the ferry leaves at nine", "md")
    assert isinstance(one.image, Path)
    assert one.image.read_bytes() == (tmp_path / "one.png").read_bytes()

    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#upload-files").set_input_files(png(tmp_path, "one.png", 3))
    dialog.get_by_role("button", name="Add 1 file").click()
    expect(dialog.get_by_role("alert")).to_have_text("The index has \u201cone.png\u201d already.")
    assert store.get(["one.png"])[0].text == "a scene of the page"
    dialog.get_by_role("button", name="Replace 1, add 0").click()
    expect(page.locator("#said")).to_have_text("1 replaced.")
    assert store.get(["one.png"])[0].text is None


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted_into_the_dialog(store: Store, page: Page, tmp_path: Path, way: str) -> None:
    page.goto("/?index=empty")
    page.get_by_role("button", name="Add files").click()
    data = base64.b64encode(png(tmp_path, "one.png", 1).read_bytes()).decode()
    for _ in range(2):
        page.evaluate(DROP, [data, "image/png", way])
    dialog = page.get_by_role("dialog", name="Add files")
    expect(dialog.get_by_role("listitem")).to_have_count(2)
    dialog.get_by_role("button", name="Leave out").last.click()
    dialog.get_by_role("button", name="Add").click()
    expect(page.locator(".card")).to_have_count(1)
    assert len(store) == 1
    expect(page).not_to_have_url(re.compile("image="))
    page.evaluate(DROP, [data, "image/png", way])
    expect(page.locator(".chip.picture")).to_be_visible()  # without the dialog it is searched by


def test_what_cannot_be_used_is_named_and_stays(store: Store, page: Page, tmp_path: Path) -> None:
    torn = tmp_path / "torn.png"
    torn.write_bytes(png(tmp_path, "whole.png", 1).read_bytes()[:200])
    page.goto("/?index=empty")
    page.get_by_role("button", name="Add files").click()
    page.locator("#upload-files").set_input_files([torn, tmp_path / "whole.png"])
    dialog = page.get_by_role("dialog", name="Add files")
    dialog.get_by_role("button", name="Add 2 files").click()
    expect(dialog.get_by_role("alert")).to_contain_text("torn.png")
    expect(dialog.get_by_role("alert")).to_contain_text("cut short")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    expect(page.locator("#said")).to_have_text("1 added · 1 left out.")
    assert list(store.ids()) == ["whole.png"]


def test_a_text_in_another_character_set_is_not_made_unreadable(store: Store, page: Page, tmp_path: Path) -> None:
    page.goto("/?index=empty")
    page.get_by_role("button", name="Add files").click()
    (tmp_path / "note.txt").write_bytes("Grüße".encode("cp1252"))
    page.locator("#upload-files").set_input_files(tmp_path / "note.txt")
    dialog = page.get_by_role("dialog", name="Add files")
    dialog.get_by_role("button", name="Add 1 file").click()
    expect(dialog.get_by_role("alert")).to_contain_text("\u201cnote.txt\u201d is not in UTF-8.")
    assert len(store) == 0


def test_a_text_that_names_its_readers_is_not_made_one_for_everyone(store: Store, page: Page, tmp_path: Path) -> None:
    page.goto("/?index=empty")
    page.get_by_role("button", name="Add files").click()
    (tmp_path / "note.md").write_text("---\ntitle: A note\nreaders: [group:hr]\n---\nThe pay.")
    page.locator("#upload-files").set_input_files(tmp_path / "note.md")
    dialog = page.get_by_role("dialog", name="Add files")
    dialog.get_by_role("button", name="Add 1 file").click()
    expect(dialog.get_by_role("alert")).to_contain_text("\u201cnote.md\u201d names its readers")
    assert len(store) == 0


def test_the_keys_are_shown(page: Page) -> None:
    page.goto("/?q=a+heart")
    expect(page.locator(".card").first).to_be_visible()
    page.locator("#q").press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_have_count(0)  # it was typed
    page.locator("#q").fill("a heart")
    settled(page)
    page.locator(".card .open").first.focus()
    page.keyboard.press("?")
    expect(keys).to_contain_text("zoom in and out")
    page.keyboard.press("Escape")
    page.locator(".card .open").first.click()
    expect(page.locator(".verdict")).to_be_visible()
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog.picture")).to_be_visible()
    page.goto("/?q=a+heart")
    page.get_by_role("button", name="Keys").click()
    expect(keys).to_be_visible()


def test_jobs_are_offered_where_folders_are_allowed(page: Page, gallery: RunningService) -> None:
    assert gallery_folder(gallery)
    activity = page.get_by_role("link", name="Activity")
    page.goto("/")
    expect(activity).to_be_visible()
    page.goto("/?index=notes&view=activity")
    expect(page.locator(".card").first).to_be_visible()  # the search is shown instead
    expect(activity).to_have_count(0)
