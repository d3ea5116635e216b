"""CLIP's image tower on PyTorch on a GPU, as fast as PyTorch makes it: what engines are compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import torch
import transformers

from vlmsearch.bench.gpu_models import SIZES, Sizes
from vlmsearch.errors import ModelUnavailableError

_ROUNDS, _RUNS, _WARM_UP = 7, 10, 5


@dataclass(frozen=True)
class TorchTiming:
    """Batches of one size in float16, queued back to back; ``compile_seconds`` went before the first."""

    model: str
    batch: int
    mode: str
    batch_ms: float
    compile_seconds: float

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        return {**asdict(self), "items_per_second": round(self.batch * 1000 / self.batch_ms, 1)}


class _Tower(torch.nn.Module):
    """From pixels, uint8 (n, 224, 224, 3), to unit vectors: what the engines compute."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, layers, heads = sizes.image
        config = transformers.CLIPVisionConfig(
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            patch_size=sizes.patch,
            projection_dim=sizes.dim,
        )
        self.model = transformers.CLIPVisionModelWithProjection(config)
        self.model.set_attn_implementation("sdpa")

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        values = pixels.permute(0, 3, 1, 2).half() / 127.5 - 1.0
        return torch.nn.functional.normalize(self.model(pixel_values=values).image_embeds.float(), dim=-1)


def time_torch(names: Sequence[str], batches: Sequence[int], mode: str = "max-autotune") -> Iterator[TorchTiming]:
    """What torch.compile in ``mode`` takes, with scaled dot-product attention, a graph for each batch size.

    ModelUnavailableError where PyTorch has no GPU.
    """
    if not torch.cuda.is_available():
        raise ModelUnavailableError(f"PyTorch {torch.__version__} finds no NVIDIA GPU")
    for name in names:
        tower = _Tower(SIZES[name]).cuda().half().eval()
        for batch in batches:
            torch.compiler.reset()
            compiled = cast("Callable[[torch.Tensor], torch.Tensor]", torch.compile(tower, mode=mode, dynamic=False))
            pixels = torch.randint(0, 256, (batch, 224, 224, 3), dtype=torch.uint8, device="cuda")
            with torch.inference_mode():
                seconds, milliseconds = _time(compiled, pixels)
            yield TorchTiming(name, batch, mode, round(milliseconds, 4), round(seconds, 1))


def _time(compiled: Callable[[torch.Tensor], torch.Tensor], pixels: torch.Tensor) -> tuple[float, float]:
    begun = time.perf_counter()
    for _ in range(_WARM_UP):
        compiled(pixels)
    torch.cuda.synchronize()
    seconds, times = time.perf_counter() - begun, []
    for _ in range(_ROUNDS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_RUNS):
            compiled(pixels)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / _RUNS)
    return seconds, statistics.median(times)
