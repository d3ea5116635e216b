"""Scenes as a client sends them to Triton."""

from __future__ import annotations

import io

from vlmsearch.demo.scenes import make_scene

SEED = 23_000_000


def picture(number: int, size: int = 96, form: str = "JPEG") -> bytes:
    out = io.BytesIO()
    make_scene(SEED + number).draw(size).save(out, form)
    return out.getvalue()
