"""A model on a GPU: TensorRT engines beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from vlmsearch.bench.encode import find_bundle
from vlmsearch.bench.gpu import GpuSetting, describe_gpu
from vlmsearch.building.fetch import checkpoint_of
from vlmsearch.building.torch import load_reference
from vlmsearch.cli.bench.data import read_images, read_texts
from vlmsearch.cli.bench.gpu import measure_and_print
from vlmsearch.errors import BackendError, one_line
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.inputs import Ids, Pixels
from vlmsearch.types import Vectors


@click.command()
@click.argument("model")
@click.option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR",
              help="The checkpoint that it was built from.  [default: the recipe's]")  # fmt: skip
@click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="The number of the GPU.")
@click.option("--seconds", default=1.0, show_default=True, help="How long each figure is measured.")
def main(model: str, checkpoint: Path | None, device: int, seconds: float) -> None:
    """Time MODEL's FP16 engines beside PyTorch, at what `vlmsearch bench gpu` measures."""
    machine, bundle = describe_gpu(device), find_bundle(model)
    folder = checkpoint_of(bundle, checkpoint)
    setting = GpuSetting(device, ["fp16"], ["tensorrt"], seconds=seconds)
    jpegs = read_images(None, 256) if bundle.preprocess else []
    others = {"torch fp16": partial(TorchTowers, folder, f"cuda:{device}")}
    measure_and_print(bundle, jpegs, read_texts(None, 256), setting, machine, others=others)


class TorchTowers:
    """A checkpoint on PyTorch in FP16, compiled for each shape that it meets.

    ``max-autotune`` tries kernels for every matrix product and captures CUDA graphs: the fastest that PyTorch offers.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self._device = device
        self._reference = load_reference(folder, device, torch.float16)
        compiled = partial(torch.compile, mode="max-autotune", dynamic=False)
        self._images, self._texts = (
            compiled(step) for step in (self._reference.pixel_vectors, self._reference.token_vectors)
        )

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Return the vectors of one batch of pixels."""
        return self._run(self._images, pixels)

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Return the vectors of one batch of token ids."""
        return self._run(self._texts, ids, mask)

    def close(self) -> None:
        """Free the model's memory."""
        del self._reference, self._images, self._texts

    def _run(self, step: Callable[..., Any], *arrays: Pixels | Ids) -> Vectors:
        try:
            with torch.inference_mode():
                vectors: Vectors = step(*(torch.from_numpy(array).to(self._device) for array in arrays)).cpu().numpy()
        except RuntimeError as exc:  # of the compiler, or for want of memory
            raise BackendError(f"PyTorch fails: {one_line(exc)}") from exc
        return vectors


if __name__ == "__main__":
    main()
