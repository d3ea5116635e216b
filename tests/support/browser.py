"""What the tests of the page know of its gallery, and what they read of the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page, expect

from tests.support.service import RunningService

SCENES = 90
REPORT = ("a red circle", "the invoice of the printer", "a green star above a green circle", "the printer is new")
"""What the pages of a PDF say."""

DROP = """([encoded, type, event]) => {
  const bytes = Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], 'query', {type}));
  if (event === 'paste') document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true}));
  else for (const name of ['dragenter', 'drop'])
    document.body.dispatchEvent(new DragEvent(name, {dataTransfer: data, bubbles: true, cancelable: true}));
}"""
"""A script that drops a file on a page, or pastes it: its bytes in Base64, its type, and which of the two."""


@dataclass
class Problems:
    """What a page wrote to the console that it should not."""

    allowed: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        """Keep errors and warnings, such as a violation of the Content-Security-Policy."""
        if message.type in ("error", "warning") and not any(part in message.text for part in self.allowed):
            self.found.append(message.text)


def settled(page: Page) -> None:
    """Wait until a page shows the answer to what was asked last.

    Call it before a plain ``assert`` on what the page shows. The results are busy from the first key that is typed to
    the matches. The filters are busy until their counts have come, and the page until it knows its indexes.
    """
    expect(page.locator("[aria-busy='true']")).to_have_count(0)


def shown(page: Page) -> list[str]:
    """Return the ids of the cards, in their order."""
    settled(page)
    ids: list[str] = page.locator(".card .open").evaluate_all(
        "all => all.map((each) => new URLSearchParams(each.search).get('open'))"
    )
    return ids


def gallery_folder(gallery: RunningService) -> Path:
    """Where the files of the gallery are."""
    return Path(gallery.service.settings.indexes["gallery"].allow[0])
