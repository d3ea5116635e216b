"""What the tests of the page know of its gallery, and what they read of the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import ConsoleMessage

from tests.support.service import RunningService

SCENES = 90
REPORT = ("a red circle", "the invoice of the printer", "a green star above a green circle", "the printer is new")
"""What the pages of a PDF say."""


@dataclass
class Problems:
    """What a page wrote to the console that it should not."""

    allowed: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        """Keep errors and warnings, such as a violation of the Content-Security-Policy."""
        if message.type in ("error", "warning") and not any(part in message.text for part in self.allowed):
            self.found.append(message.text)


def gallery_folder(gallery: RunningService) -> Path:
    """Where the files of the gallery are."""
    return Path(gallery.service.settings.indexes["gallery"].allow[0])
