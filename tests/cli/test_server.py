"""``--server``: the commands do there what they do here."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import assert_one_line, ok, run
from tests.support.service import RunningService, serving
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.settings import IndexSettings, ServerSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, two of which show the same."""
    folder = tmp_path_factory.mktemp("server")
    pictures = folder / "pictures"
    pictures.mkdir()
    make_scene(3).draw(128).save(pictures / "scene.png")
    make_scene(3).draw(128).resize((96, 96)).save(pictures / "smaller.png")
    (pictures / "dog.txt").write_text("a dog in the snow")
    (pictures / "car.txt").write_text("a blue car")
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[RunningService]:
    """A service with the index of those files and an empty one; `store` is the URL of the former."""
    index = IndexSettings(store(folder), "onnx:demo", reranker="mock:", allow=(str(folder),))
    ok("index", folder / "pictures", "--store", store(folder), "--encoder", "onnx:demo")
    settings = ServerSettings(
        indexes={"default": index, "other": IndexSettings(f"sqlite:{folder / 'other'}", "mock:", allow=(str(folder),))},
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        yield running


def store(folder: Path) -> str:
    return f"sqlite:{folder / 'index'}"


def without_times(printed: str) -> str:
    return re.sub(r'"(seconds|p50|p95)": [\d.e-]+|\d+\.\d+ (s|ms)\b', "", printed)


@pytest.mark.parametrize(
    "command",
    [
        ["search", "dog snow"],
        ["search", "dog", "--all", "--json", "--facet", "x"],
        ["search", "xylophone"],
        ["search", "--image", "pictures/scene.png", "--json"],
        ["search", "dog", "--without-image", "pictures/scene.png", "--all"],
        ["explain", "a dog", "pictures/dog.txt"],
        ["explain", "a dog", "pictures/dog.txt", "--json", "--parts"],
        ["ask", "Which dog?"],
        ["ask", "Which dog?", "--stream", "--max-tokens", "20"],
        ["ask", "Which dog?", "--json"],
        ["label", "--as", "dog,car", "--min-score", "0"],
        ["label", "--as", "dog,car", "--json", "--single"],
        ["duplicates"],
        ["duplicates", "--json"],
        ["info"],
        ["eval", "queries.jsonl"],
        ["eval", "queries.jsonl", "--json"],
    ],
    ids=" ".join,
)
def test_a_command_prints_what_it_prints_here(command: list[str], folder: Path, service: RunningService) -> None:
    queries = [{"query": "a dog", "relevant": ["pictures/dog.txt"]}, {"query": "xylophone", "relevant": []}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    here = [*command, "--store", store(folder)]
    if command[0] not in ("info", "delete"):
        here += ["--encoder", "onnx:demo"]
    expected = run(*here, cwd=folder)
    found = run(*command, "--server", service.url, cwd=folder)
    assert expected.returncode == 0, expected.stderr
    assert without_times(found.stdout) == without_times(expected.stdout)
    assert without_times(found.stderr) == without_times(expected.stderr)
    assert found.returncode == 0


def test_a_page_holds_the_pictures_of_the_server(folder: Path, service: RunningService, tmp_path: Path) -> None:
    page = tmp_path / "search.html"
    ok("search", "--image", folder / "pictures" / "scene.png", "--html", page, "--server", service.url)
    assert "data:image/jpeg;base64," in page.read_text()


def test_the_reranker_of_the_server_is_asked_for_by_name(service: RunningService) -> None:
    plain, judged = (ok("search", "dog", "--server", service.url, *more) for more in ((), ("--rerank", "server")))
    assert plain != judged
    wrong = run("search", "dog", "--server", service.url, "--rerank", "onnx:other")
    assert wrong.returncode == 2
    assert "--rerank server" in wrong.stderr


def test_files_of_the_server_and_files_from_here_are_indexed_and_deleted(
    folder: Path, service: RunningService, tmp_path: Path
) -> None:
    where = ("--server", service.url, "--index", "other")
    assert ok("index", folder / "pictures", *where).startswith("4 added, 0 updated")
    assert "4 unchanged" in ok("index", folder / "pictures", "--prune", *where)
    assert "4 unchanged" in ok("index", "pictures", *where)  # which is relative to the folder that is allowed
    refused = run("index", tmp_path, *where)
    assert_one_line(refused, "is not there, or not below")

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "cat.txt").write_text("two cats on a sofa")
    (mine / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (mine / "a.log").touch()
    unread = {"unread": "2 comments", "unread_count": 2}
    rows = [{"id": str(number), "text": "x" * 30_000, **unread} for number in range(400)]  # several requests
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    upload = ("index", tmp_path / "rows.jsonl", "--upload", "--no-passages", "--json", *where)
    sent, again = json.loads(ok(*upload)), json.loads(ok(*upload))
    assert (sent["partly_read"], sent["unread"]) == (400, {"comment": 800})
    assert (again["unchanged"], again["partly_read"], again["partly_read_in_all"]) == (400, 0, 400)
    assert "not read    800 comments, of 400 documents" in ok("info", *where)
    assert ok("list", "--unread", "--limit", "1", *where).startswith("0\t2 comments\txxx")
    assert ok("delete", *(str(row["id"]) for row in rows), *where) == "400 deleted\n"
    report = json.loads(ok("index", mine, "--upload", "--json", *where))
    assert report["others"] == {".log": 1}
    assert (report["added"], [reject["code"] for reject in report["rejects"]]) == (1, ["truncated"])
    assert str(mine / "cat.txt") in ok("search", "cats sofa", *where)
    assert "broken.png" in ok("info", "--rejects", *where)

    assert ok("label", "--as", "dog", "--write", "--min-score", "0", *where).startswith("label\t")
    assert ok("search", "dog", "--where", '{"label": "dog"}', "--all", *where)
    assert ok("delete", mine / "cat.txt", *where) == "1 deleted\n"
    assert run("delete", "not there", *where).returncode == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["search", "dog", "--store", "mock:"], "leave out --store"),
        (["ask", "dog", "--generator", "mock:", "--encoder", "mock:"], "leave out --encoder and --generator"),
        (["index", ".", "--strict"], "leave out --strict and --no-follow"),
        (["index", ".", "--upload", "--prune"], "leave out --upload"),
        (["eval", __file__, "--tune"], "leave out --compare"),
    ],
)
def test_what_a_server_does_not_do_is_wrong_usage(command: list[str], message: str, service: RunningService) -> None:
    done = run(*command, "--server", service.url)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_files_are_uploaded_to_a_server_only() -> None:
    assert run("index", ".", "--upload").returncode == 2


def test_the_environment_names_a_server_and_the_command_line_goes_before_it(
    folder: Path, service: RunningService
) -> None:
    assert "dog.txt" in ok("search", "dog snow", VLMSEARCH_SERVER=service.url)
    assert "dog.txt" in ok("search", "dog snow", VLMSEARCH_STORE="mock:", VLMSEARCH_SERVER=service.url)
    assert_one_line(run("search", "dog", "--store", "mock:", VLMSEARCH_SERVER=service.url), "no index at mock:")
    assert_one_line(run("search", "dog", "--index", "none", VLMSEARCH_SERVER=service.url), "none")
    assert_one_line(run("search", "dog", "--server", "http://127.0.0.1:1"), "http://127.0.0.1:1 cannot be reached")
    assert_one_line(
        run("search", "dog", "--server", "http://192.0.2.1", VLMSEARCH_TOKEN="x"), "would cross the network"
    )


def test_a_search_on_a_server_loads_no_numpy_and_takes_little_time(service: RunningService) -> None:
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from vlmsearch.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "search", "dog snow", "--server", service.url]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "dog.txt" in done.stdout
    packages = {name.split(".")[0] for name in done.stderr.split()} - set(sys.stdlib_module_names)
    assert not packages & {"numpy", "onnxruntime", "PIL", "rich", "simsimd", "tokenizers", "fastapi"}
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.6  # 0.21 on a quiet machine
