"""Mappings in values that cannot be changed."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dictionary that cannot be changed.

    It is a dict and no view of one, so that values with it are pickled, copied and written as JSON like any other.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping cannot be changed: change a copy of it, which `dict` makes")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle and copy need: they would set the items one by one."""
        return type(self), (dict(self),)
