"""How fast a model encodes on a CPU, beside sentence-transformers and transformers.

The contenders take turns in one run on one machine. Figures are medians.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image

from benchmarks.common import print_figures, rounds_option
from vlmsearch._util.ort import ort
from vlmsearch.bench.encode import (
    BATCH,
    EncodeTask,
    EncodeTiming,
    find_bundle,
    measure,
    open_encoders,
    pixel_batches,
)
from vlmsearch.building.fetch import checkpoint_of
from vlmsearch.building.progress import steps
from vlmsearch.building.torch import image_processor, load_reference
from vlmsearch.cli.bench.encode import TIMING_COLUMNS, encode_tasks, timing_rows
from vlmsearch.models.bundle import Bundle

Contender = Callable[[], object]


@click.command()
@click.argument("model")
@click.option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR",
              help="The checkpoint that it was built from.  [default: the recipe's]")  # fmt: skip
@click.option("--texts", type=click.Path(path_type=Path), metavar="FILE", help="Lines of text, or a CSV of sentences.")
@click.option("--images", type=click.Path(path_type=Path), metavar="DIR", help="A folder of JPEG files.")
@click.option("--count", default=256, show_default=True, type=click.IntRange(1), help="How many images or texts.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Cores that everyone may use.")
@rounds_option
def main(
    model: str, checkpoint: Path | None, texts: Path | None, images: Path | None, count: int, threads: int, rounds: int
) -> None:
    """Time MODEL beside the installed peers, at what `vlmsearch bench encode` measures."""
    bundle = find_bundle(model)
    folder = checkpoint_of(bundle, checkpoint)
    torch.set_num_threads(threads)
    timings: list[EncodeTiming] = []
    with steps(f"timing {model}") as report, ExitStack() as stack:
        encoders = open_encoders(bundle, threads, stack)
        for task in encode_tasks(bundle, encoders, texts, images, count):
            peers = _peers(task, bundle, folder, threads, stack)
            timings += measure(replace(task, contenders={**task.contenders, **peers}), rounds=rounds, report=report)
    title = f"{bundle.name}, {threads} threads, {rounds} rounds"
    print_figures(title, TIMING_COLUMNS, timing_rows(timings), left=2)


def _peers(task: EncodeTask, bundle: Bundle, checkpoint: Path, threads: int, stack: ExitStack) -> dict[str, Contender]:
    inputs: Any = task.inputs
    if task.name == "pixels to vectors" and bundle.preprocess is not None:
        batches, reference = pixel_batches(bundle.preprocess, inputs), load_reference(checkpoint)
        return {"transformers float32": lambda: [reference.images(batch) for batch in batches]}
    if task.name == "JPEG to vectors":
        return {"transformers processor + model": _processor(checkpoint, inputs)}
    if bundle.preprocess is not None:
        return {"transformers float32": _clip_texts(bundle, checkpoint, inputs)}
    return _sentence_transformers(checkpoint, inputs, threads, stack)


def _processor(checkpoint: Path, images: Sequence[bytes]) -> Contender:
    """Return transformers' processor and model, in turns in a loop."""
    reference, processor = load_reference(checkpoint), image_processor(checkpoint)

    def loop() -> None:
        for start in range(0, len(images), BATCH):
            opened = [Image.open(BytesIO(data)).convert("RGB") for data in images[start : start + BATCH]]
            values = processor(opened)["pixel_values"]
            reference.values(np.stack([np.asarray(value, np.float32) for value in values]))

    return loop


def _clip_texts(bundle: Bundle, checkpoint: Path, texts: Sequence[str]) -> Contender:
    """Return transformers' tokenizer and text tower, in a loop over batches of like lengths."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    reference = load_reference(checkpoint)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    ordered, form = sorted(texts, key=len), bundle.text
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


def _sentence_transformers(
    checkpoint: Path, texts: Sequence[str], threads: int, stack: ExitStack
) -> dict[str, Contender]:
    """Return sentence-transformers in float32, and with its own ONNX INT8 back end if that is installed."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return {}
    models: dict[str, Any] = {
        "sentence-transformers float32": SentenceTransformer(str(checkpoint), device="cpu", trust_remote_code=False)
    }
    quantised = _quantised(checkpoint, threads, stack)
    if quantised is not None:
        models["sentence-transformers ONNX int8"] = quantised
    given = list(texts)
    return {
        name: lambda model=model: model.encode(given, batch_size=BATCH, show_progress_bar=False)  # type: ignore[misc]
        for name, model in models.items()
    }


def _quantised(checkpoint: Path, threads: int, stack: ExitStack) -> Any:
    """Return sentence-transformers over its dynamically quantised export; None where optimum is not installed."""
    try:
        from optimum.onnxruntime import ORTModelForFeatureExtraction  # type: ignore[import-not-found,unused-ignore] # noqa: F401
        from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    settings = {"provider": "CPUExecutionProvider", "session_options": options}
    plain: dict[str, Any] = {"backend": "onnx", "device": "cpu", "trust_remote_code": False}
    model: Any = SentenceTransformer(str(checkpoint), model_kwargs={**settings, "export": True}, **plain)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    model.save_pretrained(folder)
    export_dynamic_quantized_onnx_model(model, "avx512_vnni", folder)
    file = "onnx/model_qint8_avx512_vnni.onnx"
    return SentenceTransformer(folder, model_kwargs={**settings, "file_name": file}, **plain)


if __name__ == "__main__":
    main()
