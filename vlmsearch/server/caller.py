"""Who sends a request, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Right = Literal["read", "write", "admin"]
"""What a caller may do with an index; each includes those before it."""
_ORDER = get_args(Right)


@dataclass(frozen=True)
class Caller:
    """Name who sends a request.

    Attributes:
        name: Their token's name, for the log; "" where nobody needs a token.
        role: What they may do.
        indexes: The indexes that they may see, by name; None for all.

    Example:
        >>> caller = Caller("page", "read", frozenset({"photos"}))
        >>> caller.sees("invoices"), caller.may("write")
        (False, False)
    """

    name: str = ""
    role: Right = "admin"
    indexes: frozenset[str] | None = None

    def sees(self, index: str) -> bool:
        """Return whether an index exists as far as they are told."""
        return self.indexes is None or index in self.indexes

    def may(self, right: Right) -> bool:
        """Return whether their role includes a right."""
        return _ORDER.index(self.role) >= _ORDER.index(right)
