"""The library's messages name arguments; the command line names its flags."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import vlmsearch
from vlmsearch import BackendError, ConfigError, MissingDependencyError, VlmsearchError
from vlmsearch.cli import cli
from vlmsearch.cli.common import Group, option
from vlmsearch.cli.serve import serve
from vlmsearch.triton.repository.options import Queue, RepoOptions, check_options

LIBRARY = Path(vlmsearch.__file__).parent
COMMANDS = re.compile(r"`[^`]*`|^(pip|git) .*|^--find-links |\bvlmsearch [a-z].*")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-batch-size", "0"], "--max-batch-size is at least 1, not 0"),
        (["--preferred-batch-size", "65"], "--preferred-batch-size is from 1 to --max-batch-size (64)"),
        (["--queue-limit", "-1"], "--queue-limit is at least 0, not -1"),
        (["--gpus", "1"], "--gpus needs --device gpu"),
        (
            ["--runtime", "tensorrt", "--platform", "onnxruntime"],
            "--runtime tensorrt is for --platform python; --platform tensorrt runs engines in Triton's own backend",
        ),
    ],
)
def test_an_error_of_the_library_names_the_flags_of_the_command(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(cli, ["triton", "repo", "--models", "demo", "--out", str(tmp_path / "R"), *arguments])
    assert done.exit_code == 1
    assert str(done.exception).startswith(message)


def test_the_library_names_its_own_arguments() -> None:
    with pytest.raises(ConfigError, match=r"^`preferred` is from 1 to `max_batch_size` \(64\)$"):
        check_options(RepoOptions(queue=Queue(preferred=(65,))))


def test_flags_of_all_kinds_are_named() -> None:
    @click.group(cls=Group)
    def group() -> None:
        pass

    @group.command()
    @option("--model", "models", multiple=True)
    @option("--docker/--here", "docker", default=None)
    @option("--kind")
    @click.argument("fault")
    def serve(models: tuple[str, ...], docker: bool | None, kind: str | None, fault: str) -> None:
        error = {"backend": BackendError, "import": MissingDependencyError}[fault]
        raise error("give `model`, `models`, `kind=x`, `docker=True` or `docker=False`, not `other` or `a command`")

    for fault in ("backend", "import"):
        done = CliRunner().invoke(group, ["serve", fault])
        assert isinstance(done.exception, VlmsearchError)
        expected = "give --model, --model, --kind x, --docker or --here, not `other` or `a command`"
        assert str(done.exception) == expected


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module but for its docstrings, an f-string as one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    aside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    aside |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in aside:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.slow
def test_no_message_of_the_library_names_a_flag_outside_a_whole_command() -> None:
    found = [
        f"{path.relative_to(LIBRARY)}:{line}: {text}"
        for path in LIBRARY.rglob("*.py")
        if not path.is_relative_to(LIBRARY / "cli")
        for line, text in strings(path)
        if " " in text and re.search(r"(?<![\w-])--[a-z]", COMMANDS.sub("", text))
    ]
    assert found == []


def test_what_kubernetes_and_docker_set_for_a_service_of_our_name_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for link in ("tcp://10.0.0.1:80", "udp://[fd00::1]:8080", "sctp://10.0.0.1:80"):
        monkeypatch.setenv("VLMSEARCH_PORT", link)
        assert serve.make_context("serve", []).params["port"] is None
    monkeypatch.setenv("VLMSEARCH_PORT", "9000")
    assert serve.make_context("serve", []).params["port"] == 9000
    monkeypatch.setenv("VLMSEARCH_STORE", "tcp://10.0.0.1:80")  # no Service has a variable of this name
    assert serve.make_context("serve", []).params["store"] == "tcp://10.0.0.1:80"
    monkeypatch.setenv("VLMSEARCH_PORT", "tcp://")
    with pytest.raises(click.BadParameter, match="not a valid integer"):
        serve.make_context("serve", [])
