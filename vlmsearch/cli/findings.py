"""What `vlmsearch doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it passed, what was found, and what to do where something is missing."""

    check: str
    ok: bool
    found: str
    advice: str = ""
    required: bool = True
