"""``vlmsearch backends``."""

from __future__ import annotations

from typing import get_args

import click

from vlmsearch.cli.common import command, json_option, print_json
from vlmsearch.errors import MissingDependencyError, one_line
from vlmsearch.registry import ComponentKind, back_ends, load


@command()
@json_option
def backends(as_json: bool) -> None:
    """List encoders, stores, generators and re-rankers, and whether each can be used here."""
    rows = [
        (kind, scheme, *_state(kind, scheme)) for kind in get_args(ComponentKind) for scheme in sorted(back_ends(kind))
    ]
    if as_json:
        names = ("kind", "scheme", "usable", "what")
        print_json([dict(zip(names, row)) for row in rows])
        return
    for kind, scheme, usable, what in rows:
        click.echo(f"{kind:<10} {scheme + ':':<16} {'ok' if usable else 'missing':<8} {what}")


def _state(kind: ComponentKind, scheme: str) -> tuple[bool, str]:
    try:
        back_end = load(kind, scheme)
    except MissingDependencyError as exc:
        return False, str(exc).rpartition(": ")[2]
    except Exception as exc:  # noqa: BLE001 - a broken plug-in must not hide the others
        return False, one_line(exc)
    return True, (back_end.__doc__ or "").partition("\n")[0].replace("``", "")
