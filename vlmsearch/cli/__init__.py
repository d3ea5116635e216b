"""The command line: one module a command, loaded when the command runs."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper
from keyword import iskeyword
from types import FrameType
from typing import NoReturn, TextIO, cast

import click
from click.shell_completion import CompletionItem

from vlmsearch._util.text import VisibleStream, visible
from vlmsearch.cli.groups import SuggestingGroup
from vlmsearch.errors import UncalibratedWarning, VlmsearchError

_GROUPS: dict[str, dict[str, str]] = {
    "Search": {
        "search": "Find documents by a text, an image or similar documents.",
        "ask": "Answer a question from the documents of an index.",
        "explain": "Explain why a search shows a document, or why it does not.",
        "eval": "Measure the quality of a search, compare and tune it.",
        "demo": "Draw a gallery, index it, search and ask it. Works offline.",
    },
    "Index": {
        "index": "Index images and texts.",
        "watch": "Keep an index in step with folders.",
        "list": "List the documents of an index.",
        "get": "Show documents by their ids.",
        "count": "Count the documents of an index.",
        "info": "Show the contents, the model and the settings of an index.",
        "label": "Label documents without training.",
        "describe": "Describe pictures by a model that sees.",
        "duplicates": "Find duplicate images.",
        "delete": "Remove documents from an index.",
    },
    "Models": {
        "models": "List the models that are built or available.",
        "backends": "List encoders, stores, generators and re-rankers.",
        "reindex": "Rebuild an index with another model.",
    },
    "Operate": {
        "doctor": "Check this installation.",
        "check": "Check an index for damage, and repair it.",
        "copy": "Copy an index to another store, with its vectors.",
        "export": "Export an index to a Parquet or CSV file.",
        "import": "Import an exported Parquet file.",
        "diff": "Compare two indexes.",
    },
    "Serve": {
        "serve": "Serve indexes over HTTP: an API and a web page.",
        "mcp": "Serve an index to AI assistants over MCP.",
        "token": "Create, list and remove access tokens of a server.",
    },
    "Build": {
        "build": "Build models: export, quantise, verify.",
        "triton": "Make, serve and monitor Triton model repositories.",
        "llm": "Serve and build language models with TensorRT-LLM.",
        "bench": "Measure the speed of models and servers.",
    },
}
"""Commands with their help, so that --help loads none of them."""
_COMMANDS = {name: help for group in _GROUPS.values() for name, help in group.items()}
COMPLETION = "_VLMSEARCH_COMPLETE"
"""The environment variable in which a shell asks for its script or for completions."""
_BUILTINS = ("list",)
"""Commands whose functions have an underscore behind the name, as those of keywords have."""
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _LazyGroup(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) or cmd_name in _BUILTINS else cmd_name
        command: click.Command = getattr(importlib.import_module(f"vlmsearch.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), help) for name, help in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=help) for name, help in _COMMANDS.items() if name.startswith(incomplete)]


_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "color": True,  # click strips nothing: `VisibleStream` does
}


@click.group(cls=_LazyGroup, context_settings=_SETTINGS)
@click.version_option(package_name="vlmsearch")
def cli() -> None:
    """Search images and texts together.

    Every option can also be set by an environment variable: --store by VLMSEARCH_STORE, and so on.
    """


def main() -> None:
    """Run the command line. The exit status is 1 for an error, 2 for wrong usage, 130 after Ctrl-C or SIGTERM.

    Plain output goes through `VisibleStream`; `make_console` prints text with styles.
    """
    gc.set_threshold(10_000)  # an import makes many objects and no cycles
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _show_warning
    instruction = os.environ.get(COMPLETION)
    if instruction:
        _complete(instruction)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    if sys.stdout is None:  # the next file that is opened would get its number, and the output of libraries
        _fail("the standard output is closed")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that its encoding lacks
    sys.stdout, sys.stderr = (cast("TextIO", VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
    try:
        cli.main(prog_name="vlmsearch", standalone_mode=False)
        sys.stdout.flush()
        gc.freeze()  # to look for cycles at the end takes longer than what is freed is worth
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except VlmsearchError as exc:
        _fail(str(exc))
    except (KeyboardInterrupt, click.Abort):
        _end_early()
    except ImportError as exc:
        if not _was_interrupted(exc):
            raise
        _end_early()
    except BrokenPipeError:
        _drop_output()  # the reader of a pipe has gone
        sys.exit(1)
    except OSError as exc:
        _fail(_describe(exc))


def _complete(instruction: str) -> NoReturn:
    """Answer a shell. click writes bytes, so its output does not go through `VisibleStream`."""
    from vlmsearch.cli.completion import prepare

    try:
        prepare(instruction)
    except VlmsearchError as exc:
        _fail(str(exc))
    cli.main(prog_name="vlmsearch")
    raise AssertionError("click exits")


def _fail(message: str) -> NoReturn:
    with suppress(OSError):
        click.echo(f"Error: {message}", err=True, color=True)
    sys.exit(1)


def _end_early() -> NoReturn:
    click.echo("Interrupted.", err=True)
    sys.exit(130)


def _was_interrupted(exc: BaseException | None) -> bool:
    """Check whether Ctrl-C caused an error: extension modules turn it into an ImportError while they load."""
    while exc is not None and not isinstance(exc, KeyboardInterrupt):
        exc = exc.__cause__ or exc.__context__
    return exc is not None


def _describe(exc: OSError) -> str:
    """Describe an error of the operating system: of a file, the current folder or the output."""
    reason = exc.strerror or str(exc)
    if exc.filename is not None:
        return f"{reason}: {str(exc.filename)!r}"
    try:
        os.getcwd()
    except OSError:
        return f"the current folder cannot be used: {reason}"
    _drop_output()
    return f"the output cannot be written: {reason}" if exc.errno in _CANNOT_WRITE else reason


def _drop_output() -> None:
    """Drop all further output, also at the exit of the interpreter."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Stop as after Ctrl-C."""
    raise KeyboardInterrupt


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001 - the signature is Python's
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Print a warning of this package as one line; warnings of libraries are for developers."""
    if category.__module__.startswith("vlmsearch") and not (category is UncalibratedWarning and _is_known()):
        click.echo(visible(f"Note: {message}"), err=True)  # a progress bar may have replaced the stream


def _is_known() -> bool:
    """Check whether a note about the index is unwanted, or an earlier command printed it."""
    import hashlib

    from vlmsearch.models.bundle import cache_folder

    given = getattr(click.get_current_context(silent=True), "params", {})
    if given.get("quiet"):
        return True
    place = os.path.abspath(str(given.get("store")).partition(":")[2]), given.get("server"), given.get("index")
    file = cache_folder() / "noted" / hashlib.sha256(repr(place).encode()).hexdigest()
    is_known = file.exists()
    with suppress(OSError):  # into a folder that takes no files: then each command prints the note
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return is_known
