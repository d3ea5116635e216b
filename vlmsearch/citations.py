"""Citations in generated text, checked while it comes."""

from __future__ import annotations

import re

_NUMBERS = r"(?=[,;\s]*[0-9])[0-9,;\s]+"
_LONGEST = 4000
"""Python reads no number of many more digits."""
_CITATION = re.compile(rf"\s?[\[［【]({_NUMBERS})[\]］】]")  # noqa: RUF001 - look-alikes
_UNFINISHED = re.compile(r"\s*(?:[\[［【][0-9,;\s]*)*$")  # noqa: RUF001 - look-alikes
"""An end of a text that may yet become a citation, or be trailing space."""


class CitationChecker:
    """Takes a text in pieces and gives it in pieces in which every citation is one of a source.

    A citation is a number, or several with commas, in brackets: ``[1]``, ``[1, 3]``. The numbers from 1 to
    ``sources`` stay; any other is taken out, with the space before it where nothing stays in the brackets. What may
    become a citation is held back until it is one or is none. The text as a whole does not depend on where it was cut;
    space at its beginning and end is left out.
    """

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._held = ""
        self._begun = False
        self._used: dict[int, None] = {}
        self._removed: set[int] = set()

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers in the text so far, in the order of their first use."""
        return tuple(self._used)

    @property
    def removed(self) -> tuple[int, ...]:
        """The numbers that cite nothing and were taken out, in ascending order."""
        return tuple(sorted(self._removed))

    def feed(self, piece: str) -> str:
        """What can be shown now; may be nothing."""
        return self._show(piece, is_last=False)

    def finish(self) -> str:
        """The rest of the text."""
        return self._show("", is_last=True)

    def _show(self, piece: str, *, is_last: bool) -> str:
        text = self._held + piece
        while (checked := _CITATION.sub(self._check, text)) != text:  # what is taken out may join what is around it
            text = checked
        if not self._begun:
            text = text.lstrip()
        found = _UNFINISHED.search(text)
        at = found.start() if found and not is_last else len(text.rstrip())
        shown, self._held = text[:at], text[at:]
        self._begun = self._begun or bool(shown)
        for match in _CITATION.finditer(shown):
            self._used.update(dict.fromkeys(_numbers(match[1])))
        return shown

    def _check(self, found: re.Match[str]) -> str:
        numbers = _numbers(found[1])
        kept = [number for number in numbers if 1 <= number <= self._sources]
        self._removed.update(set(numbers) - set(kept))
        if not kept:
            return ""
        before = found[0][: len(found[0]) - len(found[0].lstrip())]
        return f"{before}[{', '.join(map(str, kept))}]"


def _numbers(text: str) -> list[int]:
    return [int(digits[:_LONGEST]) for digits in re.findall(r"[0-9]+", text)]
