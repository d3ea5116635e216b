"""The sections of ``bench gpu`` that measure whole paths: JPEG bytes to vectors, ONNX Runtime, and Triton."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import numpy as np

from vlmsearch.bench.gpu.onnx import measure_onnx
from vlmsearch.bench.photographs import draw_photographs
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.inputs import to_pixels

if TYPE_CHECKING:
    from vlmsearch.bench.gpu.jobs import Say
    from vlmsearch.models.recipe import Recipe

Json = dict[str, object]
_DIFFERENT, _REPEATED = 128, 32
_ON_CPU = 1024
_TEXTS = 2048
_ITEMS = {"images": 64, "texts": 256}
_CONCURRENCY = (1, 4, 8, 16, 32)
_SECONDS = 3.0
Decode = Literal["cpu", "gpu"]


def image_paths(bundle: Bundle, recipe: Recipe, say: Say) -> Json:
    """From JPEG bytes in memory to vectors on the host, with each stage by itself."""
    from vlmsearch.bench.gpu.images import measure_images
    from vlmsearch.tensorrt.builder.engines import ensure_engine
    from vlmsearch.tensorrt.engine.engine import Engine
    from vlmsearch.tensorrt.engine.plans import read_plan
    from vlmsearch.tensorrt.engine.runtime import this_machine

    if bundle.preprocess is None:
        raise ConfigError(f"{bundle.name} has no image tower")
    jpegs = draw_photographs(_DIFFERENT) * _REPEATED
    plan = ensure_engine(bundle, "image", precision="fp16", recipe=recipe)
    with Engine(read_plan(plan, here=this_machine(0))) as engine:
        found = measure_images(engine, bundle.preprocess, jpegs)
    say(f"{bundle.name}: {found.end_to_end:.0f} images/s from JPEG bytes, limited by {found.limit}")
    return {"model": bundle.name, "engine": "fp16", **found.to_json()}


def encoder_path(bundle: Bundle, say: Say) -> Json:
    """``tensorrt:`` as users open it: how near it is to ``onnx:``, and what it does where memory is short."""
    from vlmsearch.bench.gpu.encoder import measure_encoder

    texts = [text.decode() for text in _some_texts(64)]
    found = measure_encoder(f"{bundle.folder}/", draw_photographs(64), texts, precision="fp16")
    said = ", ".join(f"{name} {cosine:.6f}" for name, cosine in found.least_cosine.items())
    say(f"{found.url}: least cosine to ONNX Runtime {said}; holds {found.memory_bytes / 2**20:.0f} MiB")
    for short in found.short:
        fate = short.refused or f"batches of {short.max_batch}, least cosine to the above {short.least_cosine:.6f}"
        say(f"with {short.free_bytes / 2**20:.0f} MiB free: {fate}")
    return {"model": bundle.name, **found.to_json()}


def _some_texts(count: int) -> list[bytes]:
    return [f"a photograph of number {number} in the snow, with two dogs".encode() for number in range(count)]


def onnx_path(bundle: Bundle, say: Say) -> Json:
    """``onnx:`` with ``device=cuda:0`` in float32 and FP16."""
    if bundle.preprocess is None:
        raise ConfigError(f"{bundle.name} has no image tower")
    pixels = np.stack([to_pixels(jpeg, bundle.preprocess) for jpeg in draw_photographs(16)])
    with OnnxEncoder(f"{bundle.folder}/", precision="fp32") as encoder:
        reference = encoder.run_images(bundle, pixels)
    timings = measure_onnx(bundle, pixels, reference)
    for timing in timings:
        say(f"{timing.contender} B={timing.batch}: {timing.images_per_second:.0f} images/s")
    return {"model": bundle.name, "rows": [timing.to_json() for timing in timings]}


def serving_paths(bundle: Bundle, say: Say) -> Json:
    """The ensemble on a real Triton, beside the same engines in this process: images decoded on either side, texts."""
    from vlmsearch.bench.gpu.serving import measure_serving
    from vlmsearch.encoders.tensorrt import TensorRTEncoder
    from vlmsearch.tensorrt.builder.engines import ensure_engine

    for tower in bundle.towers:
        ensure_engine(bundle, tower, precision="fp16")
    location, jpegs = f"{bundle.folder}/", draw_photographs(_DIFFERENT)
    texts = _some_texts(_TEXTS)
    found: Json = {"model": bundle.name, "engine": "fp16", "cpu_cores": os.cpu_count()}
    runs: tuple[tuple[str, Literal["images", "texts"], Decode, list[bytes], int], ...] = (
        ("images, decoded on the GPU", "images", "gpu", jpegs * _REPEATED, 1),
        ("images, decoded on the GPU, 2 instances", "images", "gpu", jpegs * _REPEATED, 2),
        ("images, decoded on the GPU, 3 instances", "images", "gpu", jpegs * _REPEATED, 3),
        ("images, decoded on the CPU", "images", "cpu", (jpegs * _REPEATED)[:_ON_CPU], 1),
        ("texts", "texts", "cpu", texts, 1),
        ("texts, 2 instances", "texts", "cpu", texts, 2),
    )
    for name, kind, decode, data, instances in runs:
        with TensorRTEncoder(location, precision="fp16", decode=decode) as encoder:
            served = measure_serving(
                location,
                encoder,
                data,
                kind=kind,
                items=_ITEMS[kind],
                concurrency=_CONCURRENCY,
                seconds=_SECONDS,
                precision="fp16",
                decode=decode,
                instances=instances,
                max_batch_size=256,
            )
        best = served.best
        say(
            f"{name}: {best.items_per_second:.0f}/s at concurrency {best.concurrency}, {served.share:.2f} of "
            f"{served.in_process:.0f}/s in process, p99 {1000 * best.p99:.0f} ms"
        )
        found[name] = served.to_json()
    return found
