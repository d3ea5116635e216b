"""The flags of verbs: the query, and the options that `vlmsearch.verbs` declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Any

import click

from vlmsearch._util.options import Option
from vlmsearch.cli.common import Function, NumberRange, PlainText, add_options, option, url_option, where_option
from vlmsearch.cli.completion import complete_files
from vlmsearch.cli.opening import OWN_RERANKER
from vlmsearch.types import READERS
from vlmsearch.verbs import simple_options

_METAVARS = {
    "diversity": "SHARE",
    "min_score": "SCORE",
    "prompt": "TEXT",
    "repetition_penalty": "P",
    "rerank_seconds": "SECONDS",
    "sort": "KEY",
    "temperature": "T",
    "threshold": "COSINE",
    "top_p": "P",
}


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
        option("--without", metavar="TEXT", help='Leave out what says or shows this text, as "a beach -people" does.'),
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


def flag_of(declared: Option, name: str = "", *, is_unset: bool = False) -> Callable[[Function], Function]:
    """Return the flag of an option, with its type and bounds.

    Args:
        declared: The option.
        name: Name of the flag; by default that of the option.
        is_unset: Whether the flag has no default: what is not given is None.
    """
    flag = name or f"--{declared.name.replace('_', '-')}"
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
    if declared.kind is bool:
        return option(f"{flag}/--no-{declared.name.replace('_', '-')}", default=declared.default, help=text)
    if declared.is_list:
        singular, metavar = flag.removesuffix("s"), "KEY" if declared.name == "facets" else "TEXT"
        singular, metavar = (flag, "NAME") if declared.name == READERS else (singular, metavar)
        help = f"{text.rstrip('.')}. May be given several times."
        return option(singular, declared.name, multiple=True, type=PlainText(), metavar=metavar, help=help)
    has_default = declared.default is not None and not is_unset
    settings = {"default": declared.default if has_default else None, "show_default": has_default}
    if is_unset and declared.default is not None:
        text += f"  [default: {declared.default:g}]"
    if declared.kind in (int, float):
        kind: Any = click.IntRange if declared.kind is int else NumberRange
        lowest = declared.minimum if declared.above is None else declared.above
        is_bounded = lowest is not None or declared.maximum is not None
        settings["type"] = (
            kind(lowest, declared.maximum, min_open=declared.above is not None) if is_bounded else declared.kind
        )
    metavar = _METAVARS.get(declared.name, "N" if declared.kind is int else declared.name.upper())
    # VLMSEARCH_LIMIT is how many matches a search shows: a limit of documents has no variable
    has_variable = declared.name != "limit" or declared.default is not None
    return option(flag, metavar=metavar, help=text, has_variable=has_variable, **settings)


def flags(request: Any, *, leave_out: Collection[str] = ()) -> Callable[[Function], Function]:
    """Return a decorator that adds the flags of a verb's arguments: see `vlmsearch.verbs`.

    The function gets them by their names; `IndexChoice.search_keywords` makes arguments of a search of them.

    Args:
        request: The dataclass of the arguments. Those that must be given, and what no flag can be, are left out.
        leave_out: Names of others that are left out.
    """
    return add_options(
        [flag_of(declared) for name, declared in simple_options(request).items() if name not in leave_out]
    )
