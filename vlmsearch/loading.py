"""Loading a model with transformers."""

from __future__ import annotations

import threading

ONE_AT_A_TIME = threading.RLock()
"""Held while transformers loads: it replaces methods of its classes meanwhile, and two threads that do so leave them
replaced for good, after which models come without their weights."""
