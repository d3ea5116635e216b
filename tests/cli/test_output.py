"""The command line where the world around it is not as it should be."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.cli import Result, assert_one_line, ok, run, run_process
from tests.support.terminal import on_a_terminal
from vlmsearch import Document, Pipeline
from vlmsearch.cli.demo import draw_gallery
from vlmsearch.registry import open_store

WITHOUT_RIGHTS = "" if os.geteuid() else "setpriv --bounding-set=-all --inh-caps=-all "
"""What a folder's mode forbids is forbidden to root only once it has given up its rights."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add([Document("a", text="a red star"), Document("b", text="a blue heart")])
    return folder


SEARCH = ("search", "star", "--all", "--store", "sqlite:index", "--encoder", "mock:")


def in_a_shell(script: str, *, cwd: Path) -> Result:
    """What a script does, in which ``vlmsearch`` is this one."""
    defined = f'vlmsearch() {{ {WITHOUT_RIGHTS}{shlex.quote(sys.executable)} -m vlmsearch "$@"; }}\n{script}'
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        ["bash", "-c", defined], capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code"), [(SEARCH, 0), (("info", "--store", "sqlite:nowhere"), 1), (("search", "--limit", "0"), 2)]
)
def test_a_command_in_this_process_is_as_in_one_of_its_own(folder: Path, arguments: tuple[str, ...], code: int) -> None:
    here, elsewhere = run(*arguments, cwd=folder), run_process(*arguments, cwd=folder)
    assert here.returncode == elsewhere.returncode == code
    assert (here.stdout, here.stderr) == (elsewhere.stdout, elsewhere.stderr)


@pytest.mark.parametrize("arguments", [SEARCH, ("--help",)])
def test_output_that_cannot_be_written_is_one_line(folder: Path, arguments: tuple[str, ...]) -> None:
    done = in_a_shell(f"vlmsearch {shlex.join(arguments)} > /dev/full", cwd=folder)
    assert_one_line(done, "the output cannot be written: No space left on device")


def test_a_closed_output_is_one_line(folder: Path) -> None:
    assert_one_line(in_a_shell(f"vlmsearch {shlex.join(SEARCH)} >&-", cwd=folder), "standard output is closed")


def test_nothing_is_lost_where_standard_error_is_closed(folder: Path) -> None:
    done = in_a_shell(f"vlmsearch {shlex.join(SEARCH)} 2>&-", cwd=folder)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("touch gallery", "cannot draw into .: File exists: 'gallery'"),
        ("mkdir -p gallery/scene-0000.png", "cannot draw into .: Is a directory: 'gallery/scene-0000.png'"),
        ("mkdir gallery.jsonl", "cannot draw into .: Is a directory: 'gallery.jsonl'"),
    ],
)
def test_a_demo_that_cannot_be_drawn_is_one_line(tmp_path: Path, before: str, message: str) -> None:
    subprocess.run(["bash", "-c", before], cwd=tmp_path, check=True)
    assert_one_line(run("demo", "--scenes", "10", "--out", ".", "--json", cwd=tmp_path), message)


def test_a_picture_of_the_demo_that_was_cut_off_is_drawn_again(tmp_path: Path) -> None:
    ok("demo", "--scenes", "10", "--json", cwd=tmp_path)
    cut, whole = (tmp_path / "demo" / "gallery" / f"scene-{number:04}.png" for number in (3, 4))
    drawn, written = cut.read_bytes(), whole.stat().st_mtime_ns
    for size in (len(drawn) // 2, len(drawn) - 100, 40, 0):
        cut.write_bytes(drawn[:size])
        draw_gallery(tmp_path / "demo", 10, quiet=True)
        assert cut.read_bytes() == drawn
    assert whole.stat().st_mtime_ns == written
    cut.write_bytes(drawn[:99])
    ok("demo", "--scenes", "10", "--json", cwd=tmp_path)


@pytest.mark.parametrize("command", [("search", "star"), ("ask", "a star?"), ("index", "a.txt")])
@pytest.mark.parametrize("names", ["mock", "demo-minilm+unknown"])
def test_an_index_of_an_encoder_without_a_name_asks_for_its_url(
    tmp_path: Path, command: tuple[str, ...], names: str
) -> None:
    (tmp_path / "a.txt").write_text("a red star")
    encoder = MockEncoder()
    encoder.fingerprint = "+".join(f"{name}:123" for name in names.split("+"))
    with Pipeline(encoder, open_store(f"sqlite:{tmp_path / 'index'}")) as pipeline:
        pipeline.add([Document("a", text="a red star")])
    done = run(*command, "--store", "sqlite:index", cwd=tmp_path)
    assert_one_line(done, f"index was built with {encoder.fingerprint}, which has no name here: give its URL with")


@pytest.mark.parametrize(
    ("cause", "code", "message"),
    [("KeyboardInterrupt()", 130, "Interrupted."), ("None", 1, "ImportError: initialization failed")],
)
def test_a_package_whose_loading_was_interrupted_is_no_broken_one(cause: str, code: int, message: str) -> None:
    script = f"""
import vlmsearch.cli

def load(**_):
    raise ImportError("initialization failed") from {cause}

vlmsearch.cli.cli.main = load
vlmsearch.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, message)
    assert ("Traceback" in done.stderr) == (code == 1)


def test_an_image_without_a_path_is_asked_for(folder: Path) -> None:
    done = run(*SEARCH, "--image", "", cwd=folder)
    assert done.returncode == 2
    assert "'--image': an image needs a path" in done.stderr


def test_an_index_that_may_not_be_written_can_be_searched(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    shutil.copy(folder / "index", tmp_path / "kept" / "index")
    (tmp_path / "kept" / "index").chmod(0o444)
    (tmp_path / "kept").chmod(0o555)
    done = in_a_shell("vlmsearch delete a --store sqlite:kept/index", cwd=tmp_path)
    assert_one_line(done, "sqlite:kept/index failed to delete documents: attempt to write a readonly database")
    found = in_a_shell("vlmsearch search star --store sqlite:kept/index --encoder mock:", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    (tmp_path / "kept").chmod(0o755)


def test_a_current_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    done = in_a_shell("mkdir gone && cd gone && rmdir ../gone && vlmsearch info", cwd=tmp_path)
    assert_one_line(done, "the current folder cannot be used")


@pytest.mark.parametrize("arguments", ["index '~nouser/x'", "info --store sqlite:~nouser/x"])
def test_a_home_that_is_not_there_is_named(tmp_path: Path, arguments: str) -> None:
    done = in_a_shell(f"unset HOME; vlmsearch {arguments}", cwd=tmp_path)
    assert_one_line(done, "'~nouser/x' has no home folder here")


@pytest.mark.parametrize(
    "where", ["[" * 50_000, '{"$and": [' * 400 + '{"n": 1}' + "]}" * 400], ids=["JSON", "a filter"]
)
def test_a_filter_that_nests_too_deep_is_no_crash(folder: Path, where: str) -> None:
    done = run(*SEARCH, "--where", where, cwd=folder)
    assert done.returncode == 2
    assert "a filter nests objects and lists at most 100 deep" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_index_that_may_not_be_looked_at_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    done = in_a_shell("vlmsearch info --store sqlite:closed/index", cwd=tmp_path)
    assert_one_line(done, f"sqlite:closed/index failed to look for the index: {tmp_path / 'closed/index'}: Permission")


def test_reindex_takes_its_model_from_the_command_line_only(tmp_path: Path) -> None:
    environment = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "mock:"}
    (tmp_path / "a.txt").write_text("a red star")
    ok("index", "a.txt", cwd=tmp_path, **environment)
    assert ok("reindex", "--drop-old", cwd=tmp_path, **environment) == "there is no replaced index\n"
    done = run("reindex", cwd=tmp_path, **environment)
    assert_one_line(done, "sqlite:index was built with mock:")
    assert "has no name here: give its URL with --encoder" in done.stderr
    assert ok("reindex", "--encoder", "mock:", cwd=tmp_path, **environment).startswith("1 documents, 0 encoded")
    ok("reindex", "--encoder", "onnx:demo", cwd=tmp_path, **environment)
    assert ok("reindex", "--drop-old", cwd=tmp_path, **environment) == "removed the replaced index\n"
    assert "demo-clip:" in ok("info", cwd=tmp_path, **environment)


def test_no_color_is_heeded_on_a_terminal() -> None:
    assert b"\x1b[32mok" in on_a_terminal("doctor", environment={"NO_COLOR": ""})
    plain = on_a_terminal("doctor", environment={"NO_COLOR": "1"})
    assert plain.startswith(b"ok  python")
    assert b"\x1b" not in plain
