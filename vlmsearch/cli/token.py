"""``vlmsearch token``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vlmsearch.cli.common import Group, json_option, option, print_json, print_table
from vlmsearch.server.caller import Right
from vlmsearch.server.tokens import ROLES, TokenFile

_tokens_option = option(
    "--tokens",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The token file of `vlmsearch serve --tokens`.",
)


@click.group(cls=Group)
def token() -> None:
    """Create, list and remove the access tokens of `vlmsearch serve`.

    The file holds hashes of the tokens only. A running server applies a change at once.
    """


@token.command()
@click.argument("name")
@_tokens_option
@option("--role", type=click.Choice(ROLES), default="read", show_default=True, help="What the holder may do.")
@option("--index", "indexes", multiple=True, metavar="NAME", help="An index to use; may be repeated.  [default: all]")
@option(
    "--principals",
    multiple=True,
    metavar="NAME",
    help="A name whose documents it reads, such as group:hr, or '*' for what everyone reads; may be repeated."
    "  [default: all documents]",
)
def add(name: str, tokens: Path, role: Right, indexes: tuple[str, ...], principals: tuple[str, ...]) -> None:
    """Create a token for its holder NAME and print it. It is not stored and cannot be shown again."""
    click.echo(TokenFile(tokens).add(name, role=role, indexes=indexes or None, principals=principals or None))


@token.command("list")
@_tokens_option
@json_option
def list_(tokens: Path, as_json: bool) -> None:
    """List the tokens with their holders, roles, indexes and principals."""
    entries = TokenFile(tokens).read()
    if as_json:
        forms = [{name: value for name, value in asdict(entry).items() if name != "sha256"} for entry in entries]
        print_json({"tokens": forms})
        return
    names = ("name", "role", "indexes", "principals", "created")
    lists = [[", ".join(given or ["all"]) for given in (entry.indexes, entry.principals)] for entry in entries]
    rows = [[entry.name, entry.role, *shown, entry.created] for entry, shown in zip(entries, lists)]
    print_table(names, rows, left=names)


@token.command()
@click.argument("name")
@_tokens_option
def remove(name: str, tokens: Path) -> None:
    """Remove the token of NAME. A running server refuses it at once."""
    TokenFile(tokens).remove(name)
    click.echo(f"{name} removed")
