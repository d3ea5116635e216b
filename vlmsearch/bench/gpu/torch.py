"""Towers on PyTorch on a GPU, as fast as PyTorch makes them: what engines are compared with."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import torch
import transformers

from vlmsearch.bench.gpu.jobs import run_jobs
from vlmsearch.bench.gpu.models import SIZES
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models.bundle import Tower
from vlmsearch.models.recipe import find_recipe

BATCHES = (1, 32, 256)
MODE = "max-autotune"
_END = 49407
_ROUNDS, _RUNS, _WARM_UP = 7, 20, 5
_IMAGES, _TEXTS = transformers.CLIPVisionModelWithProjection, transformers.CLIPTextModelWithProjection


@dataclass(frozen=True)
class TorchTiming:
    """Batches of one size in float16, queued back to back; ``compile_seconds`` went before the first."""

    model: str
    tower: Tower
    batch: int
    mode: str
    batch_ms: float
    compile_seconds: float

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        return {**asdict(self), "items_per_second": round(self.batch * 1000 / self.batch_ms, 1)}


class _Tower(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model


class _Images(_Tower):
    """From pixels, uint8 (n, size, size, 3), to unit vectors: what the engines compute."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        values = pixels.permute(0, 3, 1, 2).half() / 127.5 - 1.0
        return torch.nn.functional.normalize(self.model(pixel_values=values).image_embeds.float(), dim=-1)


class _Texts(_Tower):
    """From token ids, int32 (n, tokens), to unit vectors."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(self.model(input_ids=ids).text_embeds.float(), dim=-1)


class _TorchSentences(_Tower):
    """From token ids, int32 (n, tokens), all of them seen, to unit vectors: the mean over tokens."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        seen = torch.ones_like(ids)
        rows = self.model(input_ids=ids, attention_mask=seen).last_hidden_state.float()
        weights = seen.unsqueeze(-1).float()
        return torch.nn.functional.normalize((rows * weights).sum(1) / weights.sum(1), dim=-1)


def compare_torch(
    models: Sequence[str], gpus: Sequence[int], say: Callable[[str], None]
) -> Iterator[dict[str, object]]:
    """What torch.compile takes for all towers and batch sizes, each in a process of its own, one at a time on a GPU.

    Gives the report anew after each of them, so that what was measured is kept however it ends.
    """
    if not torch.cuda.is_available():
        raise ModelUnavailableError(f"PyTorch {torch.__version__} finds no NVIDIA GPU")
    towers: list[tuple[str, Tower]] = [(name, tower) for name in models for tower in towers_of(name)]
    commands = {
        f"torch {name} {tower} {batch}": [sys.executable, "-m", __name__, name, tower, str(batch)]
        for batch in sorted(BATCHES, reverse=True)
        for name, tower in towers
    }
    rows, failed = [], dict.fromkeys(commands, "it was stopped before")
    for job, outcome in run_jobs(commands, gpus=gpus, report=say):
        del failed[job]
        if outcome.failure:
            failed[job] = outcome.failure
        else:
            rows.append(json.loads(outcome.output.splitlines()[-1]))
        yield {
            "version": torch.__version__,
            "dtype": "float16",
            "attention": "scaled dot-product",
            "rows": sorted(rows, key=lambda row: (row["model"], row["tower"], row["batch"])),
            "failed": failed,
        }


def towers_of(name: str) -> tuple[Tower, ...]:
    """The towers of a model that PyTorch can be measured with."""
    return ("text",) if "minilm" in name else ("image", "text")


def time_torch(name: str, tower: Tower, batch: int) -> TorchTiming:
    """What torch.compile takes for batches of one size: max-autotune, which captures CUDA graphs, attention fused.

    Texts have the recipe's usual length. Weights are random, for demo-clip trained.
    """
    shapes = find_recipe(name).shapes
    model = _model(name, tower)
    model.set_attn_implementation("sdpa")
    if tower == "image":
        size = model.config.image_size
        inputs = torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, device="cuda")
        module: torch.nn.Module = _Images(model)
    else:
        words = model.config.vocab_size
        inputs = torch.randint(1, words, (batch, shapes.text_length[1]), dtype=torch.int32, device="cuda")
        if isinstance(model, _TEXTS):
            inputs[:, -1] = cast("int", model.config.eos_token_id)
            module = _Texts(model)
        else:
            module = _TorchSentences(model)
    module = module.to("cuda", torch.float16).eval()
    compiled = cast("Callable[[torch.Tensor], torch.Tensor]", torch.compile(module, mode=MODE, dynamic=False))
    with torch.inference_mode():
        seconds, milliseconds = _time(compiled, inputs)
    return TorchTiming(name, tower, batch, MODE, round(milliseconds, 4), round(seconds, 1))


def _model(name: str, tower: Tower) -> transformers.PreTrainedModel:
    if name not in SIZES:
        return _small_model(name, tower)
    sizes = SIZES[name]
    width, layers, heads = sizes.image if tower == "image" else sizes.text
    if tower == "image":
        images = transformers.CLIPVisionConfig(
            hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads,
            projection_dim=sizes.dim, patch_size=sizes.patch,
        )  # fmt: skip
        return _IMAGES(images)
    texts = transformers.CLIPTextConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads,
        projection_dim=sizes.dim, bos_token_id=49406, eos_token_id=_END,
    )  # fmt: skip
    return _TEXTS(texts)


def _small_model(name: str, tower: Tower) -> transformers.PreTrainedModel:
    recipe = find_recipe(name)
    if recipe.checkpoint:
        kind = _IMAGES if tower == "image" else _TEXTS
        return kind.from_pretrained(str(recipe.folder / recipe.checkpoint))
    layers = 12 if "l12" in name else 6
    return transformers.BertModel(
        transformers.BertConfig(
            hidden_size=384, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=12
        )
    )


def _time(compiled: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> tuple[float, float]:
    begun = time.perf_counter()
    for _ in range(_WARM_UP):
        compiled(inputs)
    torch.cuda.synchronize()
    seconds, times = time.perf_counter() - begun, []
    for _ in range(_ROUNDS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_RUNS):
            compiled(inputs)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / _RUNS)
    return seconds, statistics.median(times)


if __name__ == "__main__":
    timing = time_torch(sys.argv[1], "image" if sys.argv[2] == "image" else "text", int(sys.argv[3]))
    print(json.dumps(timing.to_json()))
