"""Citations in generated text, checked while it comes."""

from __future__ import annotations

import re

from vlmsearch._util.text import CLOSING, OPENING

_MAX_DIGITS = 4000
"""Python reads no number of many more digits."""
_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_TOKEN = re.compile(
    rf"(?P<opening>[{re.escape(OPENING)}])|(?P<closing>[{re.escape(CLOSING)}])|[^{re.escape(OPENING + CLOSING)}]+"
)
_NUMBERS = re.compile(rf"[\d\s,;，、；\u0300-\u036f\u20d0-\u20f0{_INVISIBLE}]+")  # noqa: RUF001 - look-alikes
"""Digits, what may stand between and around them, and what changes at most how they look."""


class CitationChecker:
    """A filter that takes citations of no source out of generated text, piece by piece.

    A citation is a number, or several with commas, in square brackets: ``[1]``, ``[1, 3]``; digits, brackets and commas
    of other scripts and characters that cannot be seen count too. The numbers from 1 to ``sources`` stay; any other is
    taken out, with the space before it where nothing stays in the brackets. What may become a citation is held back
    until it is one or is none. The text as a whole does not depend on where it was cut; space at its beginning and end
    is left out. The time grows with the length of the text.
    """

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self._shown: list[str] = []
        self._space: list[str] = []
        """Space at the end of the text so far, which stays if anything follows."""
        self._open: list[list[str]] = []
        """Text that may become a citation: for each open bracket a list of it and the characters in it."""
        self._begun = False
        self._used: dict[int, None] = {}
        self._removed: set[int] = set()

    @property
    def used(self) -> tuple[int, ...]:
        """Return the numbers in the text so far, in the order of their first use."""
        return tuple(self._used)

    @property
    def removed(self) -> tuple[int, ...]:
        """Return the numbers that cite nothing and were taken out, in ascending order."""
        return tuple(sorted(self._removed))

    def feed(self, piece: str) -> str:
        """Return what can be shown now; may be nothing."""
        for token in _TOKEN.finditer(piece):
            if token["opening"]:
                self._open.append([token[0]])
            elif not self._open:
                self._show(token[0])
            elif token["closing"]:
                self._close(token[0])
            elif _NUMBERS.fullmatch(token[0]):
                self._open[-1].extend(token[0])
            else:
                self._give_up(token[0])
        shown = "".join(self._shown)
        self._shown.clear()
        return shown

    def finish(self) -> str:
        """Return the rest of the text."""
        self._give_up("")
        return self.feed("")

    def _show(self, text: str) -> None:
        """Add text; space only once something follows it."""
        kept = text.rstrip()
        if kept:
            self._shown.append("".join([*self._space, kept]) if self._begun else kept.lstrip())
            self._space.clear()
            self._begun = True
        self._space.extend(text[len(kept) :])

    def _give_up(self, text: str) -> None:
        """Show what was held back, which is not a citation, and the text after it."""
        held = "".join(map("".join, self._open))
        self._open.clear()
        self._show(held + text)

    def _close(self, bracket: str) -> None:
        group = self._open[-1]
        numbers = [int(digits[:_MAX_DIGITS]) for digits in re.findall(r"\d+", "".join(group[1:]))]
        kept = [number for number in numbers if 1 <= number <= self.sources]
        self._removed.update(set(numbers) - set(kept))
        if not numbers:
            self._give_up(bracket)
            return
        self._open.pop()
        if kept:
            self._used.update(dict.fromkeys(kept))
            self._give_up(f"[{', '.join(map(str, kept))}]")  # what is around it cites nothing
            return
        before = self._open[-1] if self._open else self._space
        if before and before[-1].isspace():
            before.pop()
