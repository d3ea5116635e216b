"""The page of a service that asks for tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.service import RunningService, serving
from vlmsearch import Document
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[RunningService]:
    """A service that asks for tokens, with an index that only one of them may see."""
    tokens = tmp_path / "tokens.toml"
    settings = ServerSettings(
        indexes={name: IndexSettings("mock:", "mock:", generator="") for name in ("open", "secret")},
        tokens=str(tokens),
        uploads=str(tmp_path / "uploads"),
    )
    with serving(settings) as running:
        for name, index in running.service.indexes.items():
            index.pipeline.add([Document("a", text=f"what is {name}")])
        yield running


def add_token(locked: RunningService, role: str, *indexes: str) -> str:
    file = TokenFile(Path(str(locked.service.settings.tokens)))
    return file.add(role, role=role, indexes=indexes or None)  # type: ignore[arg-type]


@pytest.fixture
def visitor(browser: Browser, locked: RunningService) -> Iterator[Page]:
    context = browser.new_context(base_url=locked.url)
    yield context.new_page()
    context.close()


def test_it_asks_for_a_token_and_goes_on(visitor: Page, locked: RunningService) -> None:
    secret = add_token(locked, "read", "open")
    visitor.goto("/?q=what")
    dialog = visitor.get_by_role("dialog", name="Sign in")
    expect(dialog).to_be_visible()
    visitor.keyboard.press("Escape")
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog.get_by_role("alert")).to_contain_text("does not know this token")
    dialog.get_by_label("Token").fill(secret)
    dialog.get_by_role("button", name="Sign in").click()
    expect(visitor.get_by_text("what is open")).to_be_visible()
    expect(visitor.get_by_label("Index", exact=True)).to_have_count(0)  # there is one that it may see
    assert secret not in visitor.evaluate("document.cookie + JSON.stringify(localStorage)")
    visitor.reload()
    expect(visitor.get_by_text("what is open")).to_be_visible()
    visitor.get_by_role("button", name="Sign out").click()
    expect(dialog).to_be_visible()
    assert visitor.context.cookies() == []


def test_who_may_only_read_is_offered_no_change(visitor: Page, locked: RunningService) -> None:
    secrets = {role: add_token(locked, role) for role in ("read", "write")}
    for role, secret in secrets.items():
        visitor.context.clear_cookies()
        visitor.goto("/?index=secret")
        visitor.get_by_label("Token").fill(secret)
        visitor.keyboard.press("Enter")
        visitor.get_by_role("checkbox", name="Select a").click()
        expect(visitor.get_by_role("button", name="Label …")).to_have_count(int(role == "write"))
        expect(visitor.get_by_role("button", name="Remove …")).to_have_count(int(role == "write"))
