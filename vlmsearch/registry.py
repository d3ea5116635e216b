"""URLs to back ends.

A URL is ``scheme:location?option=value&...``. The scheme is an entry point of the group ``vlmsearch.encoders``,
``vlmsearch.stores`` or ``vlmsearch.generators``; the location is the class's one positional argument and the options
are its keyword-only arguments, converted by their annotations. Any installed package can register its own, and names
the extra that a back end needs as entry points do: ``name = "package.module:Class [extra]"``.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import parse_qsl

from vlmsearch._util.tables import convert
from vlmsearch.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.generators.base import Generator
    from vlmsearch.stores.base import Store

Kind = Literal["encoder", "store", "generator"]
T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXTRAS = re.compile(r"\[(.+)\]\s*$")


@dataclass(frozen=True)
class Url:
    """A back end's address, taken apart."""

    scheme: str
    location: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Url:
        """Take ``text`` apart; ConfigError where it is no URL of a back end."""
        scheme, colon, rest = text.partition(":")
        if not colon or not scheme:
            known = ", ".join(sorted(f"{name}:" for name in back_ends(kind)))
            raise ConfigError(f"{text!r} is no {kind} URL; it begins with one of {known}")
        location, _, query = rest.partition("?")
        try:
            options = tuple(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        except ValueError:
            raise ConfigError(f"the options of {kind} {scheme}: are not of the form name=value&name=value") from None
        if any(_CONTROL.search(part) for part in (location, *(value for _, value in options))):
            raise ConfigError(f"the URL of {kind} {scheme}: has a line break or another control character in it")
        return cls(scheme, location, options)


def open_encoder(url: str) -> Encoder:
    """The encoder that ``url`` names."""
    from vlmsearch.encoders.base import Encoder

    return _open(url, "encoder", Encoder)  # type: ignore[type-abstract]


def open_store(url: str) -> Store:
    """The store that ``url`` names; it creates nothing until something is written."""
    from vlmsearch.stores.base import Store

    return _open(url, "store", Store)  # type: ignore[type-abstract]


def open_generator(url: str) -> Generator:
    """The generator that ``url`` names."""
    from vlmsearch.generators.base import Generator

    return _open(url, "generator", Generator)  # type: ignore[type-abstract]


def back_ends(kind: Kind) -> dict[str, EntryPoint]:
    """The registered back ends of one kind, by scheme; none is imported."""
    from importlib.metadata import entry_points  # here: it loads more modules than the rest of `import vlmsearch`

    return {point.name: point for point in entry_points(group=f"vlmsearch.{kind}s")}


def load(kind: Kind, scheme: str) -> Callable[..., object]:
    """The class registered for ``scheme``; MissingDependencyError names the extra that it needs."""
    known = back_ends(kind)
    if not known:
        raise ConfigError(
            f"no {kind} is registered: vlmsearch runs from its source here and is not installed; pip install it"
        )
    if scheme not in known:
        raise ConfigError(f"no {kind} {scheme + ':'!r}; there are {', '.join(f'{name}:' for name in sorted(known))}")
    point = known[scheme]
    try:
        found: Callable[..., object] = point.load()
    except ModuleNotFoundError as exc:
        extras = _EXTRAS.search(point.value)
        own = point.module.partition(".")[0]
        if extras is None or point.dist is None or (exc.name or own).partition(".")[0] == own:
            raise
        raise MissingDependencyError(
            f"{kind} {scheme}: needs {exc.name}, which is not installed: pip install '{point.dist.name}[{extras[1]}]'"
        ) from exc
    return found


def _open(text: str, kind: Kind, interface: type[T]) -> T:
    url = Url.parse(text, kind)
    factory = load(kind, url.scheme)
    parameters = inspect.signature(factory).parameters
    places = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if url.location and not places:
        raise ConfigError(f"{kind} {url.scheme}: takes nothing after the colon, not {url.location!r}")
    if not url.location and places and places[0].default is inspect.Parameter.empty:
        raise ConfigError(f"{kind} {url.scheme}: needs a location after the colon")
    names = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    hints = typing.get_type_hints(factory.__init__ if isinstance(factory, type) else factory)  # type: ignore[misc]
    options: dict[str, object] = {}
    for name, value in url.options:
        if name not in names:
            have = f"it has {', '.join(names)}" if names else "it has none"
            raise ConfigError(f"{kind} {url.scheme}: has no option {name!r}; {have}")
        options[name] = convert(value, hints[name], f"option {name} of {kind} {url.scheme}:")
    opened = factory(*([url.location] if url.location else []), **options)
    if not isinstance(opened, interface):
        raise ConfigError(f"{kind} {url.scheme}: is registered by a class that is no {interface.__name__}")
    return opened
