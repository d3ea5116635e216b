"""Options and output that several commands share."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vlmsearch._util.text import visible
from vlmsearch.cli.completion import BackEndUrl
from vlmsearch.cli.groups import SuggestingGroup
from vlmsearch.errors import ConfigError, VlmsearchError
from vlmsearch.media.limits import ImageLimits
from vlmsearch.registry import DEFAULT_ENCODER, DEFAULT_STORE, ComponentKind
from vlmsearch.types import DESCRIBED_BY, FieldScore, Manifest, Match, part_of

if TYPE_CHECKING:
    from vlmsearch.indexing.parquet import ParquetIndex
    from vlmsearch.stores.base import Store

Function = TypeVar("Function", bound=Callable[..., object])
_SNIPPET = 160
"""Characters of a text in a table of matches."""

_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://[^/]+:[0-9]+")
_ARGUMENT = re.compile(r"`(\w+)(?:=([^`\s]+))?`")


def with_flags(message: str) -> str:
    """Replace arguments in a message of the library with flags of the running command.

    The library writes an argument as `out` or `device=gpu`. If the command has an option for it, the message gets the
    flag and its value: ``--out``, ``--device gpu``.
    """
    options = [param for param in click.get_current_context().command.params if isinstance(param, click.Option)]
    flags = {option.opts[-1].lstrip("-").replace("-", "_"): option for option in options}
    flags |= {option.name: option for option in options if option.name}

    def flag(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in flags:
            return match[0]
        option = flags[name]
        if option.is_flag:
            return (option.secondary_opts if value == "False" else option.opts)[-1]
        return f"{option.opts[-1]} {value}" if value else option.opts[-1]

    return _ARGUMENT.sub(flag, message)


class CliCommand(click.Command):
    """A command whose errors name flags in place of the library's arguments."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except VlmsearchError as exc:
            exc.args = (with_flags(str(exc)), *exc.args[1:])
            if isinstance(exc, ImportError):
                exc.msg = exc.args[0]
            raise


class Group(SuggestingGroup):
    """A group of `CliCommand`."""

    command_class = CliCommand


def command(name: str | None = None) -> Callable[[Callable[..., Any]], CliCommand]:
    """Turn a function into a command, by default with the name of the function."""
    return click.command(name, cls=CliCommand)


_SHORT = {
    "--encoder": "-e",
    "--files": "-f",
    "--limit": "-n",
    "--null": "-0",
    "--out": "-o",
    "--quiet": "-q",
    "--store": "-s",
    "--verbose": "-v",
}
"""The short forms of options, on every command that has the long one."""


class _Option(click.Option):
    """An option that Kubernetes and Docker do not set: a Service `vlmsearch` gives pods VLMSEARCH_PORT=tcp://..."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable, unless it is the service link of a port."""
        value = super().resolve_envvar_value(ctx)
        return None if value and self.type is PORT and _SERVICE_LINK.fullmatch(value) else value


def option(*names: str, has_variable: bool = True, **settings: Any) -> Callable[[Function], Function]:
    """Return a click option with its short form, that can also be set by VLMSEARCH_<NAME>."""
    # click says of one value that it is no "integer range"
    if isinstance(kind := settings.get("type"), (click.IntRange, click.FloatRange)):
        kind.name = "integer" if isinstance(kind, click.IntRange) else "number"
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    short = [_SHORT[long]] if long in _SHORT else []
    variable = "VLMSEARCH_" + long.removeprefix("--").replace("-", "_").upper() if has_variable else None
    return click.option(*short, *names, cls=_Option, envvar=variable, **settings)


class NumberRange(click.FloatRange):
    """A range of finite numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; an error for one that is not finite."""
        number: float = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


PORT = click.IntRange(1, 65535)
SECONDS = NumberRange(0, min_open=True)
SHARE = NumberRange(0, 1)


def url_option(kind: ComponentKind, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Return an option for the URL of a back end, which a shell can complete."""
    return option(*names, metavar="URL", type=BackEndUrl(kind), **settings)


store_option = url_option("store", "--store", default=DEFAULT_STORE, show_default=True, help="Store of the index.")
encoder_option = url_option(
    "encoder",
    "--encoder",
    help=f"The encoder.  [default: the one that built the index, or {DEFAULT_ENCODER}]",
)
json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = option("--quiet", is_flag=True, help="Print no progress and no report, only problems.")


def release_option(help: str, flag: str = "--release") -> Callable[[Function], Function]:
    """Return an option for a release of Triton."""
    return option(flag, "release", metavar="YY.MM", help=help)


def add_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[Function], Function]:
    """Return a decorator that adds options in this order."""

    def decorate(function: Function) -> Function:
        for add in reversed(options):
            function = add(function)
        return function

    return decorate


class PlainText(click.types.StringParamType):
    """A text as it is. An environment variable holds several, one a line."""

    envvar_list_splitter = "\n"


def _filter(text: str) -> Mapping[str, object] | None:
    from vlmsearch.stores.filter_text import read_filter

    try:
        return read_filter(text) or None
    except ConfigError as exc:
        raise click.BadParameter(str(exc)) from exc


where_option = option(
    "--where",
    type=_filter,
    metavar="FILTER",
    help="A filter on metadata, such as 'year>=2020 and tag in (cat, dog)', or the same in JSON.",
)


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that reads some of a few names, such as ``fp16,int8``.

    It is the type of an option.
    """

    def read(text: str) -> list[str]:
        names = [part.strip() for part in text.split(",")]
        if unknown := [name for name in names if name not in known]:
            raise click.BadParameter(f"some of {', '.join(known)}, not {', '.join(unknown) or 'none'}")
        return names

    return read


def limits_option(default: ImageLimits) -> Callable[[Function], Function]:
    """Return the option for the limits of images; other limits are as in ``default``."""

    def read(value: str | ImageLimits) -> ImageLimits:
        try:
            return value if isinstance(value, ImageLimits) else default.replace_from(value)
        except ConfigError as exc:
            raise click.BadParameter(str(exc)) from exc

    return option(
        "--image-limits",
        type=read,
        default=default,
        metavar="LIMITS",
        help="Limits of images, such as pixels=50M,memory=2GiB; 'remote' reads object storage."
        f"  [default: {str(default).replace(',', ', ')}]",
    )


def plot_option(name: str, help: str) -> Callable[[Function], Function]:
    """Return the option of a file with plots, ``.svg`` or ``.html``."""

    def read(value: str) -> Path:
        path = Path(value)
        if path.suffix.lower() not in (".svg", ".html"):
            raise click.BadParameter(f"{value} ends in neither .svg nor .html")
        return path

    return option(name, type=read, metavar="FILE", help=f"{help} FILE ends in .svg or .html.")


def need_manifest(store: Store | ParquetIndex) -> Manifest:
    """Return the manifest of an index; raise ClickException if there is no index."""
    manifest = store.manifest()
    if manifest is None:
        raise click.ClickException(f"no index at {store.name}: make one with `vlmsearch index PATHS --store URL`")
    return manifest


def is_terminal() -> bool:
    """Check whether the output goes to a terminal."""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print a JSON value with indents. Characters that the output's encoding lacks are escaped."""
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
    """Print a table on a terminal, or lines with tabs in a pipe.

    The columns ``left`` are left-aligned.
    """
    if is_terminal():
        from vlmsearch._util.console import make_console, make_table

        make_console().print(make_table(names, rows, left=left, title=title))
        return
    for row in (names, *rows) if header else rows:
        click.echo("\t".join(row))


def print_first(lines: Sequence[str], more: str = "see --json", *, limit: int = 20, err: bool = True) -> None:
    """Print the first lines of a list, and how many more there are."""
    for line in lines[:limit]:
        click.echo(f"  {line}", err=err)
    if len(lines) > limit:
        click.echo(f"  and {len(lines) - limit} more: {more}", err=err)


def short_path(path: str) -> str:
    """Return a path relative to the current folder if that is shorter."""
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("../..") else path


def found_by(match: Match) -> list[tuple[str, FieldScore]]:
    """Return the fields that listed a match, by name."""
    return [(name, field) for name, field in sorted(match.fields.items()) if field.rank is not None]


def shown_name(match: Match) -> str:
    """Return the file of a match, with its best part and passage.

    The number of other relevant parts follows.
    """
    part, passage = match.document.part, match.passage
    names = [] if part is None else [part.name]
    names += [] if passage is None else [f"passage {passage.number}"]
    others = sum(part_of(id) is not None for id in match.parts) if names else 0
    file = match.document.id if part is None else part.of
    return ", ".join([short_path(file), *names]) + (f" and {others} more" if others else "")


def print_matches(matches: Sequence[Match], query: str = "", *, is_calibrated: bool = True) -> None:
    """Print matches: a table on a terminal; in a pipe score, id and text, separated by tabs.

    The text of a long document is its passage, and in the table where the words of the query are. The table says so
    where scores are not calibrated.
    """
    from vlmsearch.search.snippets import match_text, snippet

    if not is_terminal():
        for match in matches:
            text = " ".join(match_text(match).split())
            click.echo("\t".join((f"{match.score:.4f}", match.document.id, text)))
        return
    from rich.text import Text

    from vlmsearch._util.console import make_console, make_table

    rows = []
    for match in matches:
        fields = "  ".join(f"{name} #{field.rank} {field.score:.2f}" for name, field in found_by(match))
        text = f"{match.passage.place}: " if match.passage else ""
        text += snippet(match, query, _SNIPPET)
        text += " (generated)" if DESCRIBED_BY in match.document.metadata else ""
        rows.append((f"{match.score:.3f}", shown_name(match), text, Text(fields, "dim")))
    names = ("score" if is_calibrated else "score (uncalibrated)", "document", "text", "found by")
    make_console().print(make_table(names, rows, left=names[1:]) if rows else "Nothing matches.")
