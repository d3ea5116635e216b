"""The command line: one module a command, loaded when the command runs."""

from __future__ import annotations

import errno
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

from vlmsearch._util.text import VisibleStream, visible
from vlmsearch.errors import VlmsearchError

_COMMANDS = {
    "index": "Index images and texts.",
    "watch": "Keep an index in step with folders.",
    "search": "Find documents by a text, an image or similar documents.",
    "explain": "Explain why a search shows a document, or why it does not.",
    "ask": "Answer a question from the documents of an index.",
    "label": "Label documents without training.",
    "duplicates": "Find duplicate images.",
    "eval": "Measure the quality of a search, compare and tune it.",
    "delete": "Remove documents from an index.",
    "mcp": "Serve an index to AI assistants over MCP.",
    "serve": "Serve indexes over HTTP: an API and a web page.",
    "info": "Show the contents, the model and the settings of an index.",
    "demo": "Draw a gallery, index it and search it. Works offline.",
    "check": "Check an index for damage, and repair it.",
    "reindex": "Rebuild an index with another model.",
    "copy": "Copy an index to another store, with its vectors.",
    "export": "Export an index to a Parquet file, with its vectors.",
    "import": "Import an exported Parquet file.",
    "diff": "Compare two indexes.",
    "backends": "List encoders, stores and generators.",
    "doctor": "Check this installation.",
    "build": "Build models: export, quantise, verify.",
    "models": "List the models that are built or available.",
    "triton": "Make, serve and monitor Triton model repositories.",
    "llm": "Build, make and serve language models with TensorRT-LLM.",
    "token": "Create, list and remove access tokens of a server.",
    "bench": "Measure the speed of models and servers.",
}
"""Commands with their help, so that --help loads none of them."""
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(importlib.import_module(f"vlmsearch.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


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
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _show_warning
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    if sys.stdout is None:  # the next file that is opened would get its number, and the output of libraries
        _fail("the standard output is closed")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that its encoding lacks
    sys.stdout, sys.stderr = (cast("TextIO", VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
    try:
        cli.main(prog_name="vlmsearch", standalone_mode=False)
        sys.stdout.flush()
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
    if category.__module__.startswith("vlmsearch"):
        click.echo(visible(f"Note: {message}"), err=True)  # a progress bar may have replaced the stream
