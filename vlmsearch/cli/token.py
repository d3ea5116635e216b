"""``vlmsearch token``."""

from __future__ import annotations

from pathlib import Path

import click

from vlmsearch.cli.common import Group, json_option, option, print_json, print_table
from vlmsearch.server.caller import Right
from vlmsearch.server.tokens import ROLES, Token, TokenFile

_tokens_option = option(
    "--tokens",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file that `vlmsearch serve` is given.",
)


@click.group(cls=Group)
def token() -> None:
    """Make, list and remove the tokens that `vlmsearch serve` asks for.

    The file holds hashes of the tokens, never the tokens. A running server sees a change at once.
    """


@token.command()
@click.argument("name")
@_tokens_option
@option("--role", type=click.Choice(ROLES), default="read", show_default=True, help="What it may do.")
@option(
    "--index",
    "indexes",
    multiple=True,
    metavar="NAME",
    help="An index that it may see; may be given several times.  [default: all]",
)
def add(name: str, tokens: Path, role: Right, indexes: tuple[str, ...]) -> None:
    """Make a token for NAME, who holds it, and print it: it is kept nowhere and cannot be shown again."""
    click.echo(TokenFile(tokens).add(name, role=role, indexes=indexes or None))


@token.command("list")
@_tokens_option
@json_option
def list_(tokens: Path, as_json: bool) -> None:
    """List the tokens: who holds them, what they may do and see."""
    found = TokenFile(tokens).read()
    if as_json:
        print_json({"tokens": [_shown(each) for each in found]})
        return
    rows = [[each.name, each.role, ", ".join(each.indexes or ["all"]), each.created] for each in found]
    print_table(("name", "role", "indexes", "created"), rows, left=("name", "role", "indexes", "created"))


@token.command()
@click.argument("name")
@_tokens_option
def remove(name: str, tokens: Path) -> None:
    """Remove the token of NAME: a running server refuses it from now on."""
    TokenFile(tokens).remove(name)
    click.echo(f"{name} removed")


def _shown(each: Token) -> dict[str, object]:
    indexes = None if each.indexes is None else list(each.indexes)
    return {"name": each.name, "role": each.role, "indexes": indexes, "created": each.created}
