"""What vision transformers begin with: pixels cut into patches, each of them a token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vlmsearch.building.checkpoint import ImageTower
from vlmsearch.building.layers import Array, Layers, Linear


def embed_patches(layers: Layers, pixels: str, tower: ImageTower, kernel: Array) -> tuple[str, NDArray[np.float64]]:
    """Return the patches of ``pixels`` as tokens, and a bias that they still lack.

    The tokens have the shape (n, patches, width), the bias (width,).

    Pixels enter as -1 to 1. The kernel, as PyTorch's Conv2d keeps it, takes up the checkpoint's own deviation; its
    mean is in the bias, which belongs into the table of positions. Where the size is no multiple of the patches' the
    last rows and columns are left out, as by a convolution without padding.
    """
    graph, op = layers.graph, layers.graph.op
    grid, patch = tower.size // tower.patch, tower.patch
    if grid * patch < tower.size:
        kept = graph.ints(grid * patch, grid * patch)
        pixels = op("Slice", pixels, graph.ints(0, 0), kept, graph.ints(1, 2), scope="pixels")
    x = op("Mul", layers.cast(pixels, "pixels"), layers.scalar(1 / 127.5), scope="pixels")
    x = op("Sub", x, layers.scalar(1.0), scope="pixels")
    x = op("Reshape", x, graph.ints(-1, grid, patch, grid, patch, 3), scope="patches")
    x = op("Transpose", x, scope="patches", perm=(0, 1, 3, 2, 4, 5))
    x = op("Reshape", x, graph.ints(-1, grid * grid, patch * patch * 3), scope="patches")
    columns = kernel.astype(np.float64).transpose(2, 3, 1, 0)
    mean, std = (np.array(values, np.float64)[None, None, :, None] for values in (tower.mean, tower.std))
    flat = (columns * 0.5 / std).reshape(-1, tower.transformer.width).astype(np.float32)
    bias: NDArray[np.float64] = (columns * (0.5 - mean) / std).sum(axis=(0, 1, 2))
    return layers.linear(x, Linear("image/patches", flat, quantisable=False)), bias
