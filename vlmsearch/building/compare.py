"""Proof that a bundle computes what transformers does, if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from PIL import Image

from vlmsearch.building.checkpoint import Checkpoint, sentence_modules
from vlmsearch.building.data import CALIBRATION_SEED, sentences
from vlmsearch.building.inputs import Feeds, Model, pair_feeds, pixel_feeds, row_cosines, run
from vlmsearch.building.pairs import LabelledPairs
from vlmsearch.building.verify import TEXTS, Check, plain_cases, token_check, tokenizer_cases
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.errors import ConfigError, InvalidInputError, MissingDependencyError, VlmsearchError, one_line
from vlmsearch.media.images import open_image
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import TextInput, Tower
from vlmsearch.models.inputs import lower_case, to_pixels, token_arrays, token_rows
from vlmsearch.models.recipe import Gates, Prompts, RerankerGates
from vlmsearch.models.tokenizers import TextTokenizer, no_panics
from vlmsearch.types import ImageSource, Role

if TYPE_CHECKING:
    from vlmsearch.building.torch import Reference

_PROMPTED = 10
_SIZES = ((640, 480), (333, 500), (1024, 512), (500, 375), (180, 200), (480, 360), (700, 700), (301, 299))


def verify_vectors(tower: Tower, model: Model, feeds: Feeds, reference: Reference, gates: Gates) -> Check:
    """Return the lowest cosine between the vectors of a float32 model and the reference's.

    It is taken on 64 images or 256 texts.
    """
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
    model: Model, folder: Path, preprocess: Preprocess, pictures: Sequence[ImageSource], reference: Reference,
    gates: Gates,
) -> list[Check]:  # fmt: skip
    """Compare preprocessing with transformers, and the way from JPEG bytes to vectors.

    Pixels are compared in levels of 255.
    """
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


def verify_tokens(folder: Path, form: TextInput, tokenizer: TextTokenizer) -> Check:
    """Count the texts that get other ids than from the checkpoint's own tokenizer.

    There are 2,000 of them, with each prompt.
    """
    peer = _their_tokenizer(folder, tokenizer)
    if form.lower:
        lower_case(peer.backend_tokenizer)
    padding = "max_length" if form.fill else False

    def reference_ids(given: list[str]) -> list[list[int]]:
        rows: list[list[int]] = peer(given, truncation=True, max_length=form.max_tokens, padding=padding)["input_ids"]
        return rows

    return token_check("tokens.different", form, tokenizer, reference_ids)


def verify_prompts(folder: Path, model: Model, form: TextInput, tokenizer: TextTokenizer, gates: Gates) -> list[Check]:
    """Return the lowest cosine of ten queries and ten documents to those of sentence-transformers.

    Prompts that are not those of the checkpoint itself are given to it. Empty where it is not installed, or the
    checkpoint is not one of its own.
    """
    modules = sentence_modules(folder) if (folder / "modules.json").is_file() else None
    if modules is None or not modules.is_plain or find_spec("sentence_transformers") is None:
        return []
    from vlmsearch.building.torch import load_sentence_transformer

    peer, texts = load_sentence_transformer(folder, form.max_tokens), sentences()[:_PROMPTED]
    is_own = modules.prompts == Prompts(form.query.text, form.document.text)
    cosines = []
    for role in get_args(Role):
        ids, mask = token_arrays(token_rows(texts, form, tokenizer, role), form)
        vectors, _ = run(model, Feeds(({"input_ids": ids, "attention_mask": mask},), np.arange(len(texts))))
        encode = peer.encode_query if role == "query" else peer.encode_document
        expected = encode(texts, prompt=None if is_own else form.prompt(role).text, normalize_embeddings=True)
        cosines.append(row_cosines(vectors, expected).min())
    return [Check("prompts.cosine", float(min(cosines)), gates.float32)]


def verify_pairs(folder: Path, tokenizer: TextTokenizer, max_tokens: int) -> Check:
    """Count the pairs that get other ids or types than from transformers, of 2,000."""
    peer = _their_tokenizer(folder, tokenizer)
    texts = plain_cases(tokenizer)
    pairs = list(zip(texts, [*texts[7:], *texts[:7]]))
    expected = peer(*map(list, zip(*pairs)), truncation="longest_first", max_length=max_tokens, padding=False)
    encodings = tokenizer.pairs(pairs)
    types = expected.get("token_type_ids") or [encoding.type_ids for encoding in encodings]  # some models have none
    rows = zip(encodings, expected["input_ids"], types)
    different = sum(encoding.ids != list(ids) or encoding.type_ids != list(types) for encoding, ids, types in rows)
    return Check("tokens.different", float(different), 0.0, is_maximum=True)


def _their_tokenizer(folder: Path, tokenizer: TextTokenizer) -> Any:
    """Return the checkpoint's own tokenizer in transformers, which reads special tokens in texts as ``tokenizer``."""
    import transformers

    try:
        with no_panics(str(folder)):
            return transformers.AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, split_special_tokens=tokenizer.raw.encode_special_tokens
            )
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
    model: Model, checkpoint: Checkpoint, tokenizer: TextTokenizer, pairs: LabelledPairs, gates: RerankerGates
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
