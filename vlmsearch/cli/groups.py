"""Groups of commands that suggest the nearest for a misspelt one."""

from __future__ import annotations

import click


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from vlmsearch._util.tables import suggest

            hint = suggest(name, self.list_commands(ctx)).strip()
            raise click.UsageError(f"No such command {name!r}{f': {hint}' if hint else ''}", ctx)
        return super().resolve_command(ctx, args)
