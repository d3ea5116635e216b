"""Proof that a bundle computes what its checkpoint does, and the figures that go into ``bundle.json``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.data import CALIBRATION_SEED, Samples, sentences
from vlmsearch.building.inputs import Feeds, image_feeds, pair_feeds, pixel_feeds, row_cosines, run, text_feeds
from vlmsearch.building.pairs import LabelledPairs
from vlmsearch.building.quantize import Drift, Report
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.errors import ConfigError, InvalidInputError, MissingDependencyError, VlmsearchError, one_line
from vlmsearch.media.images import Preprocess, open_image
from vlmsearch.models.bundle import TextInput, Tower
from vlmsearch.models.inputs import lower_case, prompted, to_pixels, token_arrays, token_rows
from vlmsearch.models.recipe import Gates, RerankerGates
from vlmsearch.models.tokenizers import no_panics
from vlmsearch.types import ImageSource, Role

if TYPE_CHECKING:
    from vlmsearch.building.torch import Reference

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
_SIZES = ((640, 480), (333, 500), (1024, 512), (500, 375), (180, 200), (480, 360), (700, 700), (301, 299))


@dataclass(frozen=True)
class Check:
    """A figure and the gate that it must reach, a minimum or, if ``is_maximum``, a maximum; None for no gate."""

    name: str
    value: float
    gate: float | None = None
    is_maximum: bool = False

    @property
    def passed(self) -> bool:
        """Return whether the gate is reached."""
        return self.gate is None or (self.value <= self.gate if self.is_maximum else self.value >= self.gate)


def verify_vectors(tower: Tower, model: bytes, feeds: Feeds, reference: Reference, gates: Gates) -> Check:
    """Return the least cosine between a float32 model's vectors and the reference's, on 64 images or 256 texts."""
    vectors, _ = run(model, feeds)
    if tower == "image":
        expected = [reference.images(batch["pixels"].astype(np.uint8)) for batch in feeds.batches]
    else:
        expected = [
            reference.texts(batch["input_ids"].astype(np.int32), batch["attention_mask"].astype(np.int32))
            for batch in feeds.batches
        ]
    cosines = row_cosines(vectors[feeds.order], np.concatenate(expected))
    return Check(f"{tower}.fp32.cosine", float(cosines.min()), gates.float32)


def verify_images(
    model: bytes, folder: Path, preprocess: Preprocess, pictures: Sequence[ImageSource], reference: Reference,
    gates: Gates,
) -> list[Check]:  # fmt: skip
    """Preprocessing against transformers' image processor in levels of 255, and the way from JPEG bytes to vectors."""
    from vlmsearch.building.torch import image_processor

    processor = image_processor(folder)
    files = _photographs(pictures)
    images = [open_image(data) for data in files]
    expected = [
        np.asarray(processor(image, do_rescale=False, do_normalize=False)["pixel_values"][0]) for image in images
    ]
    pixels = [preprocess.apply(image) for image in images]
    worst = max(float(np.abs(a.transpose(1, 2, 0) - b.astype(np.float64)).max()) for a, b in zip(expected, pixels))
    values = np.stack([np.asarray(processor(image)["pixel_values"][0], np.float32) for image in images])
    vectors, _ = run(model, pixel_feeds(np.stack([to_pixels(data, preprocess) for data in files])))
    cosines = row_cosines(vectors, reference.values(values))
    return [
        Check("pixels.difference", worst, float(gates.pixels), is_maximum=True),
        Check("jpeg.cosine", float(cosines.min()), gates.jpeg),
    ]


def verify_tokens(folder: Path, form: TextInput, tokenizer: Tokenizer) -> Check:
    """Return how many of 2,000 texts, with each prompt, get other ids than from the checkpoint's own tokenizer."""
    peer = _their_tokenizer(folder)
    if form.lower:
        lower_case(peer.backend_tokenizer)
    texts = tokenizer_cases(TOKENISED)
    different = 0
    roles: tuple[Role, ...] = ("document",) if form.query == form.document else ("document", "query")
    for role in roles:
        given = prompted(texts, form, role)
        padding = "max_length" if form.fill else False
        expected = peer(given, truncation=True, max_length=form.max_tokens, padding=padding)["input_ids"]
        rows = token_rows(texts, form, tokenizer, role)
        if form.fill:  # where padding is seen, it has to be the same
            rows = token_arrays(rows, form)[0].tolist()
        different += sum(row != list(ids) for row, ids in zip(rows, expected))
    return Check("tokens.different", float(different), 0.0, is_maximum=True)


def verify_pairs(folder: Path, tokenizer: Tokenizer, max_tokens: int) -> Check:
    """Return how many of 2,000 pairs get other ids or types than from the tokenizer in transformers."""
    peer = _their_tokenizer(folder)
    texts = tokenizer_cases(TOKENISED)
    pairs = list(zip(texts, [*texts[7:], *texts[:7]]))
    expected = peer(*map(list, zip(*pairs)), truncation="longest_first", max_length=max_tokens, padding=False)
    encodings = tokenizer.encode_batch(pairs)
    types = expected.get("token_type_ids") or [encoding.type_ids for encoding in encodings]  # some models have none
    rows = zip(encodings, expected["input_ids"], types)
    different = sum(encoding.ids != list(ids) or encoding.type_ids != list(types) for encoding, ids, types in rows)
    return Check("tokens.different", float(different), 0.0, is_maximum=True)


def _their_tokenizer(folder: Path) -> Any:
    """Return the checkpoint's own tokenizer in transformers."""
    import transformers

    try:
        with no_panics(str(folder)):
            return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except VlmsearchError:
        raise
    except ImportError as exc:
        raise MissingDependencyError(
            f"{folder}: proving its token ids takes its own tokenizer in transformers, which needs more than is "
            "installed: pip install sentencepiece protobuf"
        ) from exc
    except Exception as exc:
        raise ConfigError(f"transformers cannot read the tokenizer of {folder}: {one_line(exc)}") from exc


def verify_logits(
    model: bytes, checkpoint: Checkpoint, tokenizer: Tokenizer, pairs: LabelledPairs, gates: RerankerGates
) -> Check:
    """Return the greatest difference between a float32 model's numbers and transformers', on 256 pairs."""
    from vlmsearch.building.torch import CrossEncoderReference

    texts = tokenizer_cases(TEXTS // 2)
    odd = list(zip(texts, texts[::-1]))
    feeds = pair_feeds([*pairs.some(TEXTS // 2).texts, *odd], tokenizer, checkpoint.pad)
    logits, _ = run(model, feeds)
    reference = CrossEncoderReference(checkpoint.folder)
    expected = np.concatenate([reference.logits(batch) for batch in feeds.batches])
    return Check("fp32.difference", float(np.abs(logits[feeds.order] - expected).max()), gates.float32, is_maximum=True)


def drift_checks(tower: Tower, precision: str, drift: Drift, gates: Gates) -> list[Check]:
    """Return the figures of a lower precision against float32."""
    gate, name = gates.tower(tower), f"{tower}.{precision}"
    return [
        Check(f"{name}.mean_cosine", drift.mean_cosine, gate.mean_cosine),
        Check(f"{name}.min_cosine", drift.min_cosine),
        Check(f"{name}.overlap", drift.overlap, gate.overlap),
    ]


def _photographs(pictures: Sequence[ImageSource]) -> list[bytes]:
    """JPEG files of many shapes: drawn scenes, and eight of the given pictures."""
    drawn = [_jpeg(_shaped(make_scene(CALIBRATION_SEED - 1 - i), size)) for i, size in enumerate(_SIZES)]
    for picture in pictures[:8]:
        try:
            drawn.append(_jpeg(open_image(picture)))
        except InvalidInputError:
            continue  # a damaged one among the user's own
    return drawn


def _shaped(scene: Scene, size: tuple[int, int]) -> Image.Image:
    side = max(size)
    left, top = (side - size[0]) // 2, (side - size[1]) // 2
    return scene.draw(side).crop((left, top, left + size[0], top + size[1]))


def _jpeg(image: Image.Image) -> bytes:
    out = BytesIO()
    image.save(out, "JPEG", quality=92)
    return out.getvalue()


def tower_feeds(
    checkpoint: Checkpoint, tower: Tower, samples: Samples, form: TextInput, tokenizer: Tokenizer, report: Report
) -> Feeds:
    """Return what a tower takes of some samples."""
    if tower == "text" or checkpoint.preprocess is None:
        return text_feeds(samples.texts, form, tokenizer)
    report("decoding images", 0, 1)
    return image_feeds(samples.pictures, checkpoint.preprocess)
