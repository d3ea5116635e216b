"""How fast a model encodes, beside the installed peers, in one run on one machine.

The contenders take turns, so that whatever else the machine does meets all of them alike; figures are medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from vlmsearch.build.data import passages
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.models.bundle import Bundle, find_bundles
from vlmsearch.models.inputs import Pixels, to_pixels

BATCH = 32
LONG_TOKENS = 256
"""A model that reads so many tokens is timed with long texts, too."""
_LONG_WORDS = 180
OURS = "vlmsearch int8"
_PRECISIONS: tuple[Literal["int8", "fp32"], ...] = ("int8", "fp32")
Contender = Callable[[], object]
Report = Callable[[str, int, int], None]
"""Takes a task's name, how many turns of it are done, and how many there are."""


@dataclass(frozen=True)
class EncodeTiming:
    """How long one contender took for a task, each round in seconds."""

    task: str
    contender: str
    items: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Items a second, in the median round."""
        return self.items / statistics.median(self.seconds)


@dataclass(frozen=True)
class Setting:
    """What every task of a run shares: the model, its checkpoint, cores, rounds."""

    bundle: Bundle
    checkpoint: Path
    threads: int
    rounds: int
    report: Report

    def ours(self, stack: ExitStack) -> list[tuple[str, OnnxEncoder]]:
        """Our own encoder in each precision, by the contender's name, closed with ``stack``."""
        folder = f"{self.bundle.folder}/"
        return [
            (
                f"vlmsearch {precision}",
                stack.enter_context(OnnxEncoder(folder, precision=precision, threads=self.threads, batch_size=BATCH)),
            )
            for precision in _PRECISIONS
        ]


def open_setting(
    model: str, checkpoint: Path | None, *, threads: int, rounds: int, report: Report | None = None
) -> Setting:
    """Return the model and its checkpoint, and PyTorch on the same number of cores.

    ConfigError if they do not belong.
    """
    try:
        import torch

        from vlmsearch.build.fetch import checkpoint_of
    except ImportError as exc:
        raise MissingDependencyError(f"the peers need {exc.name}: pip install 'vlmsearch[build]'") from exc
    bundles = find_bundles(model)
    if len(bundles) != 1:
        raise ConfigError(f"{model} is several models; name one of {', '.join(each.name for each in bundles)}")
    bundle = bundles[0]
    folder = checkpoint_of(bundle, checkpoint)
    torch.set_num_threads(threads)
    return Setting(bundle, folder, threads, rounds, report or _silent)


def _silent(task: str, done: int, total: int) -> None:
    """Report nothing."""


def time_texts(setting: Setting, texts: Sequence[str], task: str = "texts") -> list[EncodeTiming]:
    """Texts to vectors."""
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {
            name: partial(encoder.encode_texts, texts) for name, encoder in setting.ours(stack)
        }
        if setting.bundle.preprocess is None:
            contenders |= _sentence_transformers(setting, texts, stack)
        else:
            contenders["transformers float32"] = _clip_texts(setting, texts)
        return _race(task, contenders, len(texts), setting)


def time_pixels(setting: Setting, images: Sequence[bytes]) -> list[EncodeTiming]:
    """Images that are decoded and resized already, to vectors."""
    from vlmsearch.build.torch import load_reference

    preprocess = setting.bundle.preprocess
    if preprocess is None:
        raise ConfigError(f"{setting.bundle.name} encodes no images")
    pixels = np.stack([to_pixels(data, preprocess) for data in images])
    batches = [pixels[i : i + BATCH] for i in range(0, len(pixels), BATCH)]
    reference = load_reference(setting.checkpoint)
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {
            name: partial(_run_all, encoder, batches) for name, encoder in setting.ours(stack)
        }
        contenders["transformers float32"] = lambda: [reference.images(batch) for batch in batches]
        return _race("pixels to vectors", contenders, len(pixels), setting)


def time_files(setting: Setting, images: Sequence[bytes]) -> list[EncodeTiming]:
    """JPEG files in memory to vectors; transformers' processor and model take turns in a loop."""
    from vlmsearch.build.torch import image_processor, load_reference

    if setting.bundle.preprocess is None:
        raise ConfigError(f"{setting.bundle.name} encodes no images")
    reference = load_reference(setting.checkpoint)
    processor = image_processor(setting.checkpoint)

    def loop() -> None:
        for start in range(0, len(images), BATCH):
            opened = [Image.open(BytesIO(data)).convert("RGB") for data in images[start : start + BATCH]]
            values = processor(opened)["pixel_values"]
            reference.values(np.stack([np.asarray(value, np.float32) for value in values]))

    with ExitStack() as stack:
        contenders: dict[str, Contender] = {
            name: partial(encoder.encode_images, images) for name, encoder in setting.ours(stack)
        }
        contenders["transformers processor + model"] = loop
        return _race("JPEG to vectors", contenders, len(images), setting)


def long_texts(count: int) -> list[str]:
    """Return ``count`` texts of 180 words, made of the project's passages: as long as the abstract of an article."""
    words = [word for passage in passages() for word in passage.text.split()]
    starts = range(0, count * _LONG_WORDS, _LONG_WORDS)
    return [" ".join(words[(start + i) % len(words)] for i in range(_LONG_WORDS)) for start in starts]


def ratios(timings: Sequence[EncodeTiming]) -> dict[str, float]:
    """Return how many times faster our INT8 is than each other contender at its task."""
    ours = {timing.task: timing.rate for timing in timings if timing.contender == OURS}
    return {
        f"{timing.task}: {OURS} / {timing.contender}": round(ours[timing.task] / timing.rate, 2)
        for timing in timings
        if timing.contender != OURS
    }


def _run_all(encoder: OnnxEncoder, batches: Sequence[Pixels]) -> None:
    for batch in batches:
        encoder.run_images(encoder.bundles[0], batch)


def _race(task: str, contenders: Mapping[str, Contender], items: int, setting: Setting) -> list[EncodeTiming]:
    """Everyone's times, in turns, after one turn each that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    turns = [turn for _ in range(setting.rounds + 1) for turn in contenders.items()]
    for done, (name, work) in enumerate(turns):
        setting.report(task, done, len(turns))
        begun = time.perf_counter()
        work()
        seconds[name].append(time.perf_counter() - begun)
    return [EncodeTiming(task, name, items, tuple(times[1:])) for name, times in seconds.items()]


def _sentence_transformers(setting: Setting, texts: Sequence[str], stack: ExitStack) -> dict[str, Contender]:
    """sentence-transformers in float32, and with its own ONNX INT8 back end where that is installed."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return {}
    plain: Any = SentenceTransformer(str(setting.checkpoint), device="cpu", trust_remote_code=False)
    found: dict[str, Contender] = {
        "sentence-transformers float32": lambda: plain.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
    }
    quantised = _quantised_peer(setting, stack)
    if quantised is not None:
        found["sentence-transformers ONNX int8"] = lambda: quantised.encode(
            list(texts), batch_size=BATCH, show_progress_bar=False
        )
    return found


def _quantised_peer(setting: Setting, stack: ExitStack) -> Any:
    """sentence-transformers over its own dynamically quantised export; None where optimum is not installed."""
    try:
        from optimum.onnxruntime import ORTModelForFeatureExtraction  # type: ignore[import-not-found,unused-ignore] # noqa: F401
        from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

        from vlmsearch._util.ort import ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = setting.threads
    settings = {"provider": "CPUExecutionProvider", "session_options": options}
    model: Any = SentenceTransformer(
        str(setting.checkpoint),
        backend="onnx",
        device="cpu",
        trust_remote_code=False,
        model_kwargs={**settings, "export": True},
    )
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    model.save_pretrained(folder)
    export_dynamic_quantized_onnx_model(model, "avx512_vnni", folder)
    file = "model_qint8_avx512_vnni.onnx"
    return SentenceTransformer(
        folder,
        backend="onnx",
        device="cpu",
        trust_remote_code=False,
        model_kwargs={**settings, "file_name": f"onnx/{file}"},
    )


def _clip_texts(setting: Setting, texts: Sequence[str]) -> Contender:
    """Transformers' tokenizer and text tower, in a loop over batches of like lengths."""
    from transformers import AutoTokenizer

    from vlmsearch.build.torch import load_reference

    tokenizer = AutoTokenizer.from_pretrained(setting.checkpoint, trust_remote_code=False)
    reference = load_reference(setting.checkpoint)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    ordered, form = sorted(texts, key=len), setting.bundle.text
    padding = "max_length" if form.fill else True

    def loop() -> None:
        for start in range(0, len(ordered), BATCH):
            part = ordered[start : start + BATCH]
            batch = tokenizer(
                part, truncation=True, max_length=form.max_tokens, padding=padding, return_attention_mask=True,
                return_tensors="np",
            )  # fmt: skip
            reference.texts(batch["input_ids"].astype(np.int32), batch["attention_mask"].astype(np.int32))

    return loop
