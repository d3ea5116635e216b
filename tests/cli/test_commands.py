"""The commands as a whole: groups, short options, suggestions, and output in any encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch import ConfigError, Document, Pipeline
from vlmsearch.cli import cli
from vlmsearch.registry import open_encoder, open_generator, open_reranker, open_store

SHORT = {
    "--encoder": "-e",
    "--files": "-f",
    "--limit": "-n",
    "--null": "-0",
    "--out": "-o",
    "--quiet": "-q",
    "--store": "-s",
    "--verbose": "-v",
}
TITLES = ["Search:", "Index:", "Models:", "Operate:", "Serve:", "Build:"]


def commands(group: click.Group = cli, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield prefix + name, command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")


def test_help_groups_every_command_with_what_it_does() -> None:
    lines = ok("--help").splitlines()
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", *TITLES]
    shown = [line.split()[0] for line in lines[lines.index("Search:") :] if line.startswith("  ")]
    assert shown == [name for name, _ in commands() if " " not in name]
    assert len(shown) == len(set(shown)) == 31


def test_short_options_are_the_same_on_every_command() -> None:
    seen = set()
    for name, command in commands():
        for param in command.params:
            short = {option for option in param.opts if not option.startswith("--")}
            if isinstance(param, click.Option):
                expected = {SHORT[option] for option in param.opts if option in SHORT}
                assert short == expected, (name, param.opts)
                seen |= short
    assert seen == set(SHORT.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serch", "dog"), "No such command 'serch': did you mean 'search'?"),
        (("lits",), "No such command 'lits': did you mean 'list'?"),
        (("llm", "biuld"), "No such command 'biuld': did you mean 'build'?"),
        (("search", "dog", "--limt", "3"), "--limit"),
    ],
)
def test_the_nearest_command_and_option_are_suggested(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    assert "No such command 'xyzzy'\n" in run("xyzzy").stderr


@pytest.mark.parametrize(
    ("open", "url", "said"),
    [
        (open_store, "./pics", "'./pics' is not the URL of a store; did you mean 'sqlite:./pics'? it begins with"),
        (open_store, "C:\\pics", r"did you mean 'sqlite:C:\\pics'"),
        (open_store, "sqlite", "did you mean 'sqlite:'"),
        (open_store, "sqlte:./pics", "no store 'sqlte:'; did you mean 'sqlite:'"),
        (open_store, "sqlite:./pics?langauge=de", "no option 'langauge'; did you mean 'language'"),
        (open_encoder, "clip", "did you mean 'onnx:clip'"),
        (open_encoder, "onnx:cilp", "no model 'cilp'; did you mean 'clip'"),
        (open_encoder, "onxx:clip", "did you mean 'onnx:'"),
        (open_generator, "extractiv", "did you mean 'extractive:'"),
        (open_generator, "onnx:demo-gtp2", "did you mean 'demo-gpt2'"),
        (open_generator, "gpt-4", "did you mean 'openai:https://api.openai.com/v1?model=gpt-4'? it begins with"),
        (open_generator, "claude-3", "did you mean 'openai:http://HOST:8000/v1?model=claude-3'"),
        (open_generator, "llama3", "did you mean 'openai:http://HOST:8000/v1?model=llama3'"),
        (open_generator, "demo-gpt2", "did you mean 'onnx:demo-gpt2'"),
        (open_generator, "./demo", "did you mean 'onnx:./demo'"),
        (open_encoder, "all-MiniLM-L6-v2", "did you mean 'onnx:all-minilm-l6-v2'"),
        (open_encoder, "text-embedding-3-small", "'openai:https://api.openai.com/v1?model=text-embedding-3-small'"),
        (open_reranker, "gpt-4o", "did you mean 'judge:openai:https://api.openai.com/v1?model=gpt-4o'"),
        (open_reranker, "BAAI/bge-reranker-base", "did you mean 'onnx:BAAI/bge-reranker-base'"),
        (open_reranker, "onnx:demo-rernak", "no re-ranker 'demo-rernak'; did you mean 'demo-reranker'"),
    ],
)
def test_the_nearest_url_is_suggested(open: object, url: str, said: str) -> None:
    assert callable(open)
    with pytest.raises(ConfigError) as caught:
        open(url)
    assert said in str(caught.value)


def test_an_option_that_is_no_url_is_not_suggested() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("?password=secret")
    assert "secret" not in str(caught.value).partition("is not the URL")[2]


def test_quiet_prints_only_problems(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("a dog")
    arguments = ("--store", "sqlite:index", "--encoder", "mock:")
    done = run("index", "good.txt", *arguments, "-q", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for number in range(25):
        (tmp_path / f"bad{number:02}.png").write_bytes(b"no image")
    done = run("index", ".", *arguments, "-q", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "bad19.png" in done.stderr
    assert "bad24.png" not in done.stderr
    done = run("index", ".", *arguments, "-v", "--retry-rejects", cwd=tmp_path)
    assert "25 rejected" in done.stdout
    assert "bad24.png" in done.stderr
    for command in (
        ("copy", "--from", "sqlite:index", "--to", "sqlite:other"),
        ("export", "a.csv", "-s", "sqlite:index"),
    ):
        done = run(*command, "-q", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


ASCII = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "ascii:surrogateescape"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a text, a metadata key and an id that ASCII lacks."""
    folder = tmp_path_factory.mktemp("foreign")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add(Document("é", text="“Bär” \U0001f43b, a bear", metadata={"größe": "ß"}))
    return folder


LISTED = "\\xe9\t\\u201cB\\xe4r\\u201d \\U0001f43b, a bear"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "arguments", "shown"),
    [
        *((environment, ("list",), LISTED) for environment in ASCII),
        (ASCII[0], ("list", "--json"), "\\u201cB\\u00e4r\\u201d \\ud83d\\udc3b, a bear"),
        (ASCII[0], ("ask", "a bear", "--encoder", "mock:"), "\\u201d"),
    ],
)
def test_an_ascii_locale_shows_escapes(
    environment: dict[str, str], arguments: tuple[str, ...], shown: str, foreign: Path
) -> None:
    command = [sys.executable, "-m", "vlmsearch", *arguments, "--store", "sqlite:index"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=foreign, env=os.environ | environment, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize("environment", ASCII[::2], ids=["ascii", "locale"])
def test_a_terminal_in_an_ascii_locale_shows_escapes(environment: dict[str, str], foreign: Path) -> None:
    printed = on_a_terminal("list", "--store", "sqlite:index", cwd=foreign, environment=environment)
    assert b"\\u201cB\\xe4r\\u201d" in printed
    assert b"gr\\xf6\\xdfe=\\xdf" in printed
    assert printed.isascii()
