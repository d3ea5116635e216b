"""Loading a model with transformers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

ONE_AT_A_TIME = threading.RLock()
"""Held while transformers loads: it replaces methods of its classes meanwhile, and two threads that do so leave them
replaced for good, after which models come without their weights."""


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """None are shown by transformers meanwhile: for checkpoints that are on this machine."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
