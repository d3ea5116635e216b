"""JPEGs to decode, for a machine without photographs."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import PIL.Image

SIZE = (500, 375)
_QUALITY = 80


def draw_photographs(count: int, *, size: tuple[int, int] = SIZE, seed: int = 0) -> list[bytes]:
    """JPEGs with the spectrum of photographs, all different."""
    random = np.random.default_rng(seed)
    width, height = size
    across, down = np.fft.fftfreq(width)[None, :], np.fft.fftfreq(height)[:, None]
    falling = 1 / np.maximum(np.hypot(across, down), 1 / max(size))
    return [_photograph(random, falling) for _ in range(count)]


def _photograph(random: np.random.Generator, falling: np.ndarray) -> bytes:
    """Noise whose amplitude falls with its frequency, mostly the same in all channels, as in nature."""
    grey, *tint = (np.fft.ifft2(np.fft.fft2(random.standard_normal(falling.shape)) * falling).real for _ in range(4))
    channels = np.stack([grey + 0.3 * colour for colour in tint], axis=-1)
    scaled = 128 + 50 * (channels - channels.mean()) / channels.std()
    out = BytesIO()
    PIL.Image.fromarray(np.clip(scaled, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
