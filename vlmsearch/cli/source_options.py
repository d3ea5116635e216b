"""The options that say what is taken of files, for `index` and `watch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from vlmsearch._util.options import options_of
from vlmsearch.cli.common import add_options, option
from vlmsearch.cli.search_options import flag_of
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.types import READERS


def source_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options of `SourceOptions`. The function gets them as ``source``."""
    declared = {name: option for name, option in options_of(SourceOptions).items() if name != "follow_links"}

    @wraps(function)
    def wrapper(*args: object, no_follow: bool, **kwargs: Any) -> object:
        given = {name: kwargs.pop(name) for name in declared}
        given[READERS] = given[READERS] or None
        return function(*args, source=SourceOptions(**given, follow_links=not no_follow), **kwargs)

    follow = option("--no-follow", is_flag=True, help="Follow no symbolic links to files.")
    return add_options([*map(flag_of, declared.values()), follow])(wrapper)
