"""URLs to back ends.

A URL is ``scheme:location?option=value&...``. The scheme is an entry point of the group ``vlmsearch.encoders``,
``vlmsearch.stores``, ``vlmsearch.generators`` or ``vlmsearch.rerankers``; the location is the class's one positional
argument and the options are its keyword-only arguments, converted by their annotations. Of an argument that is a
dataclass, each field is an option: by its own name where the argument is called ``options``, else with the argument's
name before it, as ``hnsw_ef_search`` is the field ``ef_search`` of ``hnsw``. Where the positional argument is a
`Generator`, the location is the URL of one, and options that the class does not have are its own. So the model of
``judge:openai:http://host/v1?model=NAME&image_size=512`` is that of ``openai:``. Any installed package can
register its own, and names the extra that a back end needs as entry points do: ``name = "package.module:Class
[extra]"``.
"""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

from vlmsearch._util.arguments import shown
from vlmsearch._util.extras import install_command
from vlmsearch._util.tables import convert, suggest
from vlmsearch._util.text import visible, well_formed
from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.generators.base import Generator
    from vlmsearch.rerankers.base import Reranker
    from vlmsearch.stores.base import Store
    from vlmsearch.types import Manifest

DEFAULT_ENCODER = "onnx:default"
DEFAULT_STORE = "sqlite:./vlmsearch-index"
DEFAULT_GENERATOR = "extractive:"

ComponentKind = Literal["encoder", "store", "generator", "reranker"]
T = TypeVar("T")
_Group: TypeAlias = tuple[str, Callable[..., object]]
"""A keyword-only argument that is a dataclass, and what makes it of some fields.

Its fields are options.
"""

_EXAMPLES: dict[ComponentKind, str] = {
    "encoder": DEFAULT_ENCODER,
    "store": "sqlite:./index",
    "generator": DEFAULT_GENERATOR,
    "reranker": "onnx:demo-reranker",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EMBEDDED: dict[ComponentKind, str] = {"encoder": "onnx", "store": "sqlite", "generator": "onnx", "reranker": "onnx"}
"""Schemes of the back ends that are meant where a URL has no scheme."""
_SERVICES = (
    "`connect` or `server` opens a service of vlmsearch; other URLs name a kind, as openai:http://HOST/v1 does; "
)
"""Advice where a URL begins with http: or https:."""
_OWN: dict[tuple[ComponentKind, str], tuple[str, str]] = {
    ("encoder", "onnx"): ("vlmsearch.encoders.onnx", "OnnxEncoder"),
    ("store", "sqlite"): ("vlmsearch.stores.sqlite.store", "SqliteStore"),
}
"""Back ends that need no extra, as they are registered."""
_HOSTED = re.compile(r"(chatgpt|gpt|o[1-9]|text-embedding)(-|$)")
"""The beginning of a name of OpenAI's models."""
_EXTRAS = re.compile(r"\[(.+)\]\s*$")


@dataclass(frozen=True)
class Url:
    """The address of a back end, in parts.

    Attributes:
        scheme: Name of an entry point.
        location: Text between the colon and the question mark.
        options: Names and values in their order, without percent-encoding.

    Example:
        >>> Url.parse("chroma://host:8000/photos?timeout=3", "store").options
        (('timeout', '3'),)
    """

    scheme: str
    location: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, kind: ComponentKind) -> Url:
        """Parse a URL.

        Args:
            text: The URL.
            kind: Kind of back end, for messages.

        Returns:
            Its parts.

        Raises:
            ConfigError: It is not the URL of a back end; the message never repeats its options.
        """
        if not isinstance(text, str):
            example = f"sqlite:{text}" if isinstance(text, Path) and kind == "store" else _EXAMPLES[kind]
            raise TypeError(f"`{kind}` is a URL, not {shown(text)}: write {kind}={example!r}")
        scheme, colon, rest = text.partition(":")
        if not colon or len(scheme) < 2:  # a letter and a colon begin a path on Windows
            known = sorted(back_ends(kind))
            raise ConfigError(
                f"{text!r} is not the URL of {'an' if kind == 'encoder' else 'a'} {kind}; "
                f"{_suggest_url(text, kind, known)}it begins with one of {', '.join(f'{name}:' for name in known)}"
            )
        location, _, query = rest.partition("?")
        options = None
        with suppress(ValueError):  # its message has a part of the query
            options = tuple(parse_qsl(well_formed(query), keep_blank_values=True, strict_parsing=bool(query)))
        if options is None:
            raise ConfigError(f"the options of {kind} {scheme}: are not of the form name=value&name=value")
        if any(_CONTROL.search(part) for part in (location, *(value for _, value in options))):
            raise ConfigError(f"the URL of {kind} {scheme}: has a line break or another control character in it")
        return cls(scheme, location, options)


def open_encoder(url: str) -> Encoder:
    """Open the encoder that a URL names.

    Args:
        url: ``scheme:location?option=value``.

    Returns:
        The encoder, to be closed after use.

    Raises:
        ConfigError: The scheme, the location or an option is wrong; the message says what there is.
        MissingDependencyError: The encoder needs a package that is not installed.
        ModelUnavailableError: The model is not on this machine and cannot be fetched.

    Example:
        >>> with open_encoder("mock:") as encoder:
        ...     encoder.encode_texts(["a dog", "a car"])["minilm"].shape
        (2, 128)
    """
    from vlmsearch.encoders.base import Encoder

    return _open(url, "encoder", Encoder)  # type: ignore[type-abstract]


def usual_encoder(index: str, manifest: Manifest | None) -> str:
    """Return the URL of the encoder that built an index.

    For a new index it is the default.

    Args:
        index: Name of the index, for messages.
        manifest: What built it; None for a new index.

    Returns:
        The URL of an encoder.

    Raises:
        ConfigError: Only the user knows the URL.

    Example:
        >>> usual_encoder("sqlite:./new", None)
        'onnx:default'
    """
    from vlmsearch.models.bundle import encoder_url

    if manifest is None:
        return DEFAULT_ENCODER
    url = encoder_url(manifest)
    if url is None:
        built = visible(manifest.fingerprint)
        raise ConfigError(f"{index} was built with {built}, which has no name here: give its URL with `encoder`")
    return url


def open_usual_encoder(
    url: str | None, index: str, manifest: Manifest | None, opening: Callable[[str], Encoder] = open_encoder
) -> Encoder:
    """Open the encoder of an index: the one that is named, or else the one that built the index.

    Args:
        url: The URL of an encoder; None for the usual one.
        index: Name of the index, for messages.
        manifest: What built it; None for a new index, which gets the default.
        opening: Function that opens an encoder by its URL.

    Returns:
        The encoder, to be closed after use.

    Raises:
        ConfigError: The URL is wrong, or only the user knows the URL of the encoder that built the index.
        MissingDependencyError: The encoder needs a package that is not installed.
        ModelUnavailableError: The model is not on this machine and cannot be fetched.

    Example:
        >>> with open_store("mock:") as store, open_usual_encoder("mock:", store.name, store.manifest()) as encoder:
        ...     encoder.encode_texts(["a dog", "a car"])["minilm"].shape
        (2, 128)
    """
    if url is not None or manifest is None:
        return opening(DEFAULT_ENCODER if url is None else url)
    usual = usual_encoder(index, manifest)
    try:
        return opening(usual)
    except (ConfigError, MissingDependencyError, ModelUnavailableError) as exc:
        raise type(exc)(
            f"{index} was built with {usual}, which cannot be opened: {exc}; give the URL of an encoder "
            "with this model in `encoder`"
        ) from exc


def open_store(url: str) -> Store:
    """Open the store that a URL names. Nothing is created until something is written.

    Args:
        url: ``scheme:location?option=value``.

    Returns:
        The store, to be closed after use.

    Raises:
        ConfigError: The scheme, the location or an option is wrong; the message says what there is.
        MissingDependencyError: The store needs a package that is not installed.

    Example:
        >>> with open_store("mock:") as store:
        ...     store.manifest() is None
        True
    """
    from vlmsearch.stores.base import Store

    return _open(url, "store", Store)  # type: ignore[type-abstract]


def open_generator(url: str) -> Generator:
    """Open the generator that a URL names.

    Args:
        url: ``scheme:location?option=value``.

    Returns:
        The generator, to be closed after use.

    Raises:
        ConfigError: The scheme, the location or an option is wrong; the message says what there is.
        MissingDependencyError: The generator needs a package that is not installed.
        ModelUnavailableError: The model is not on this machine and cannot be fetched.

    Example:
        >>> with open_generator("extractive:?quotes=1") as generator:
        ...     generator.generate("[1] A dog.")
        '“A dog.” [1]'
    """
    from vlmsearch.generators.base import Generator

    return _open(url, "generator", Generator)  # type: ignore[type-abstract]


def open_reranker(url: str) -> Reranker:
    """Open the re-ranker that a URL names.

    Args:
        url: ``scheme:location?option=value``.

    Returns:
        The re-ranker, to be closed after use.

    Raises:
        ConfigError: The scheme, the location or an option is wrong; the message says what there is.
        MissingDependencyError: The re-ranker needs a package that is not installed.
        ModelUnavailableError: The model is not on this machine and cannot be fetched.

    Example:
        >>> from vlmsearch.types import Document
        >>> with open_reranker("mock:") as reranker:
        ...     scores = reranker.score("a dog", [Document("a", text="a dog"), Document("b", text="a car")])
        >>> scores[0] > scores[1]
        True
    """
    from vlmsearch.rerankers.base import Reranker

    return _open(url, "reranker", Reranker)  # type: ignore[type-abstract]


def back_ends(kind: ComponentKind) -> dict[str, EntryPoint]:
    """Return the registered back ends of one kind, by scheme; none is imported.

    Args:
        kind: ``encoder``, ``store``, ``generator`` or ``reranker``.

    Returns:
        Their entry points.

    Example:
        >>> sorted(back_ends("generator"))[:2]
        ['extractive', 'mock']
    """
    from importlib.metadata import entry_points  # here: it loads more modules than the rest of `import vlmsearch`

    return {point.name: point for point in entry_points(group=f"vlmsearch.{kind}s")}


def load(kind: ComponentKind, scheme: str) -> Callable[..., object]:
    """Import the class that is registered for a scheme.

    Args:
        kind: ``encoder``, ``store``, ``generator`` or ``reranker``.
        scheme: The part of a URL before the colon.

    Returns:
        The class.

    Raises:
        ConfigError: There is no such scheme.
        MissingDependencyError: The class needs a package that is not installed; the message names the extra.

    Example:
        >>> load("encoder", "mock").__name__
        'MockEncoder'
    """
    if (kind, scheme) in _OWN:  # to read what is registered takes longer
        module, name = _OWN[kind, scheme]
        built_in: Callable[..., object] = getattr(importlib.import_module(module), name)
        return built_in
    from importlib.metadata import distributions

    points = (point for package in distributions(name="vlmsearch") for point in package.entry_points)
    known = {point.name: point for point in points if point.group == f"vlmsearch.{kind}s"}
    if scheme not in known:  # those of all other packages take longer to read than a search
        known = back_ends(kind)
    if not known:
        raise ConfigError(
            f"no {kind} is registered: vlmsearch runs from its source here and is not installed; pip install it"
        )
    if scheme not in known:
        schemes = [f"{name}:" for name in sorted(known)]
        hint = _SERVICES if scheme in ("http", "https") else suggest(f"{scheme}:", schemes)
        raise ConfigError(f"no {kind} {scheme + ':'!r}; {hint}there are {', '.join(schemes)}")
    point = known[scheme]
    try:
        factory: Callable[..., object] = point.load()
    except ModuleNotFoundError as exc:
        extras = extras_of(point)
        own = point.module.partition(".")[0]
        if not extras or point.dist is None or (exc.name or own).partition(".")[0] == own:
            raise
        install = install_command(*extras, package=point.dist.name)
        raise MissingDependencyError(f"{kind} {scheme}: needs {exc.name}, which is not installed: {install}") from exc
    return factory


def extras_of(point: EntryPoint) -> list[str]:
    """Return the extras that a back end needs; `EntryPoint.extras` cuts names at hyphens."""
    extras = _EXTRAS.search(point.value)
    return extras[1].split(",") if extras else []


def _suggest_url(text: str, kind: ComponentKind, schemes: list[str]) -> str:
    """Return ``did you mean URL? `` for a text without a scheme: a path of a store, the name of a model, a scheme."""
    import difflib

    from vlmsearch.models.bundle import recipe_names

    if "?" in text or not text or _CONTROL.search(text):
        return ""
    names = recipe_names() if kind == "encoder" else []
    name = text.removeprefix(f"{_EMBEDDED[kind]}/")
    meant = f"{_EMBEDDED[kind]}:{name.lower() if name.lower() in names else name}"
    is_hosted = kind != "store" and _HOSTED.match(text)
    if is_hosted or (kind == "generator" and not text.startswith((".", "/", "~", "demo"))):
        host = "https://api.openai.com" if is_hosted else "http://HOST:8000"
        meant = f"{'judge:' * (kind == 'reranker')}openai:{host}/v1?model={text}"
    near = difflib.get_close_matches(text, schemes, 1, 0.8)
    return f"did you mean {near[0] + ':' if near else meant!r}? "


def _open(text: str, kind: ComponentKind, interface: type[T]) -> T:
    from vlmsearch.generators.base import Generator

    url = Url.parse(text, kind)
    factory = load(kind, url.scheme)
    parameters = inspect.signature(factory).parameters
    places = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if url.location and not places:
        raise ConfigError(f"{kind} {url.scheme}: takes nothing after the colon, not {url.location!r}")
    if not url.location and places and places[0].default is inspect.Parameter.empty:
        raise ConfigError(f"{kind} {url.scheme}: needs a location after the colon")
    inner = ""
    if places and _types_of(factory).get(places[0].name) is Generator:
        url, inner = _split(url, _options_of(factory))
    getattr(factory, "check_location", str)(url.location)  # before its options: a password is not to be repeated
    arguments = _arguments(factory, url, f"{kind} {url.scheme}:")
    location = open_generator(inner) if inner else url.location
    opened = factory(*([location] if location else []), **arguments)
    if not isinstance(opened, interface):
        raise ConfigError(
            f"{kind} {url.scheme}: is registered by a class that is not a subclass of {interface.__name__}"
        )
    return opened


def _split(url: Url, own: Collection[str]) -> tuple[Url, str]:
    """Return a URL with its own options alone, and the URL in its location.

    The latter has all other options.
    """
    others = urlencode([option for option in url.options if option[0] not in own])
    inner = f"{url.location}?{others}" if others else url.location
    return replace(url, options=tuple(option for option in url.options if option[0] in own)), inner


def _arguments(factory: Callable[..., object], url: Url, name: str) -> dict[str, object]:
    """Return the keyword-only arguments of the options of a URL."""
    options = _options_of(factory)
    names = {_plain(option): option for option in options}
    pinned: Mapping[str, tuple[str, str]] = getattr(factory, "pinned_options", {})
    arguments: dict[str, object] = {}
    grouped: dict[_Group, dict[str, object]] = {}
    for given, text in url.options:
        if _plain(given) in pinned:
            value, why = pinned[_plain(given)]
            if text.lower() != value:
                raise ConfigError(f"{name} has {given}={value}, and nothing else: {why}")
            continue
        option = names.get(_plain(given), given)
        if option not in options:
            have = f"it has {', '.join(options)}" if options else "it has none"
            raise ConfigError(f"{name} has no option {option!r}; {suggest(option, options)}{have}")
        group, argument, annotation = options[option]
        values = arguments if group is None else grouped.setdefault(group, {})
        if argument in values:
            raise ConfigError(f"option {option} of {name} is given twice: once is enough")
        values[argument] = convert(text, annotation, f"option {option} of {name}")
    arguments |= {argument: make(**fields) for (argument, make), fields in grouped.items()}
    for argument, parameter in inspect.signature(factory).parameters.items():
        is_needed = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if is_needed and argument not in arguments:
            raise ConfigError(f"{name} needs the option {argument}")
    return arguments


def _plain(option: str) -> str:
    """Return the name of an option without case and underscores, which drivers' own URLs write otherwise."""
    return option.replace("_", "").lower()


def _types_of(factory: Callable[..., object]) -> dict[str, object]:
    return typing.get_type_hints(factory.__init__ if isinstance(factory, type) else factory)  # type: ignore[misc]


def _options_of(factory: Callable[..., object]) -> dict[str, tuple[_Group | None, str, object]]:
    """Return the group, the argument or field, and the type of each option, by name."""
    hints = _types_of(factory)
    options: dict[str, tuple[_Group | None, str, object]] = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        annotation = hints[name]
        if isinstance(annotation, type) and is_dataclass(annotation):
            is_needed = parameter.default is parameter.empty
            group = (name, annotation if is_needed else partial(replace, parameter.default))
            prefix = "" if name == "options" else f"{name}_"
            for field, kind in typing.get_type_hints(annotation).items():
                options[prefix + field] = (group, field, kind)
        else:
            options[name] = (None, name, annotation)
    return options
