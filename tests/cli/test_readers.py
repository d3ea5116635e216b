"""``--readers`` and ``--principals``: what a restricted command line shows, and that what is hidden is absent to it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.support.cli import ok, run
from vlmsearch import Document, Pipeline
from vlmsearch.cli import cli as program
from vlmsearch.demo.scenes import make_scene

STORE = ("--store", "sqlite:index")
ANN = ("--principals", "user:ann", "--principals", "group:hr")
READING = {
    "ask",
    "count",
    "delete",
    "describe",
    "duplicates",
    "eval",
    "explain",
    "get",
    "info",
    "label",
    "list",
    "mcp",
    "search",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_scene(1).draw(64).save(tmp_path / "scene.png")
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add(
            [
                Document("doc-b", text="a dog", image=tmp_path / "scene.png", readers=["user:bob"]),
                Document("mine", text="a cat", metadata={"year": 2024}, readers=["group:hr"]),
                Document("ours", text="a blue car", readers=["*"]),
            ]
        )
    return tmp_path


def test_files_are_indexed_with_readers(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").write_text("a dog in the snow")
    given = ("index", "notes", *STORE, "--encoder", "onnx:demo")
    for options, expected in (
        (("--readers", "group:hr", "--readers", "user:ann"), ["group:hr", "user:ann"]),
        ((), ["group:hr", "user:ann"]),
        (("--readers", ""), [""]),
        (("--readers", "*"), ["*"]),
    ):
        ok(*given, *options, cwd=tmp_path)
        [document] = json.loads(ok("list", *STORE, "--json", cwd=tmp_path))["documents"]
        assert document["metadata"]["readers"] == expected
    too_long = run(*given, "--readers", "x" * 257, cwd=tmp_path)
    assert "`readers` has at most 256 characters" in too_long.stderr.replace("--readers", "`readers`")


def test_what_is_read_is_restricted_to_principals(folder: Path) -> None:
    for options, ids in ((ANN, ["mine", "ours"]), (("--principals", ""), ["ours"]), ((), ["doc-b", "mine", "ours"])):
        listed = ok("list", *STORE, *options, cwd=folder).splitlines()
        assert [line.split("\t")[0] for line in listed] == ids
        assert int(ok("count", *STORE, *options, cwd=folder)) == len(ids)
        assert json.loads(ok("info", *STORE, *options, "--json", cwd=folder))["documents"] == len(ids)
        found = ok("search", "a dog", *STORE, *options, "--min-score", "0", cwd=folder).splitlines()
        assert sorted(line.split("\t")[1] for line in found) == ids


ON_AN_ID: dict[str, tuple[str, ...]] = {
    "get": ("get", "ID"),
    "get in JSON": ("get", "ID", "mine", "--json"),
    "a passage": ("get", "ID#passage=1"),
    "explain": ("explain", "a dog", "ID", "--json"),
    "search like": ("search", "--like", "ID"),
    "search without": ("search", "a dog", "--without-like", "ID"),
    "ask": ("ask", "Is there a dog?", "--generator", "extractive:"),
    "list": ("list", "--where", 'title = "ID"'),
    "count": ("count", "--where", 'title = "ID"'),
    "label": ("label", "--as", "dog,ID", "--json"),
    "duplicates": ("duplicates", "--json"),
    "describe": ("describe", "--dry-run", "--json", "--generator", "mock:?pictures=1"),
    "info": ("info", "--rejects"),
    "delete": ("delete", "ID"),
}
TIMES = ("seconds", "left_seconds")


@pytest.mark.parametrize("case", ON_AN_ID)
def test_a_hidden_id_is_an_absent_one(case: str, folder: Path) -> None:
    def said(id: str) -> tuple[int, str, str]:
        command = [word.replace("ID", id) for word in ON_AN_ID[case]]
        done = run(*command, *STORE, *ANN, cwd=folder)
        lines = [line for line in done.stdout.splitlines() if not any(f'"{name}"' in line for name in TIMES)]
        return done.returncode, "\n".join(lines).replace(id, "ID"), done.stderr.replace(id, "ID")

    assert said("doc-b") == said("doc-z")
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{folder / 'index'}") as pipeline:
        assert len(pipeline.get(["doc-b", "mine", "ours"])) == 3


def test_evaluation_knows_no_hidden_answers(folder: Path) -> None:
    results = []
    for id in ("doc-b", "doc-z"):
        (folder / "queries.jsonl").write_text(json.dumps({"query": "a cat", "relevant": ["mine", id]}))
        done = run("eval", "queries.jsonl", *STORE, *ANN, "--json", cwd=folder)
        measures = {name: field["measures"] for name, field in json.loads(done.stdout)["fields"].items()}
        results.append((done.returncode, measures, done.stderr.replace(id, "ID")))
    assert results[0] == results[1]
    assert (results[0][0], results[0][1]["fused"]["recall@10"]["value"]) == (0, 0.5)
    tuned = run("eval", "queries.jsonl", *STORE, *ANN, "--tune", cwd=folder)
    assert (tuned.returncode, "leave out --principals or --tune" in tuned.stderr) == (2, True)


def test_commands_that_read_take_principals_and_those_of_operators_do_not() -> None:
    context = click.Context(program)
    taking = {
        name
        for name in program.list_commands(context)
        if (command := program.get_command(context, name))
        and any("--principals" in parameter.opts for parameter in command.params)
    }
    assert taking == READING
    assert "No such option" in run("export", "x.csv", "--principals", "user:ann").stderr
