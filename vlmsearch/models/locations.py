"""What names a model: a recipe, a profile, a model of the hub, a folder, or several of them together."""

from __future__ import annotations

import re
from pathlib import Path

from vlmsearch._util.files import expand_home, is_path
from vlmsearch.errors import ConfigError

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}/[A-Za-z0-9][A-Za-z0-9._-]{0,56}")
ELSEWHERE = "models of the hub (ORG/NAME) and folders (./NAME)"
"""Models beside those that a message lists."""


def is_hub_name(location: str) -> bool:
    """Return whether ``location`` is written as a model of the hub, ``ORG/NAME``.

    A path or a file is none.

    >>> [is_hub_name(text) for text in ("google/siglip2-base-patch16-224", "./google/siglip", "a/b.toml", "demo")]
    [True, False, False, False]
    """
    return _HUB_NAME.fullmatch(location) is not None and not location.endswith(".toml")


def hub_bundle_name(source: str) -> str:
    """Return the name of the bundle of a model of the hub without a recipe.

    >>> hub_bundle_name("google/siglip2-base-patch16-224")
    'google--siglip2-base-patch16-224'
    """
    return source.replace("/", "--")


def split_location(location: str) -> tuple[str, ...]:
    """Return the models that a ``+`` joins.

    The path of a folder may have one in it.

    >>> split_location("openai/clip-vit-base-patch32+all-minilm-l6-v2")
    ('openai/clip-vit-base-patch32', 'all-minilm-l6-v2')
    """
    if is_path(location) and expand_home(location).is_dir():
        return (location,)
    return tuple(location.split("+"))


def check_location(location: str) -> None:
    """Raise ConfigError for a location that is no name, model of the hub or path.

    A name of the hub that is also a folder here is refused too: the user says which one is meant.
    """
    if is_path(location) or "/" not in location:
        return
    if not is_hub_name(location):
        raise ConfigError(f"{location!r} is not a model of the hub (ORG/NAME); write a folder as ./{location}")
    if Path(location).exists():
        raise ConfigError(
            f"{location} is a model of the Hugging Face hub, and there is a folder of that name here: "
            f"write ./{location} for the folder, or run in another folder for the hub's model"
        )
