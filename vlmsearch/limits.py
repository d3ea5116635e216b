"""Limits that back ends elsewhere have in common."""

from __future__ import annotations

from vlmsearch.errors import ConfigError

_LONGEST = 1e9
"""Seconds; with more than about 30 years, sockets and gRPC fail or time out at once."""


def check_seconds(**limits: float) -> None:
    """ConfigError for a time, by its option's name, that nothing can wait."""
    for name, seconds in limits.items():
        if not 0 < seconds <= _LONGEST:
            raise ConfigError(f"{name} is above 0 and at most {_LONGEST:.0f} seconds, not {seconds:g}")


def check_context(context: int | None) -> None:
    """ConfigError for a model that reads nothing; None is one that is not known."""
    if context is not None and context < 1:
        raise ConfigError(f"context is at least 1 token, not {context}")
