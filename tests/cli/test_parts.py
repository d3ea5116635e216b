"""Parts of files on the command line: indexed with an option, shown by file, explained, deleted."""

import json
from pathlib import Path

from tests.support.cli import ok, run
from tests.support.facts import own
from tests.support.pdf_files import write_pdf
from vlmsearch.demo.scenes import make_scene


def test_pages_are_indexed_shown_explained_and_deleted(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["a red dog", "a blue car", "a red dog and a cat"])
    store = ("--store", f"sqlite:{tmp_path / 'index'}")
    left_out = run("index", tmp_path, *store, "--encoder", "onnx:demo")
    assert left_out.returncode == 1
    assert "were left out, since they are read with an option: --pdf\n" in left_out.stderr
    (tmp_path / "note.txt").write_text("stock prices")
    assert ok("index", tmp_path, *store, "--encoder", "onnx:demo").startswith("1 added")
    assert ok("index", tmp_path, "--pdf", *store).startswith("4 added, 0 updated, 1 unchanged")
    assert ok("index", path, *store).startswith("0 added, 0 updated, 1 unchanged")
    [line] = ok("search", "a red dog", "--min-score", "0.5", *store).splitlines()
    assert line.split("\t")[1:] == [f"{path}#page=1", "a red dog"]
    [match] = json.loads(ok("search", "a red dog", "--min-score", "0.5", "--json", *store))["matches"]
    assert own(match["metadata"]) == {"page": 1}
    assert next(iter(match["parts"])) == f"{path}#page=3"
    sheet = tmp_path / "sheet.html"
    ok("search", "a red dog", "--html", sheet, *store, cwd=tmp_path)
    assert "a.pdf, page 1 and" in sheet.read_text()
    why = json.loads(ok("explain", "a red dog", f"{path}#page=3", "--json", *store))
    assert (why["outcome"], why["place"]) == ("part", None)
    assert why["reason"].startswith(f"{path}#page=1 is a better part of the same file")
    assert ok("delete", path, *store) == "4 deleted\n"
    assert "note.txt" in ok("search", "stock prices", *store)


def test_files_that_an_option_takes_are_counted_where_it_is_not_given(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["a red dog"])
    write_pdf(tmp_path / "b.pdf", ["a blue car"])
    (tmp_path / "film.mp4").write_bytes(b"not looked at")
    (tmp_path / "note.txt").write_text("stock prices")
    settings = ("--store", f"sqlite:{tmp_path / 'index'}", "--encoder", "mock:")
    done = run("index", tmp_path, *settings)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "1 added")
    assert done.stderr == "3 files left out: add --pdf, --video\n"
    assert json.loads(ok("index", tmp_path, *settings, "--json"))["left_out"] == {"pdf": 2, "video": 1}
    done = run("index", tmp_path, "--pdf", *settings)
    assert done.stdout.startswith("4 added, 0 updated, 1 unchanged")
    assert done.stderr == "1 file left out: add --video\n"


def test_files_and_their_parts_are_counted_in_every_report(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_pdf(folder / "a.pdf", ["a red dog", "a blue car", "a cat"])
    (folder / "note.txt").write_text("stock prices")
    (folder / "rows.jsonl").write_text('{"id": "row#page=", "text": "a row"}')
    said, store = "6 documents (3 files or rows, 3 parts of files)", ("--store", f"sqlite:{tmp_path / 'index'}")
    done = ok("index", folder, folder / "rows.jsonl", "--pdf", *store, "--encoder", "mock:")
    assert done.startswith("6 added")
    assert done.splitlines()[1] == said
    again = ok("index", folder, "--pdf", *store, "--encoder", "mock:").splitlines()
    assert (again[0].split(" in ")[0], again[1:]) == ("0 added, 0 updated, 2 unchanged", [])
    assert f"documents   {said.replace(' documents', '')}\n" in ok("info", *store)
    assert f"documents   {said.replace(' documents', '')}\n" in ok("check", *store)
    assert run("count", *store).stderr == "3 files or rows, 3 parts of files\n"
    assert ok("export", tmp_path / "index.parquet", *store).startswith(f"{said} in ")
    copied = f"sqlite:{tmp_path / 'copy'}"
    assert ok("copy", "--from", store[1], "--to", copied).endswith(f" has {said}\n")
    other = "onnx:demo-minilm"
    reindexed = run("reindex", "--encoder", other, "--ignore-space", "--store", copied)
    assert reindexed.stdout.startswith(f"{said}, 6 encoded"), reindexed.stderr
    for command in (["info"], ["check"], ["count"], ["export", str(tmp_path / "other.parquet")]):
        facts = json.loads(ok(*command, *store, "--json"))
        assert (facts["documents"], facts["files"]) == (6, 3), command
    assert json.loads(ok("count", "--where", "page>=1", *store, "--json")) == {"documents": 3, "files": 0}


def test_a_reindex_says_that_its_model_takes_no_images(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    (tmp_path / "note.txt").write_text("stock prices")
    store = ("--store", f"sqlite:{tmp_path / 'index'}")
    ok("index", tmp_path / "scene.png", tmp_path / "note.txt", *store, "--encoder", "mock:")
    done = run("reindex", "--encoder", "onnx:demo-minilm", "--ignore-space", *store)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "1 documents cannot be encoded again, so the old index stays in use: onnx:demo-minilm takes no images; "
        "1 documents have only an image. --allow-missing leaves them out."
    )
    again = run("reindex", "--encoder", "onnx:demo-minilm", "--ignore-space", "--json", *store)
    assert (again.returncode, json.loads(again.stdout)["image_only"]) == (1, 1)
    left = run("reindex", "--encoder", "onnx:demo-minilm", "--ignore-space", "--allow-missing", *store)
    assert "texts alone" not in left.stdout
    (tmp_path / "rows.jsonl").write_text('{"id": "both", "text": "a dog", "image": "scene.png"}')
    both = ("--store", f"sqlite:{tmp_path / 'both'}")
    ok("index", tmp_path / "rows.jsonl", *both, "--encoder", "mock:")
    told = ok("reindex", "--encoder", "onnx:demo-minilm", "--ignore-space", *both)
    assert "1 documents with an image are found by their texts alone: onnx:demo-minilm takes no images\n" in told
    refused = run("index", tmp_path / "scene.png", "--store", f"sqlite:{tmp_path}/new", "--encoder", "onnx:demo-minilm")
    assert "encodes no images" in refused.stderr
    ok("index", tmp_path / "note.txt", "--store", f"sqlite:{tmp_path}/new", "--encoder", "onnx:demo-minilm")
    asked = run("search", "--image", tmp_path / "scene.png", "--store", f"sqlite:{tmp_path}/new")
    assert asked.stderr == "Error: the encoder encodes no images: ask with a text\n"


def test_nothing_that_can_be_used_is_exit_1(tmp_path: Path) -> None:
    settings = ("--store", f"sqlite:{tmp_path / 'index'}", "--encoder", "mock:")
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "bad.png").write_bytes(b"no image")
    for _ in range(2):
        done = run("index", tmp_path / "pics", *settings)
        assert (done.returncode, done.stdout.startswith("0 added, 0 updated, 0 unchanged, 1 rejected")) == (1, True)
        assert "unsupported" in done.stderr
    done = run("index", tmp_path / "pics", *settings, "--json")
    assert (done.returncode, json.loads(done.stdout)["rejects"][0]["code"]) == (1, "unsupported")
    (tmp_path / "pics" / "note.txt").write_text("a note")
    assert run("index", tmp_path / "pics", *settings).returncode == 0
    assert run("index", tmp_path / "pics", *settings).returncode == 0, "the note is there, unchanged"
