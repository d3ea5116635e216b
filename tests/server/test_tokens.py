"""The file of tokens and the commands that change it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import assert_one_line, ok, run
from vlmsearch.errors import ConfigError
from vlmsearch.server.tokens import TokenFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_the_file_holds_no_token(path: Path) -> None:
    secret = TokenFile(path).add("page", role="read")
    assert re.fullmatch(r"vlms_[\w-]{43}", secret)
    assert secret.removeprefix("vlms_") not in path.read_text()


def test_a_token_is_found_by_its_secret_alone(path: Path) -> None:
    file = TokenFile(path)
    secrets = {name: file.add(name, role="write", indexes=["photos"]) for name in ("first", "second")}
    for name, secret in secrets.items():
        found = file.find(secret)
        assert found is not None
        assert found.name == name
    for wrong in ("", "first", secrets["first"][:-1], secrets["first"] + "x", "\udc80"):
        assert file.find(wrong) is None


def test_each_role_may_do_what_those_before_it_may(path: Path) -> None:
    file = TokenFile(path)
    may = {}
    for role in ("read", "write", "admin"):
        token = file.find(file.add(role, role=role))
        assert token is not None
        may[role] = [token.caller.may(each) for each in ("read", "write", "admin")]
    assert may == {"read": [True, False, False], "write": [True, True, False], "admin": [True, True, True]}


def test_a_change_by_another_process_is_seen(path: Path) -> None:
    server = TokenFile(path)
    assert server.find("vlms_none") is None
    secret = TokenFile(path).add("page", role="read")
    assert server.find(secret)
    TokenFile(path).remove("page")
    assert server.find(secret) is None


def test_a_file_that_has_gone_lets_nobody_in(path: Path) -> None:
    file = TokenFile(path)
    secret = file.add("page", role="read")
    assert file.find(secret)
    path.unlink()
    assert file.find(secret) is None


def test_a_damaged_file_leaves_the_tokens_before_in_force(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TokenFile(path)
    secret = file.add("page", role="read")
    assert file.find(secret)
    path.write_text(path.read_text()[:-20])
    assert file.find(secret)
    assert file.find(secret)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "stay in force" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.update(version=2), "no version 1"),
        (lambda found: found.update(tokens={}), "no version 1"),
        (lambda found: found["tokens"].append(dict(found["tokens"][0])), "two tokens have one name"),
        (lambda found: found["tokens"][0].update(role="root"), "read, write, admin, not 'root'"),
        (lambda found: found["tokens"][0].update(indexes="photos"), "a list of names"),
        (lambda found: found["tokens"][0].update(indexes=[]), "a list of names"),
        (lambda found: found["tokens"][0].update(sha256="ab"), "64 hexadecimal digits"),
        (lambda found: found["tokens"][0].update(principals=[]), "the principals of a token are a list of names"),
        (lambda found: found["tokens"][0].update(principals="group:hr"), "the principals of a token are a list"),
        (lambda found: found["tokens"][0].update(principals=["group:hr", ""]), "the principals of a token are a list"),
        (lambda found: found["tokens"][0].update(principals=["a\nb"]), "no controls"),
        (lambda found: found["tokens"][0].update(reader=["group:hr"]), "a token has name, role"),
        (lambda found: found["tokens"][0].pop("sha256"), "a token has name, role"),
        (lambda found: found["tokens"].insert(0, "page"), "a token has name, role"),
    ],
)
def test_what_is_no_file_of_tokens_is_refused(path: Path, change: Callable[[Any], object], said: str) -> None:
    TokenFile(path).add("page", role="read")
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match=re.escape(said)):
        TokenFile(path).read()


def test_a_token_without_principals_is_as_those_of_before(path: Path) -> None:
    file = TokenFile(path)
    secrets = [file.add("all", role="read"), file.add("ann", role="read", principals=["user:ann", "group:hr"])]
    everyone, ann = json.loads(path.read_text())["tokens"]
    assert "principals" not in everyone
    assert ann["principals"] == ["user:ann", "group:hr"]
    callers = [token.caller for secret in secrets if (token := TokenFile(path).find(secret))]
    assert [caller.principals for caller in callers] == [None, {"user:ann", "group:hr"}]
    assert [caller.scopes for caller in callers] == [(), ({"user:ann", "group:hr"},)]


def test_two_processes_do_not_change_the_file_at_once(path: Path) -> None:
    file = TokenFile(path)
    with file._changing(), pytest.raises(ConfigError, match="is changing"):
        TokenFile(path).add("page", role="read")
    assert not path.exists()


def test_the_commands(path: Path) -> None:
    of = ("--index", "photos", "--index", "maps", "--principals", "group:hr", "--principals", "user:ann")
    secret = ok("token", "add", "page", "--role", "write", *of, "--tokens", path)
    ok("token", "add", "all", VLMSEARCH_TOKENS=str(path))
    found = TokenFile(path).find(secret.strip())
    assert found is not None
    assert (found.role, found.indexes, found.principals) == ("write", ("photos", "maps"), ("group:hr", "user:ann"))
    listed = ok("token", "list", "--tokens", path)
    assert [line.split("\t")[:4] for line in listed.splitlines()[1:]] == [
        ["page", "write", "photos, maps", "group:hr, user:ann"],
        ["all", "read", "all", "all"],
    ]
    shown = json.loads(ok("token", "list", "--json", "--tokens", path))["tokens"]
    assert [(each["name"], each["indexes"]) for each in shown] == [("page", ["photos", "maps"]), ("all", None)]
    assert secret.strip() not in listed
    assert found.sha256 not in json.dumps(shown)
    assert ok("token", "remove", "page", "--tokens", path) == "page removed\n"
    assert TokenFile(path).find(secret.strip()) is None


def test_wrong_commands_say_so_on_one_line(path: Path) -> None:
    ok("token", "add", "page", "--tokens", path)
    assert_one_line(run("token", "add", "page", "--tokens", path), "there is a token 'page'")
    assert_one_line(run("token", "remove", "other", "--tokens", path), "there are: page")
    assert_one_line(run("token", "add", "a b", "--tokens", path), "letters, digits")
    assert_one_line(run("token", "add", "none", "--principals", "", "--tokens", path), "a list of names")
    path.write_text("[]")
    assert_one_line(run("token", "list", "--tokens", path), "is not a file of tokens")
    blocked = path.parent / "file"
    blocked.write_text("")
    assert_one_line(run("token", "add", "page", "--tokens", blocked / "tokens.json"), "cannot be changed")
    assert run("token", "add", "page").returncode == 2
