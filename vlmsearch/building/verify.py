"""Checks of a bundle against its checkpoint alone, and the samples of all checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.data import Samples, sentences
from vlmsearch.building.inputs import Feeds, image_feeds, text_feeds
from vlmsearch.building.proof import preprocess_name, recorded_pixels, sampled_pixels
from vlmsearch.building.quantize import Drift, Report
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import TextInput, Tower
from vlmsearch.models.inputs import lower_case, prompted, token_arrays, token_rows
from vlmsearch.models.recipe import Gates
from vlmsearch.models.tokenizers import TextTokenizer, no_panics, read_tokenizer
from vlmsearch.types import Role

_RANGES = (
    (0x21, 0x7F), (0xA1, 0x250), (0x300, 0x340), (0x370, 0x400), (0x400, 0x530), (0x531, 0x588), (0x5D0, 0x5EB),
    (0x620, 0x64B), (0x710, 0x750), (0x780, 0x7B2), (0x7C0, 0x7F0), (0x900, 0x950), (0x985, 0x9E0), (0xA05, 0xA75),
    (0xA85, 0xAE0), (0xB05, 0xB60), (0xB85, 0xBD0), (0xC05, 0xC60), (0xC85, 0xCE0), (0xD05, 0xD60), (0xD85, 0xDF0),
    (0xE01, 0xE3B), (0xE81, 0xEDE), (0xF40, 0xF6D), (0x1000, 0x1050), (0x10A0, 0x1100), (0x1200, 0x1280),
    (0x13A0, 0x13F5), (0x1401, 0x1480), (0x1681, 0x169B), (0x16A0, 0x16EB), (0x1780, 0x17B4), (0x1820, 0x1878),
    (0x1E00, 0x2000), (0x2801, 0x2900), (0x2C80, 0x2CE4), (0x2D30, 0x2D68), (0x3041, 0x3097), (0x30A1, 0x3100),
    (0x3105, 0x3130), (0x4E00, 0x4F00), (0xA000, 0xA100), (0xA500, 0xA580), (0xA984, 0xA9B3), (0xAC00, 0xAD00),
    (0xFB1D, 0xFB50), (0xFE70, 0xFEFD), (0xFF01, 0xFFEF), (0x10330, 0x1034B), (0x10400, 0x10450), (0x12000, 0x12100),
    (0x1D400, 0x1D500), (0x1F300, 0x1F650),
)  # fmt: skip
"""Letters of more than 40 scripts, compatibility forms, braille and emoji."""
_PIECES = (
    "it's", "don't", "we'll", "I'd", "they've", "he's", "you're", "O'Brien's", "rock'n'roll", "3.14", "1,000,000",
    "50%", "$9.99", "2026-11-20", "C++", "e-mail", "user@example.org", "https://example.org/a?b=c&d=%20", "<b>bold</b>",
    "&amp;", "&lt;", "<|endoftext|>", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<s>", "</s>",
    "<mask>", "über", "été", "naïve", "Straße", "Ångström",
    "e\u0301", "你好", "日本語", "한국어", "русский", "عربي", "שלום", "😀", "👍🏽",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "🇩🇪", "\u2764\ufe0f", "...", "…", "—", "“quoted”", "\ufb01ne", "½",
    "\u2163", "H₂O", "!!!???", "#tag", "@name", "_under_score_", "x=y+z*2;", "\u200b", "\ufeff", "\x07", "\x7f",
)  # fmt: skip
_FIXED = (
    "", " ", "\n", "\t\t", "a", "A", "?", "é", "😀", "it's", "don't", "DON'T", "\u00a0", " ".join(["word"] * 500),
    " ".join(f"w{i}" for i in range(500)), "x" * 3000, "😀" * 300,
)  # fmt: skip


def tokenizer_cases(count: int) -> list[str]:
    """Different texts: sentences, contractions, scripts, emoji, markup, blanks, very long ones; always the same."""
    rng, known = random.Random(1), sentences()
    letters = [code for first, last in _RANGES for code in range(first, last)]
    words = " ".join(known).split()
    texts = dict.fromkeys(_FIXED)
    while len(texts) < count:
        parts = [rng.choice(words) for _ in range(rng.randrange(1, 25))]
        for _ in range(rng.randrange(4)):
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(_PIECES))
        if rng.random() < 0.2:
            parts.append("".join(chr(rng.choice(letters)) for _ in range(rng.randrange(1, 12))))
        text = rng.choice((" ", " ", " ", "  ", "", "\n", "\u00a0")).join(parts)
        texts[rng.choice((str, str, str.upper, str.title))(text)] = None
    return list(texts)[:count]


IMAGES, TEXTS, TOKENISED = 64, 256, 2000
"""Numbers of samples that are compared with transformers."""


@dataclass(frozen=True)
class Check:
    """A figure and the gate that it must reach.

    A gate is a minimum or, if ``is_maximum``, a maximum; None for no gate.
    """

    name: str
    value: float
    gate: float | None = None
    is_maximum: bool = False

    @property
    def passed(self) -> bool:
        """Return whether the gate is reached."""
        return self.gate is None or (self.value <= self.gate if self.is_maximum else self.value >= self.gate)


def verify_split(folder: Path, form: TextInput, tokenizer: TextTokenizer) -> Check:
    """Count the texts that get other ids than from the checkpoint's ``tokenizer.json``.

    There are 2,000 of them, with each prompt. That file cuts, adds special tokens and pads by itself here; a bundle
    does so by its `TextInput`.
    """
    own = read_tokenizer((folder / "tokenizer.json").read_bytes(), str(folder))
    if form.lower:
        lower_case(own)
    own.encode_special_tokens = tokenizer.raw.encode_special_tokens
    own.enable_truncation(form.max_tokens)
    own.no_padding()
    if form.fill:
        own.enable_padding(length=form.fill, pad_id=form.pad)

    def tokenised(given: list[str]) -> list[list[int]]:
        with no_panics(str(folder)):
            return [encoding.ids for encoding in own.encode_batch(given)]

    return token_check("tokens.split_differently", form, tokenizer, tokenised)


def plain_cases(tokenizer: TextTokenizer) -> list[str]:
    """Return up to 2,000 texts.

    Those in which another reader has special tokens, and the tokenizer characters, are left out.
    """
    return [text for text in tokenizer_cases(TOKENISED) if tokenizer.plain(text) == text]


def token_check(
    name: str, form: TextInput, tokenizer: TextTokenizer, peer: Callable[[list[str]], list[list[int]]]
) -> Check:
    """Return how many texts, with each prompt, get other ids than from ``peer``."""
    texts, different = plain_cases(tokenizer), 0
    roles: tuple[Role, ...] = ("document",) if form.query == form.document else ("document", "query")
    for role in roles:
        rows = token_rows(texts, form, tokenizer, role)
        if form.fill:  # where padding is seen, it has to be the same
            rows = token_arrays(rows, form)[0].tolist()
        different += sum(row != list(ids) for row, ids in zip(rows, peer(prompted(texts, form, role))))
    return Check(name, float(different), 0.0, is_maximum=True)


def verify_pixels(preprocess: Preprocess, gates: Gates) -> list[Check]:
    """Compare pixels with those that transformers gave for the same pictures, in levels.

    They are recorded in ``engines/pixels.json``, as `vlmsearch.building.proof.sampled_pixels` picks them. Empty where
    those of another preprocessing are recorded alone.
    """
    recorded = recorded_pixels().get(preprocess_name(preprocess))
    if recorded is None:
        return []
    pixels = np.array(sampled_pixels(preprocess.apply), np.float64)
    worst = float(np.abs(pixels - np.array(recorded, np.float64)).max())
    return [Check("pixels.recorded", worst, float(gates.pixels), is_maximum=True)]


def drift_checks(tower: Tower, precision: str, drift: Drift, gates: Gates) -> list[Check]:
    """Return the figures of a lower precision against float32."""
    gate, name = gates.tower(tower), f"{tower}.{precision}"
    return [
        Check(f"{name}.mean_cosine", drift.mean_cosine, gate.mean_cosine),
        Check(f"{name}.min_cosine", drift.min_cosine),
        Check(f"{name}.overlap", drift.overlap, gate.overlap),
    ]


def tower_feeds(
    checkpoint: Checkpoint, tower: Tower, samples: Samples, form: TextInput, tokenizer: TextTokenizer, report: Report
) -> Feeds:
    """Return what a tower takes of some samples."""
    if tower == "text" or checkpoint.preprocess is None:
        return text_feeds(samples.texts, form, tokenizer)
    report("decoding images", 0, 1)
    return image_feeds(samples.pictures, checkpoint.preprocess)
