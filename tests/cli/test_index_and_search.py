"""The command line as a user runs it."""

import base64
import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from vlmsearch.cli.demo import GALLERY_SEED
from vlmsearch.demo.scenes import make_scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty scenes, a bad file and a table, indexed."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "pics").mkdir()
    for i in range(30):
        make_scene(16_000_000 + i).draw(128).save(folder / "pics" / f"{i:02}.png")
    (folder / "pics" / "bad.jpg").write_bytes(b"no image at all")
    rows = [{"id": f"note-{i}", "text": make_scene(16_000_000 + i).caption(), "n": i} for i in range(5)]
    (folder / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = json.loads(ok("index", "pics", "notes.jsonl", "--json", cwd=folder, **SETTINGS))
    assert (report["added"], len(report["rejects"])) == (35, 1)
    return folder


SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "onnx:demo"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "--store", "chroma://[::1/name"),
        ("info", "--store", "mongodb://[::1/db"),
        ("info", "--store", "mongodb+chroma://host/db?chroma=http://[::1"),
        ("index", ".", "--store", "sqlite:index", "--encoder", "triton://[::1/vlm"),
        ("triton", "status", "triton://[::1"),
    ],
    ids=" ".join,
)
def test_an_address_that_is_none_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, vlmsearch.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vlmsearch.cli" in loaded
    assert not {"onnxruntime", "chromadb", "rich", "PIL", "tokenizers", "torch"} & set(loaded)


def test_a_run_for_people_names_what_failed(folder: Path) -> None:
    done = run("index", "pics", cwd=folder, **SETTINGS)
    assert "0 added, 0 updated, 30 unchanged, 1 rejected" in done.stdout
    assert f"unsupported  {folder / 'pics' / 'bad.jpg'}: " in done.stderr


def test_search_prints_plain_lines_to_a_pipe(folder: Path) -> None:
    lines = ok("search", make_scene(16_000_003).caption(), "--limit", "4", "--all", cwd=folder, **SETTINGS).splitlines()
    rows = [line.split("\t") for line in lines]
    assert len(rows) == 4
    assert all(len(row) == 3 and 0 < float(row[0]) <= 1 for row in rows)
    assert "note-3" in {row[1] for row in rows}


def test_search_opens_the_encoder_that_built_the_index(folder: Path) -> None:
    found = json.loads(ok("search", "a star", "--all", "--json", "--store", "sqlite:index", cwd=folder))["matches"]
    assert len(found) == 10
    assert set(found[0]) == {"id", "score", "text", "image", "metadata", "fields", "parts", "passage"}


def test_the_page_is_self_contained(folder: Path) -> None:
    done = run(
        "search", "a <b>star</b>", "--html", "out.html", "--image", "pics/01.png", "--all", cwd=folder, **SETTINGS
    )
    assert done.returncode == 0
    page = (folder / "out.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 6
    assert "a &lt;b&gt;star&lt;/b&gt;" in page
    assert "<b>star" not in page
    assert "prefers-color-scheme: dark" in page
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.search("<style>(.*)</style>", page, re.DOTALL)
    assert policy
    assert style
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    assert policy[1].split("; ")[:3] == ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'"]
    assert not re.search(r"<[^>]*\s(style|on\w+)\s*=", page), "the policy lets no attribute be a style or a script"
    for outside in ("http://", "https://", "<script", 'src="/', "file:"):
        assert outside not in page


def test_ask_says_when_nothing_matches(folder: Path) -> None:
    text = ok("ask", "a star", "--where", '{"n": 99}', cwd=folder, **SETTINGS)
    assert text == "Nothing in the index matches the question.\n"


def test_info_shows_what_built_the_index_and_what_failed(folder: Path) -> None:
    found = json.loads(ok("info", "--json", "--rejects", cwd=folder, **SETTINGS))
    assert found["documents"] == 35
    assert found["fingerprint"].startswith("demo-clip:")
    assert found["rejected"] == {"unsupported": 1}
    assert found["words"] == "auto"
    assert list(found["relevance"]) == ["clip/image", "minilm/text"]
    assert all(basis.startswith("fitted on labelled pairs, with") for basis in found["relevance"].values())
    assert found["threshold"] == 0.3
    assert "words       auto\n" in ok("info", cwd=folder, **SETTINGS)
    assert f"unsupported  {folder / 'pics' / 'bad.jpg'}: " in ok("info", "--rejects", cwd=folder, **SETTINGS)


def test_delete_takes_ids_and_paths(folder: Path, tmp_path: Path) -> None:
    store = {"VLMSEARCH_STORE": f"sqlite:{tmp_path / 'index'}", "VLMSEARCH_ENCODER": "onnx:demo"}
    ok("index", "pics", "notes.jsonl", cwd=folder, **store)
    assert ok("delete", "note-1", "pics/00.png", cwd=folder, **store) == "2 deleted\n"
    done = run("delete", "note-1", cwd=folder, **store)
    assert done.returncode == 1
    assert "none of these ids" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["index", "nowhere"], 1, "no such file or folder: 'nowhere'"),
        (["index", "*.gif"], 1, "nothing matches '*.gif'"),
        (["index", "empty"], 1, "no images, texts or rows in empty"),
        (["index", "notes.jsonl", "--columns", "body"], 1, "--columns names columns for id, text and image, such as"),
        (["index"], 2, "Missing argument"),
        (["search"], 2, "give a text, an --image, --like or several of them"),
        (["search", " "], 2, "give a text, an --image, --like or several of them"),
        (["search", "x", "--store", "sqlite:nowhere"], 1, "no index at"),
        (["info", "--store", "sqlite:nowhere"], 1, "no index at"),
        (["search", "x", "--store", "redis:x"], 1, "no store 'redis:'; there are chroma:, mock:"),
        (["search", "x", "--encoder", "onnx:nothing"], 1, "no model 'nothing'"),
        (["search", "x", "--encoder", "mock:"], 1, "was built with demo-clip:"),
        (["index", "pics", "--encoder", "mock:"], 1, "was built with demo-clip:"),
        (["search", "--image", "notes.jsonl"], 1, "notes.jsonl"),
        (["search", "--image", "nowhere.jpg"], 1, "nowhere.jpg"),
        (["search", "x", "--where", "{"], 2, "no JSON"),
        (["search", "x", "--where", "[1]"], 2, "a filter is a JSON object"),
        (["search", "x", "--where", '{"n": {"$where": "1"}}'], 2, "no such operator"),
        (["search", "x", "--limit", "0"], 2, "0 is not in the range"),
        (["search", "x", "--html", "no/such/folder.html"], 1, "cannot write no/such/folder.html"),
        (["ask", ""], 2, "the question is empty"),
        (["nonsense"], 2, "No such command 'nonsense'"),
    ],
)
def test_bad_input_gets_one_clear_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    done = run(*arguments, cwd=folder, **SETTINGS)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == (1 if code == 1 else len(done.stderr.strip().splitlines()))


def test_files_that_may_not_be_read_stop_no_others(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.jsonl", "sealed/d.txt", "sub/e.txt", "sub/shut/f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "a red star"}')
    shut = ["b.txt", "c.jsonl", "sealed", "sub/shut"]
    command = ["index", "a.txt", "b.txt", "c.jsonl", "sealed/d.txt", "sub", "--prune", "--json"]
    assert json.loads(ok(*command, cwd=tmp_path, **SETTINGS))["added"] == 6
    for name in shut:
        (tmp_path / name).chmod(0)
    caps = "-dac_override,-dac_read_search"
    limits = [] if os.geteuid() else ["setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}"]
    limited = [*limits, sys.executable, "-m", "vlmsearch", *command]
    try:
        done = subprocess.run(
            limited, capture_output=True, text=True, cwd=tmp_path, env=os.environ | SETTINGS, timeout=120, check=False
        )
    finally:
        for name in shut:
            (tmp_path / name).chmod(0o755)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["unchanged"], report["pruned"]) == (2, 0)
    unread = ["b.txt", "c.jsonl", "sealed/d.txt", "sub/shut"]
    assert sorted((r["id"], r["code"]) for r in report["rejects"]) == [
        (str(tmp_path / name), "unreadable") for name in unread
    ]
    assert json.loads(ok(*command, cwd=tmp_path, **SETTINGS))["unchanged"] == 6
    assert json.loads(ok("info", "--json", cwd=tmp_path, **SETTINGS))["rejected"] == {}


def test_doctor_finds_this_installation_sound() -> None:
    findings = {finding["check"]: finding for finding in json.loads(ok("doctor", "--json"))}
    assert findings["encoding"]["detail"] == "onnx:demo runs on CPUExecutionProvider"
    assert findings["onnx:demo"]["ok"]
    assert findings["sqlite"]["detail"].startswith("SQLite 3.")
    assert {findings[name]["required"] for name in ("chromadb", "psycopg", "pymongo")} == {False}
    assert {"jpeg", "png", "tiff", "gif", "bmp", "webp"} <= set(findings["images"]["detail"].split(", "))
    assert "python" in ok("doctor")


def test_backends_lists_what_can_be_used() -> None:
    rows = {(row["kind"], row["scheme"]): row for row in json.loads(ok("backends", "--json"))}
    for known in (
        ("encoder", "onnx"),
        ("store", "sqlite"),
        ("store", "chroma"),
        ("store", "mock"),
        ("generator", "extractive"),
    ):
        assert rows[known]["usable"]
        assert rows[known]["what"]


def test_the_demo_draws_indexes_and_searches(tmp_path: Path) -> None:
    found = json.loads(ok("demo", "--scenes", "20", "--json", cwd=tmp_path))
    assert found["added"] == 20
    assert len(list((tmp_path / "demo" / "gallery").glob("*.png"))) == 20
    assert len(found["queries"]) >= 5
    assert sum(bool(query["matches"]) for query in found["queries"]) >= 2, "20 scenes do not have all that is asked for"
    assert "base64" in Path(found["page"]).read_text()
    assert json.loads(ok("demo", "--scenes", "20", "--json", cwd=tmp_path))["unchanged"] == 20


WITHOUT_DRIVERS = """
import sys
sys.modules |= dict.fromkeys(("bson", "chromadb", "pgvector", "psycopg", "pymongo"))
from vlmsearch.cli import main
main()
"""


def test_the_default_store_needs_no_driver(tmp_path: Path) -> None:
    def vlmsearch(*arguments: str) -> str:
        command = [sys.executable, "-c", WITHOUT_DRIVERS, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    assert json.loads(vlmsearch("demo", "--scenes", "12", "--json"))["added"] == 12
    assert vlmsearch("index", "demo/gallery.jsonl", "--encoder", "onnx:demo").startswith("12 added")
    assert (tmp_path / "vlmsearch-index").is_file()
    assert len(vlmsearch("search", "a red star", "--limit", "3", "--all").splitlines()) == 3
    for store, extras in (("chroma://h/x", "chroma"), ("mongodb://h/x", "mongodb"), ("postgresql://h/x", "postgresql")):
        said = vlmsearch("info", "--store", store)
        assert re.search(rf"which is not installed: pip install '\S*\[{extras}\]'\n$", said), said


@pytest.mark.slow
def test_the_demo_answers_its_question_with_citations_that_hold(tmp_path: Path) -> None:
    answer = json.loads(ok("demo", "--json", cwd=tmp_path))["answer"]
    cited = [citation["id"] for citation in answer["citations"]]
    assert cited
    assert answer["removed"] == []
    matches = {match["id"]: match for match in answer["matches"]}
    for id in cited:
        assert matches[id]["text"] is None
        assert answer["read_as"][id] == "picture"
        scene = make_scene(GALLERY_SEED + int(id.removeprefix("scene-")))
        [count] = [group.count for group in scene.groups if (group.shape, group.colour) == ("crescent", "white")]
        assert f"{('no', 'one', 'two', 'three', 'four')[count]} white crescent" in answer["text"]
