"""Options that are declared once, as the fields of a dataclass: type, bounds, default and help.

A dataclass that inherits from `Options` checks its values by their types and bounds. `options_of` lists its fields for
what has the same options in another form: JSON, flags of commands, tools for assistants.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from vlmsearch._util.arguments import check_arguments, check_kind, shown, strings
from vlmsearch._util.plain import finite_number
from vlmsearch.errors import ConfigError

_NAMES = {
    "PIL": SimpleNamespace(Image=SimpleNamespace(Image=bytes)),
    "NDArray": Sequence,
    "np": SimpleNamespace(uint8=int),
}
"""Stand-ins for heavy packages in type hints: reading a declaration imports none of them."""
_ATTRIBUTES = re.compile(r"^Attributes:\n(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
UNIONS = (Union, UnionType)
MAX_WEIGHT = 1e6
WEIGHT_RULE = f"weights are numbers from 0 to {MAX_WEIGHT:,.0f}"
_LISTS = (Sequence, Collection, Iterable, tuple, frozenset)


def bounded(
    default: float | None, *, minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> Any:
    """Declare a number from ``minimum``, or above ``above``, to ``maximum``."""
    return field(default=default, metadata={"minimum": minimum, "above": above, "maximum": maximum})


def short(default: Any, max_chars: int) -> Any:
    """Declare a string of at most ``max_chars``."""
    return field(default=default, metadata={"max_chars": max_chars})


def several(default: Any, max_items: int, max_chars: int | None = None) -> Any:
    """Declare a list of at most ``max_items``, which are strings of at most ``max_chars``."""
    return field(default=default, metadata={"max_items": max_items, "max_chars": max_chars})


def local(default: Any = None) -> Any:
    """Declare an option that is for this process alone: no service takes it."""
    return field(default=default, metadata={"is_local": True})


@dataclass(frozen=True)
class Option:
    """An option: a field of a dataclass.

    Attributes:
        name: Name of the field and of the keyword argument.
        type: Type, such as ``int`` or ``Collection[str]``, with None if the option may be None.
        default: Default; `dataclasses.MISSING` for an argument that must be given.
        help: First sentence about it.
        minimum: Smallest number.
        above: Number that it is above, where it has no smallest one.
        maximum: Largest number.
        max_chars: Maximum length of a string, or of the strings of a list.
        max_items: Maximum length of a list.
        is_local: Whether no service takes it.
    """

    name: str
    type: Any
    default: Any
    help: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    max_chars: int | None = None
    max_items: int | None = None
    is_local: bool = False

    @property
    def is_required(self) -> bool:
        """Return whether the argument must be given."""
        return self.default is MISSING

    @cached_property
    def kind(self) -> Any:
        """Return the type without None, or the origin of a generic one, such as ``Sequence``."""
        inner = without_none(self.type)
        return get_origin(inner) or inner

    @cached_property
    def is_list(self) -> bool:
        """Return whether the option is a list of strings.

        It may be one string in place of a list of one.
        """
        kinds = get_args(self.type) if self.takes_string else (without_none(self.type),)
        return any(get_origin(kind) in _LISTS and get_args(kind)[0] is str for kind in kinds)

    @cached_property
    def takes_string(self) -> bool:
        """Return whether the option is a string or a list of strings."""
        parts = get_args(self.type) if get_origin(self.type) in UNIONS else ()
        return len(parts) == 2 and str in parts and NoneType not in parts

    def check(self, value: object, of: str = "") -> None:
        """Raise TypeError or ConfigError unless a value is of the type and within the bounds.

        Strings, numbers, flags, functions, filters and lists of strings are checked. Other types check themselves.

        Args:
            value: The value.
            of: Words behind the name in a message about a number, such as ``" of pictures"``.
        """
        kind = self.kind
        if value is None and NoneType in get_args(self.type):
            return
        if kind is bool:
            check_arguments(**{self.name: value})
        elif kind in (int, float):
            self._check_number(value, (int,) if kind is int else (int, float), of)
        elif kind is str:
            check_kind(self.name, value, str, "a string")
            self._check_length(value)
        elif kind is Callable:
            if not callable(value):
                raise TypeError(f"`{self.name}` is a function or None, not {shown(value)}")
        elif kind is Mapping:
            self._check_mapping(value)
        elif self.is_list:
            self._check_list(value)

    def _check_number(self, value: Any, kinds: tuple[type, ...], of: str) -> None:
        low, is_open = (self.minimum, False) if self.above is None else (self.above, True)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        is_high = is_number and (low is None or value > low or (value == low and not is_open))
        if is_high and (self.maximum is None or value <= self.maximum):
            return
        high = "" if self.maximum is None else f"{self.maximum:,.9g}"
        if low is None or not (high or is_number):
            bounds = "a whole number" if kinds == (int,) else "a number"
        elif is_open:
            bounds = f"above {low:g}" + (f" and at most {high}" if high else "")
        else:
            bounds = f"from {low:,.9g} to {high}" if high else f"at least {low:,.9g}"
        raise ConfigError(f"`{self.name}`{of} is {bounds}, not {shown(value)}")

    def _check_length(self, value: Any) -> None:
        if self.max_chars is not None and len(value) > self.max_chars:
            raise ConfigError(f"`{self.name}` has at most {self.max_chars:,} characters, not {len(value):,}")

    def _check_mapping(self, value: object) -> None:
        if get_args(without_none(self.type))[1] is not float:
            check_kind(self.name, value, Mapping, "a filter such as {'year': 2024}")
            return
        example = "a mapping of fields to numbers, such as {'words': 0.5}"
        check_kind(self.name, value, Mapping, example)
        for name, weight in dict(value).items():  # type: ignore[call-overload]
            number = finite_number(weight)
            if not isinstance(name, str) or number is None or not 0 <= number <= MAX_WEIGHT:
                raise ConfigError(f"`{self.name}` is {example}: {WEIGHT_RULE}, not {shown(value)}")

    def _check_list(self, value: object) -> None:
        if isinstance(value, str) and not self.takes_string:
            raise ConfigError(f"`{self.name}` is a list of strings, such as [{shown(value)}]")
        items = strings(self.name, value, "strings")
        if self.max_items is not None and len(items) > self.max_items:
            raise ConfigError(f"`{self.name}` has at most {self.max_items:,} items, not {len(items):,}")
        for item in items:
            self._check_length(item)


class Options:
    """A base of dataclasses that are options or arguments.

    A value of None, or of ``{}`` for a mapping, is the default: left out. Lists become tuples.

    Raises:
        TypeError: A value is of another type.
        ConfigError: A value is out of its bounds.
    """

    def __init_subclass__(cls) -> None:
        """List the attributes of the bases in the docstring, too, where a class lists its own."""
        super().__init_subclass__()
        kind: Any = cls
        if section := _ATTRIBUTES.search(_doc(cls)):
            listed = "".join(f"    {name}: {text}\n" for name, text in attribute_docs(kind).items())
            before, after = section.string[: section.start(1)], section.string[section.end(1) :]
            cls.__doc__ = f"{before}{listed}\n{after}"

    def __post_init__(self) -> None:
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if value is option.default:
                continue
            if not option.is_required and (value is None or (option.kind is Mapping and value == {})):
                object.__setattr__(self, name, option.default)
                continue
            if option.is_list and isinstance(value, Iterator):
                value = tuple(value)
            option.check(value)
            if option.kind is float and value == 0:
                object.__setattr__(self, name, 0.0)  # also for -0.0
            if option.is_list:
                object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))


def options_of(cls: Any) -> Mapping[str, Option]:
    """Return the options of a dataclass, by name.

    Args:
        cls: The dataclass; one that inherits has the options of its bases, too.

    Returns:
        The options, in the order of the fields.

    Example:
        >>> @dataclass(frozen=True)
        ... class Size(Options):
        ...     '''A size.
        ...
        ...     Attributes:
        ...         width: Width in pixels. Its height follows.
        ...     '''
        ...     width: int = bounded(10, minimum=1)
        >>> options_of(Size)["width"].help, options_of(Size)["width"].minimum
        ('Width in pixels', 1)
    """
    return _options_of(cls)


@cache
def _options_of(cls: Any) -> Mapping[str, Option]:
    texts = attribute_docs(cls)
    return {
        declared.name: Option(
            declared.name,
            _type_of(cls, declared.name),
            declared.default if declared.default_factory is MISSING else declared.default_factory(),
            texts.get(declared.name, "").partition(". ")[0].rstrip("."),
            **declared.metadata,
        )
        for declared in fields(cls)
        if declared.init
    }


def _type_of(cls: type, name: str) -> Any:
    """Return the type of a field, read in the module of the class that declares it."""
    owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
    alone = SimpleNamespace(__annotations__={name: inspect.get_annotations(owner)[name]})
    return get_type_hints(alone, vars(sys.modules[owner.__module__]), _NAMES)[name]


@cache
def attribute_docs(cls: type) -> Mapping[str, str]:
    """Return the descriptions of attributes in the docstrings of a class and its bases.

    There are none where docstrings are stripped.
    """
    return {name: text for kind in reversed(cls.__mro__) for name, text in _own_docs(kind).items()}


@cache
def _own_docs(cls: type) -> Mapping[str, str]:
    section = _ATTRIBUTES.search(_doc(cls))
    parts = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in parts}


def _doc(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def without_none(hint: Any) -> Any:
    """Return a type hint without the None that it allows beside one other type."""
    others = [part for part in get_args(hint) if part is not NoneType]
    return others[0] if get_origin(hint) in UNIONS and len(others) == 1 else hint
