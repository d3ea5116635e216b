"""What several commands share: their options and how they show results."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vlmsearch._util.text import visible
from vlmsearch.errors import ConfigError, InvalidInputError, VlmsearchError
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.registry import DEFAULT_ENCODER, DEFAULT_GENERATOR, DEFAULT_STORE
from vlmsearch.search.options import SearchOption, search_options
from vlmsearch.stores.filters import TOO_DEEP
from vlmsearch.types import Document, FieldScore, Manifest, Match, RemoteImage, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vlmsearch.client import RemotePipeline
    from vlmsearch.index import Index
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.stores.base import Store

Function = TypeVar("Function", bound=Callable[..., object])


_ARGUMENT = re.compile(r"`(\w+)(?:=([^`\s]+))?`")


def with_flags(message: str) -> str:
    """Return a message of the library in the words of the command that runs.

    The library writes an argument as `out` or `device=gpu`; where the command has an option for it, its flag and value
    stand there instead: ``--out``, ``--device gpu``.
    """
    flags: dict[str, click.Option] = {}
    options = [one for one in click.get_current_context().command.params if isinstance(one, click.Option)]
    for one in options:
        flags[one.opts[-1].lstrip("-").replace("-", "_")] = one
    flags |= {one.name: one for one in options if one.name}

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags:
            return found[0]
        one = flags[name]
        if one.is_flag:
            return (one.secondary_opts if value == "False" else one.opts)[-1]
        return f"{one.opts[-1]} {value}" if value else one.opts[-1]

    return _ARGUMENT.sub(flag, message)


class CliCommand(click.Command):
    """A command that names its flags where an error of the library names arguments."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except VlmsearchError as exc:
            exc.args = (with_flags(str(exc)), *exc.args[1:])
            if isinstance(exc, ImportError):
                exc.msg = exc.args[0]
            raise


class Group(click.Group):
    """A group of such commands."""

    command_class = CliCommand


def command(name: str | None = None) -> Callable[[Callable[..., Any]], CliCommand]:
    """Make a function a command; its name is the function's unless another is given."""
    return click.command(name, cls=CliCommand)


def option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Return a click option that can also be set by VLMSEARCH_<NAME>."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    variable = "VLMSEARCH_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


OWN_RERANKER = "server"
"""What --rerank names with --server."""
PORT = click.IntRange(1, 65535)
SECONDS = click.FloatRange(0, min_open=True)
SHARE = click.FloatRange(0, 1)

store_option = option("--store", default=DEFAULT_STORE, show_default=True, metavar="URL", help="Where the index is.")
encoder_option = option(
    "--encoder",
    metavar="URL",
    help=f"What makes the vectors.  [default: what built the index, or {DEFAULT_ENCODER}]",
)
generator_option = option(
    "--generator", default=DEFAULT_GENERATOR, show_default=True, metavar="URL", help="What writes the answer."
)
json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")
limit_option = option(
    "--limit", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many matches at most."
)


def release_option(help: str, flag: str = "--release") -> Callable[[Function], Function]:
    """Return which release of Triton."""
    return option(flag, "release", metavar="YY.MM", help=help)


def server_options(*, seconds: float) -> Callable[[Function], Function]:
    """Return where a Triton server listens and how it is run; ``seconds`` is how long its models may take to load."""
    options = (
        option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all."),
        option("--http-port", default=8000, show_default=True, type=PORT),
        option("--grpc-port", default=8001, show_default=True, type=PORT),
        option("--metrics-port", default=8002, show_default=True, type=PORT),
        option(
            "--wait", "seconds", default=seconds, show_default=True, type=SECONDS, help="For all models to be ready."
        ),
        option("--restart/--no-restart", default=True, help="Start again what dies.  [default: restart]"),
        option("--verbose", is_flag=True, help="Show what the server logs."),
        option("--dry-run", is_flag=True, help="Print the command and do not run it."),
        option(
            "--install",
            is_flag=True,
            help="Where there is no tritonserver, install one for trying out: unpatched, for this machine alone.",
        ),
    )

    return _add(options)


class PlainText(click.types.StringParamType):
    """Texts, of which an environment variable has one a line."""

    envvar_list_splitter = "\n"


class ImagePath(click.Path):
    """The path of an image."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty path."""
        if not str(value):
            self.fail("an image needs a path", param, ctx)
        return super().convert(value, param, ctx)


image_option = option("--image", type=ImagePath(path_type=Path), metavar="FILE", help="Search by this image.")


def query_options(function: Function) -> Function:
    """Return what is asked for beside a text and an image, and what is left out."""
    options = (
        option(
            "--like",
            multiple=True,
            type=PlainText(),
            metavar="ID",
            help="More like this document; may be given several times.",
        ),
        option("--without", metavar="TEXT", help='Leave out what this describes, as "a beach -people" does.'),
        option("--without-image", type=ImagePath(path_type=Path), metavar="FILE", help="Leave out what this shows."),
        option(
            "--without-like",
            multiple=True,
            type=PlainText(),
            metavar="ID",
            help="Leave out what is like this document; may be given several times.",
        ),
    )
    return _add(options)(function)


def one_of(text: str | None, image: Path | None, like: Sequence[str]) -> str | Path | list[str] | None:
    """Return what a query leaves out; wrong usage where several options say so."""
    if sum(map(bool, (text, image, like))) > 1:
        raise click.UsageError("give one of --without, --without-image and --without-like; a TEXT can have -words, too")
    return text or image or list(like) or None


def _add(flags: Sequence[Callable[[Any], Any]]) -> Callable[[Function], Function]:
    """Return a decorator that adds flags in this order."""

    def decorate(function: Function) -> Function:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return decorate


_METAVARS = {"sort": "KEY", "diversity": "SHARE", "min_score": "SCORE", "rerank_seconds": "SECONDS"}


class _Weight(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer releases of click
    name = "weight"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, _, number = str(value).rpartition("=")
        try:
            return name, float(number)
        except ValueError:
            self.fail(f"a weight is FIELD=NUMBER, such as words=0.5, not {value}", param, ctx)


def _flag(declared: SearchOption) -> Callable[[Function], Function]:
    """Return the flag of an option of a search: of its type, within its bounds."""
    flag = f"--{declared.name.replace('_', '-')}"
    text = re.sub("`+", "", declared.help).rstrip(".") + "."
    if declared.name == "where":
        return where_option
    if declared.name == "weights":
        said = (
            "How much a field counts, such as words=0.5 or clip/image=2; 0 leaves it out. May be given several times."
        )
        settings: dict[str, Any] = {"callback": lambda _context, _parameter, given: dict(given) or None}
        return option(
            "--weight", "weights", multiple=True, type=_Weight(), metavar="FIELD=NUMBER", help=said, **settings
        )
    if declared.name == "rerank":
        return option(flag, metavar="URL", help=f"{text} Such as onnx:NAME; with --server, {OWN_RERANKER}.")
    if declared.type is bool:
        return option(f"{flag}/--no-{declared.name}", default=declared.default, help=text)
    if isinstance(declared.default, tuple):
        said = f"{text.rstrip('.')}; may be given several times."
        return option(flag.rstrip("s"), declared.name, multiple=True, type=PlainText(), metavar="KEY", help=said)
    settings = {"default": declared.default, "show_default": declared.default is not None}
    metavar = _METAVARS.get(declared.name, "N" if declared.type is int else declared.name.upper())
    if declared.maximum is not None:
        kind: Any = click.IntRange if declared.type is int else click.FloatRange
        lowest = declared.minimum if declared.above is None else declared.above
        settings["type"] = kind(lowest, declared.maximum, min_open=declared.above is not None)
    return option(flag, metavar=metavar, help=text, **settings)


def search_flags(
    keywords: type, *, leave_out: Collection[str] = (), **defaults: object
) -> Callable[[Function], Function]:
    """Return a decorator that adds the flags of the options of a search: see `vlmsearch.search.options`.

    The function gets them by their names; `search_keywords` makes arguments of them.
    """
    options = [each for each in search_options(keywords).values() if each.name not in leave_out]
    return _add([_flag(replace(each, default=defaults.get(each.name, each.default))) for each in options])


def search_keywords(server: ServerIndex | None, given: Mapping[str, Any]) -> Any:
    """Return the options of a search as `Index.search` takes them."""
    return {**given, "rerank": reranker_of(server, given["rerank"])} if "rerank" in given else dict(given)


class _Limits(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer releases of click
    name = "limits"

    def __init__(self, default: ImageLimits) -> None:
        self._default = default

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> ImageLimits:
        try:
            return value if isinstance(value, ImageLimits) else self._default.replace_from(str(value))
        except ConfigError as exc:
            self.fail(str(exc), param, ctx)


def limits_option(default: ImageLimits) -> Callable[[Function], Function]:
    """Return how large an image may be; what is not given is as in ``default``."""
    return option(
        "--image-limits",
        type=_Limits(default),
        default=default,
        show_default=str(default),
        metavar="LIMITS",
        help="The largest images: pixels=N,decoded=BYTES,encoded=BYTES or some of these; remote reads object storage.",
    )


class _Where(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer releases of click
    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, object]:
        try:
            found = json.loads(str(value))
        except RecursionError:
            self.fail(TOO_DEEP, param, ctx)
        except ValueError as exc:
            self.fail(f'no JSON: {exc}; write it as \'{{"year": {{"$gte": 2020}}}}\'', param, ctx)
        if not isinstance(found, dict):
            self.fail(f"a filter is a JSON object, not {value}", param, ctx)
        return found


where_option = option("--where", type=_Where(), metavar="JSON", help="A filter on metadata.")


@contextmanager
def open_index(
    store: str,
    encoder: str | None,
    generator: str | None = None,
    *,
    create: bool = False,
    image_limits: ImageLimits = DEFAULT_LIMITS,
) -> Iterator[Pipeline]:
    """Give a pipeline on an index; without ``create``, the index must be there.

    The encoder defaults to what built it.
    """
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.registry import open_encoder, open_generator, open_store

    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        manifest = opened.manifest() if create else need_manifest(opened)
        model = stack.enter_context(open_encoder(encoder or usual_encoder(opened.name, manifest)))
        writer = stack.enter_context(open_generator(generator)) if generator else None
        yield Pipeline(model, opened, writer, image_limits=image_limits)


@dataclass(frozen=True)
class ServerIndex:
    """Name an index of a running `vlmsearch serve`."""

    url: str
    index: str

    def connect(self) -> RemotePipeline:
        """Open it."""
        from vlmsearch.client import connect

        return connect(self.url, index=self.index)


_LOCAL = ("store", "encoder", "generator", "image_limits")
"""What a server has of its own."""
_PICTURE = 720
"""The longer side of pictures that come from a server, in pixels."""


def server_option(function: Callable[..., object]) -> Callable[..., object]:
    """Return where the index is, if not here: the function gets a `ServerIndex` or None as ``server``."""

    @option("--server", metavar="URL", help="Ask this `vlmsearch serve`; VLMSEARCH_TOKEN holds the token.")
    @option("--index", default="default", show_default=True, metavar="NAME", help="Which index of --server.")
    @wraps(function)
    def wrapper(*args: object, server: str | None, index: str, **kwargs: object) -> object:
        chosen = ServerIndex(server, index) if server and _is_asked(kwargs) else None
        return function(*args, server=chosen, **kwargs)

    return wrapper


def _is_asked(given: Mapping[str, object]) -> bool:
    """Return whether a server is asked: one in the environment is not where the command line names an index here."""
    context = click.get_current_context()

    def on_command_line(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    local = [f"--{name.replace('_', '-')}" for name in _LOCAL if name in given and on_command_line(name)]
    if local and on_command_line("server"):
        raise click.UsageError(f"--server has its own: leave out {' and '.join(local)}")
    return not local


@contextmanager
def open_here_or_there(
    server: ServerIndex | None,
    store: str,
    encoder: str | None,
    generator: str | None = None,
    *,
    create: bool = False,
    image_limits: ImageLimits = DEFAULT_LIMITS,
) -> Iterator[Index]:
    """Give an index on a server where one is asked, else as `open_index` opens it."""
    if server is not None:
        with server.connect() as remote:
            yield remote
        return
    with open_index(store, encoder, generator, create=create, image_limits=image_limits) as pipeline:
        yield pipeline


def reranker_of(server: ServerIndex | None, given: str | None) -> Any:
    """Return what ``rerank=`` takes: the URL of a re-ranker here, and whether a server asks its own."""
    if server is None:
        return given or False
    if given not in (None, OWN_RERANKER):
        raise click.UsageError(f"--server has a re-ranker of its own: give --rerank {OWN_RERANKER}")
    return given is not None


def with_picture(index: Index, document: Document) -> Document:
    """Return a document with its picture at hand: of one that is elsewhere, the bytes of a smaller one."""
    image = document.image
    is_elsewhere = isinstance(image, RemoteImage) or (isinstance(image, Path) and remote_url(image))
    if is_elsewhere:
        with suppress(InvalidInputError):
            return replace(document, image=index.thumbnail(document.id, size=_PICTURE))
    return document


def need_manifest(store: Store) -> Manifest:
    """Return what built the index; a clear error where there is none."""
    manifest = store.manifest()
    if manifest is None:
        raise click.ClickException(f"no index at {store.name}: make one with `vlmsearch index PATHS --store URL`")
    return manifest


def usual_encoder(store: str, manifest: Manifest | None) -> str:
    """Return the URL of what built an index, or the default for a new one; ConfigError where only the user knows it."""
    from vlmsearch.models.bundle import encoder_url

    if manifest is None:
        return DEFAULT_ENCODER
    url = encoder_url(manifest)
    if url is None:
        built = visible(manifest.fingerprint)
        raise ConfigError(f"{store} was built with {built}, which has no name here: give its URL with --encoder")
    return url


def is_terminal() -> bool:
    """Return whether results go to a person."""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print one JSON value, readable by people too; escapes stand for what the output's encoding cannot hold."""
    is_unicode = codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
    click.echo(visible(json.dumps(value, indent=2, ensure_ascii=not is_unicode)))


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[str] = (),
    title: str = "",
    header: bool = True,
) -> None:
    """Print a table for a person, with the columns of ``left`` on the left, or lines with tabs for a pipe."""
    if is_terminal():
        from vlmsearch._util.console import make_console, make_table

        make_console().print(make_table(names, rows, left=left, title=title))
        return
    for row in (names, *rows) if header else rows:
        click.echo("\t".join(row))


def short_path(path: str) -> str:
    """Return a path relative to here where that is shorter."""
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("../..") else path


def found_by(match: Match) -> list[tuple[str, FieldScore]]:
    """Return the fields that listed a match, by name."""
    return [(name, field) for name, field in sorted(match.fields.items()) if field.rank is not None]


def shown_name(match: Match) -> str:
    """Return the file of a match, with its best part and how many others are relevant."""
    part = match.document.part
    if part is None:
        return short_path(match.document.id)
    others = sum(part_of(id) is not None for id in match.parts)
    return f"{short_path(part.of)}, {part.name}" + (f" and {others} more" if others else "")


def print_matches(matches: Sequence[Match]) -> None:
    """Print a table for a person; for a pipe a line a match: score, id and text, separated by tabs."""
    if not is_terminal():
        for match in matches:
            text = " ".join((match.document.text or "").split())
            click.echo("\t".join((f"{match.score:.4f}", match.document.id, text)))
        return
    from rich.text import Text

    from vlmsearch._util.console import make_console, make_table

    rows = []
    for match in matches:
        fields = "  ".join(f"{name} #{field.rank} {field.score:.2f}" for name, field in found_by(match))
        text = " ".join((match.document.text or "").split())
        rows.append((f"{match.score:.3f}", shown_name(match), text[:160], Text(fields, "dim")))
    names = ("score", "document", "text", "found by")
    make_console().print(make_table(names, rows, left=names[1:]) if rows else "Nothing matches.")
