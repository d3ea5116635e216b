"""Texts of all kinds, to compare tokenizers on."""

from __future__ import annotations

import random

from vlmsearch.build.data import sentences

_RANGES = (
    (0x21, 0x7F), (0xA1, 0x250), (0x300, 0x340), (0x370, 0x400), (0x5D0, 0x5EB), (0x620, 0x64B), (0x900, 0x950),
    (0xE01, 0xE3B), (0x3041, 0x3097), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F300, 0x1F650),
)  # fmt: skip
_PIECES = (
    "it's", "don't", "we'll", "I'd", "they've", "he's", "you're", "O'Brien's", "rock'n'roll", "3.14", "1,000,000",
    "50%", "$9.99", "2026-11-20", "C++", "e-mail", "user@example.org", "https://example.org/a?b=c&d=%20", "<b>bold</b>",
    "&amp;", "&lt;", "<|endoftext|>", "[CLS]", "[SEP]", "[MASK]", "über", "été", "naïve", "Straße", "Ångström",
    "e\u0301", "你好", "日本語", "한국어", "русский", "عربي", "שלום", "😀", "👍🏽",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "🇩🇪", "\u2764\ufe0f", "...", "…", "—", "“quoted”", "\ufb01ne", "½",
    "\u2163", "H₂O", "!!!???", "#tag", "@name", "_under_score_", "x=y+z*2;", "\u200b", "\ufeff", "\x07", "\x7f",
)  # fmt: skip
_FIXED = (
    "", " ", "\n", "\t\t", "a", "A", "?", "é", "😀", "it's", "don't", "DON'T", "\u00a0", " ".join(["word"] * 500),
    " ".join(f"w{i}" for i in range(500)), "x" * 3000, "😀" * 300,
)  # fmt: skip


def odd_texts(count: int) -> list[str]:
    """Different texts: sentences, contractions, scripts, emoji, markup, blanks, very long ones; always the same."""
    rng, known = random.Random(1), sentences()
    letters = [code for first, last in _RANGES for code in range(first, last)]
    words = " ".join(known).split()
    found = dict.fromkeys(_FIXED)
    while len(found) < count:
        parts = [rng.choice(words) for _ in range(rng.randrange(1, 25))]
        for _ in range(rng.randrange(4)):
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(_PIECES))
        if rng.random() < 0.2:
            parts.append("".join(chr(rng.choice(letters)) for _ in range(rng.randrange(1, 12))))
        text = rng.choice((" ", " ", " ", "  ", "", "\n", "\u00a0")).join(parts)
        found[rng.choice((str, str, str.upper, str.title))(text)] = None
    return list(found)[:count]
