"""The sender of a request, with its rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Right = Literal["read", "write", "admin"]
"""A right on an index, which includes the rights before it."""
_ORDER = get_args(Right)


@dataclass(frozen=True)
class Caller:
    """The sender of a request.

    Attributes:
        name: Name of the token, for the log; "" where nobody needs a token.
        role: Highest right.
        indexes: Names of the indexes that the caller may see; None for all.
        token: SHA-256 of the token in hexadecimal digits; "" where nobody needs a token.
        principals: Principals whose documents the caller may read; None for all documents.
        narrowed: Sets of principals in a header. A document needs a reader in each set, too.

    Example:
        >>> caller = Caller("page", "read", frozenset({"photos"}))
        >>> caller.sees("invoices"), caller.may("write")
        (False, False)
    """

    name: str = ""
    role: Right = "admin"
    indexes: frozenset[str] | None = None
    token: str = ""
    principals: frozenset[str] | None = None
    narrowed: tuple[frozenset[str], ...] = ()

    @property
    def scopes(self) -> tuple[frozenset[str], ...]:
        """Return the sets of principals; a document needs a reader in each set. No set is for all documents."""
        return self.narrowed if self.principals is None else (self.principals, *self.narrowed)

    def sees(self, index: str) -> bool:
        """Check whether the caller may know of an index."""
        return self.indexes is None or index in self.indexes

    def may(self, right: Right) -> bool:
        """Check whether the role includes a right."""
        return _ORDER.index(self.role) >= _ORDER.index(right)
