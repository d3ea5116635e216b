"""Options that a dataclass declares: each field with its type, bounds, default and help.

Clients, forms of the service, flags of the command line and tools for assistants read `options_of`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeGuard, get_type_hints

from vlmsearch._util.arguments import check_arguments, shown
from vlmsearch.errors import ConfigError

_NUMBERS: Mapping[Any, tuple[type, ...]] = {
    int: (int,),
    int | None: (int,),
    float: (int, float),
    float | None: (int, float),
}
"""Types of numbers, and what a value may be."""


def bounded(
    default: float | None, *, minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> Any:
    """Return a field with a number from ``minimum``, or above ``above``, to ``maximum``."""
    return field(default=default, metadata={"minimum": minimum, "above": above, "maximum": maximum})


def short(default: str | None, max_chars: int) -> Any:
    """Return a field with a string of at most ``max_chars``."""
    return field(default=default, metadata={"max_chars": max_chars})


@dataclass(frozen=True)
class Option:
    """An option that a dataclass declares.

    Attributes:
        name: Name of the keyword argument.
        type: Its type, such as ``int`` or ``Collection[str]``; a string where a name in it is not loaded.
        default: Its default; ``dataclasses.MISSING`` for an argument that must be given.
        help: One sentence about it.
        minimum: Smallest number.
        above: Number that it is above, where it has no smallest one.
        maximum: Largest number.
        max_chars: Maximum length of a string.
    """

    name: str
    type: Any
    default: Any
    help: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    max_chars: int | None = None

    def check(self, value: object, of: str = "") -> None:
        """Raise ConfigError unless a value is within the bounds; TypeError for a flag that is none.

        Numbers, flags and strings with a maximum length are checked. Values of other types are the caller's.

        Args:
            value: The value.
            of: Words behind the name in a message, such as ``" of pictures"``.
        """
        if value is None and self.default is None:
            return
        if self.type is bool:
            check_arguments(**{self.name: value})
        elif self.max_chars is not None and not (isinstance(value, str) and len(value) <= self.max_chars):
            expected = f"a string of at most {self.max_chars:,} characters"
            raise ConfigError(f"`{self.name}`{of} is {expected}, not {shown(value)}")
        elif (kinds := _NUMBERS.get(self.type)) and not self._is_within(value, kinds):
            raise ConfigError(f"`{self.name}`{of} is {self._expected(value, kinds)}, not {shown(value)}")

    def _is_within(self, value: object, kinds: tuple[type, ...]) -> bool:
        if not _is_number(value, kinds):
            return False
        is_enough = value > self.above if self.above is not None else self.minimum is None or value >= self.minimum
        return is_enough and (self.maximum is None or value <= self.maximum)

    def _expected(self, value: object, kinds: tuple[type, ...]) -> str:
        """Return what a number should be."""
        if self.maximum is None and not _is_number(value, kinds):
            return "a whole number" if kinds == (int,) else "a number"
        low, high = (None if bound is None else f"{bound:,.9g}" for bound in (self.minimum, self.maximum))
        if self.above is not None:
            return f"above {self.above:g}" + (f" and at most {high}" if high else "")
        return f"from {low} to {high}" if high else f"at least {low}"


def _is_number(value: object, kinds: tuple[type, ...]) -> TypeGuard[float]:
    return isinstance(value, kinds) and not isinstance(value, bool)


@cache
def options_of(cls: type) -> Mapping[str, Option]:
    """Return the options that a dataclass declares, by name, in the order of its fields.

    A type that names something which is not loaded, such as a class under ``TYPE_CHECKING``, stays a string.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Page:
        ...     limit: int = bounded(10, minimum=1, maximum=100)
        >>> options_of(Page)["limit"].maximum
        100
    """
    texts = {name: text for base in reversed(cls.__mro__) for name, text in attribute_docs(base).items()}
    return {
        declared.name: Option(
            declared.name,
            _type_of(cls, declared.name),
            declared.default if declared.default_factory is MISSING else declared.default_factory(),
            texts.get(declared.name, "").partition(". ")[0],
            **declared.metadata,
        )
        for declared in fields(cls)
        if declared.init
    }


def _type_of(cls: type, name: str) -> Any:
    """Return the type of a field, read in the module of the class that declares it."""
    owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
    alone = SimpleNamespace(__annotations__={name: owner.__annotations__[name]})
    try:
        return get_type_hints(alone, vars(sys.modules[owner.__module__]))[name]
    except NameError:
        return owner.__annotations__[name]


def attribute_docs(cls: type) -> dict[str, str]:
    """Return what the docstring of a class says of its attributes; nothing if docstrings are stripped."""
    section = re.search(r"^Attributes:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(cls.__doc__ or ""), re.MULTILINE | re.DOTALL)
    parts = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in parts}
