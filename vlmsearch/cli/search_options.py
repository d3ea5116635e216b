"""The options of commands that search: the query, and the options of `vlmsearch.search.options`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from vlmsearch.cli.common import Function, PlainText, add_options, option, url_option, where_option
from vlmsearch.cli.completion import complete_files
from vlmsearch.cli.opening import OWN_RERANKER
from vlmsearch.search.options import SearchOption, search_options

_METAVARS = {"sort": "KEY", "diversity": "SHARE", "min_score": "SCORE", "rerank_seconds": "SECONDS"}


def _image(text: str) -> Path:
    if not text:
        raise click.BadParameter("an image needs a path")
    return Path(text)


image_option = option(
    "--image", type=_image, shell_complete=complete_files, metavar="FILE", help="Search by this image."
)


def query_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options of a query. The function gets the query as ``query``: keyword arguments of `Index.search`."""

    @wraps(function)
    def wrapper(
        *args: object,
        text: str | None,
        image: Path | None,
        like: tuple[str, ...],
        without: str | None,
        without_image: Path | None,
        without_like: tuple[str, ...],
        **kwargs: object,
    ) -> object:
        if not (text and text.strip()) and image is None and not like:
            raise click.UsageError("give a text, an --image, --like or several of them")
        if sum(map(bool, (without, without_image, without_like))) > 1:
            raise click.UsageError(
                "give one of --without, --without-image and --without-like; the text can have -words, too"
            )
        left_out = without or without_image or list(without_like) or None
        query = {"text": text if text and text.strip() else None, "image": image, "like": like, "without": left_out}
        return function(*args, query=query, **kwargs)

    ids: dict[str, Any] = {"multiple": True, "type": PlainText(), "metavar": "ID"}
    options = [
        image_option,
        option("--like", **ids, help="Find documents like this one. May be given several times."),
        option("--without", metavar="TEXT", help='Leave out what this text describes, as "a beach -people" does.'),
        option(
            "--without-image",
            type=_image,
            shell_complete=complete_files,
            metavar="FILE",
            help="Leave out what this image shows.",
        ),
        option("--without-like", **ids, help="Leave out what is like this document. May be given several times."),
    ]
    return add_options(options)(wrapper)


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise click.BadParameter(f"a weight is FIELD=NUMBER, such as words=0.5, not {text}") from None


def search_flag(declared: SearchOption) -> Callable[[Function], Function]:
    """Return the flag of an option of a search, with its type and bounds."""
    flag = f"--{declared.name.replace('_', '-')}"
    text = re.sub("`+", "", declared.help).rstrip(".") + "."
    if declared.name == "where":
        return where_option
    if declared.name == "weights":
        help = (
            "How much a field counts, such as words=0.5 or clip/image=2; 0 leaves it out. May be given several times."
        )
        settings: dict[str, Any] = {"callback": lambda _context, _parameter, given: dict(given) or None}
        return option("--weight", "weights", multiple=True, type=_weight, metavar="FIELD=NUMBER", help=help, **settings)
    if declared.name == "rerank":
        return url_option("reranker", flag, help=f"{text} Such as onnx:NAME. With --server: {OWN_RERANKER}.")
    if declared.type is bool:
        return option(f"{flag}/--no-{declared.name}", default=declared.default, help=text)
    if isinstance(declared.default, tuple):
        help = f"{text.rstrip('.')}. May be given several times."
        return option(flag.rstrip("s"), declared.name, multiple=True, type=PlainText(), metavar="KEY", help=help)
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

    The function gets them by their names; `IndexChoice.search_keywords` makes arguments of them.
    """
    options = [declared for name, declared in search_options(keywords).items() if name not in leave_out]
    return add_options([search_flag(replace(o, default=defaults.get(o.name, o.default))) for o in options])
