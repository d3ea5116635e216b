"""Parts of files that were not read, and files that nothing takes: in metadata, reports and facts of an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import ok, run
from tests.support.object_storage import put
from tests.support.pdf_files import write_pdf
from vlmsearch import ConfigError, Document, IndexReport, Pipeline, SourceOptions
from vlmsearch._util.unread import unread_counts, unread_in, unread_metadata, unread_text
from vlmsearch.index import add_reported
from vlmsearch.indexing.sources import Paths
from vlmsearch.indexing.unread import endings_text
from vlmsearch.stores.base import Store
from vlmsearch.stores.sqlite.store import SqliteStore

COUNTS = {"comment": 1_200, "text box": 2, "summary": 2, "chart": 1}
WORDS = "1,200 comments, 2 summaries, 2 text boxes, 1 chart"


@pytest.fixture(params=[lambda path: SqliteStore(str(path / "index")), lambda _: MemoryStore()])
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    store: Store = request.param(tmp_path)
    with Pipeline(MockEncoder(), store) as opened:
        yield opened


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with two documents that were not read whole, one that was, and one with such keys of its own."""
    rows = [
        {"id": "a", "text": "a dog", **unread_metadata({"comment": 2, "chart": 1})},
        {"id": "b", "text": "a cat", **unread_metadata({"comment": 1})},
        {"id": "c", "text": "a car"},
        {"id": "own", "text": "a box", "unread": "yes", "unread_count": 7},
    ]
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_numbers_become_words_and_come_back() -> None:
    assert unread_text(COUNTS) == WORDS
    assert unread_counts(WORDS) == COUNTS
    assert unread_in(unread_metadata(COUNTS)) == COUNTS
    assert unread_text(COUNTS, limit=2) == "1,200 comments, 2 summaries and 2 more kinds"
    assert unread_metadata({}) == {}


@pytest.mark.parametrize(
    "own", [{"unread": True, "unread_count": 3}, {"unread": "2 comments"}, {"unread": "some", "unread_count": 1}, {}]
)
def test_metadata_of_the_users_own_are_nothing_that_was_not_read(own: dict[str, object]) -> None:
    assert unread_in(own) == {}


def test_a_run_says_which_parts_were_not_read_and_the_next_one_that_there_are_such(
    pipeline: Pipeline, table: Path
) -> None:
    first = pipeline.index(table)
    assert (first.partly_read, first.unread, first.partly_read_in_all) == (2, {"comment": 3, "chart": 1}, 0)
    second = pipeline.index(table)
    assert (second.unchanged, second.partly_read, second.unread, second.partly_read_in_all) == (4, 0, {}, 2)
    info = pipeline.info()
    assert (info["partly_read"], info["unread"]) == (2, {"comment": 3, "chart": 1})
    [own] = pipeline.get("own")
    assert own.metadata == {"unread": "yes", "unread_count": 7}


def test_documents_that_are_added_count_too(pipeline: Pipeline) -> None:
    documents = [Document("a", text="a dog", metadata=unread_metadata({"chart": 2})), Document("b", text="a cat")]
    report = add_reported(pipeline, documents)
    assert (report.partly_read, report.unread) == (1, {"chart": 2})
    assert report.counts() == {"added": 2, "partly_read": 1, "unread": 2}
    assert "partly_read=1, unread=2" in repr(report)


def test_files_that_nothing_takes_are_counted_by_ending(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "below").mkdir(parents=True)
    odd = ["README", "odd. a sentence", "x.aVeryLongEnding", ".hidden"]
    for name in ["a.log", "B.LOG", "below/c.log", "t.csv", "d.srt", "page.html", "note.txt", *odd]:
        (folder / name).write_text("words")
    write_pdf(folder / "a.pdf", ["words"])
    source = Paths([folder, folder / "below"])
    others = {".log": 3, "(none)": 3, ".csv": 1, ".srt": 1}
    assert len(source) == 1
    for _ in range(2):  # it was listed before for its length, and is listed again
        report = pipeline.index(source)
        assert (report.others, report.left_out) == (others, {"pdf": 1, "office": 1})
    films = pipeline.index(Paths([folder], options=SourceOptions(video=True, pdf=True)))
    assert films.others == others  # of no film
    (folder / "D.mp4").touch()
    (folder / "d.en.hi.srt").touch()
    (folder / "d_en.srt").touch()
    films = pipeline.index(Paths([folder], options=SourceOptions(video=True, pdf=True)))
    assert films.others == others


def test_endings_that_are_counted_are_not_without_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.indexing.sources._MAX_ENDINGS", 2)
    for name in ("a.aa", "b.bb", "c.cc", "d.aa", "e.dd"):
        (tmp_path / name).touch()
    source = Paths([tmp_path])
    assert len(source) == 0
    assert source.others() == {".aa": 2, "(other)": 2, ".bb": 1}
    assert endings_text(source.others(), limit=2) == "(other) 2, .aa 2 and 1 more ending"


def test_the_index_itself_is_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a dog")
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        assert pipeline.index(tmp_path).others == {}
        for name in ("indexes", "index-old.log"):
            (tmp_path / name).touch()
        assert pipeline.index(tmp_path).others == {"(none)": 1, ".log": 1}


@pytest.mark.usefixtures("storage")
def test_files_in_object_storage_that_nothing_takes_are_counted() -> None:
    for name in ("note.txt", "a.log", "below/b.log", ".hidden/c.log"):
        put(f"others/{name}", b"words")
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        assert pipeline.index("s3://photos/others").others == {".log": 2}


def test_a_folder_with_nothing_that_is_taken_says_which_endings_there_are(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a.log", "b.log", "t.csv"):
        (folder / name).touch()
    with pytest.raises(ConfigError, match=r"no images, texts or rows in .*, but other files: \.log 2, \.csv 1; name a"):
        pipeline.index(folder)


def test_the_command_line_says_it_and_lists_such_documents(tmp_path: Path, table: Path) -> None:
    folder, store = tmp_path / "files", ("--store", f"sqlite:{tmp_path}/index")
    folder.mkdir()
    for ending in "abcdef":
        (folder / f"x.{ending}").touch()
    index = ("index", folder, table, *store, "--encoder", "mock:")
    note = "2 documents have parts that were not read: 3 comments, 1 chart (vlmsearch list --unread)"
    assert run(*index).stderr == f"6 other files: .a 1, .b 1, .c 1, .d 1, .e 1 and 1 more ending\n{note}\n"
    note = "2 documents in the index have parts that were not read (vlmsearch list --unread)"
    assert run(*index, "--verbose").stderr == f"6 other files: .a 1, .b 1, .c 1, .d 1, .e 1, .f 1\n{note}\n"
    report = json.loads(ok(*index, "--json"))
    assert (report["partly_read_in_all"], report["others"]) == (2, {f".{ending}": 1 for ending in "abcdef"})
    assert ok("list", "--unread", "--where", "unread_count<=3", *store) == (
        "a\t2 comments, 1 chart\ta dog\nb\t1 comment\ta cat\n"
    )
    assert [row["id"] for row in json.loads(ok("list", "--unread", "--json", *store))["documents"]] == ["a", "b", "own"]
    said = "not read    3 comments, 1 chart, of 2 documents: `vlmsearch list --unread`"
    assert said in ok("info", *store).splitlines()
    assert json.loads(ok("info", "--json", *store))["unread"] == {"comment": 3, "chart": 1}


def test_one_is_one() -> None:
    from vlmsearch.indexing.unread import partly_read

    assert partly_read(IndexReport(partly_read=1, unread={"chart": 1})) == (
        "1 document has parts that were not read: 1 chart"
    )
    assert partly_read(IndexReport(partly_read_in_all=1)) == "1 document in the index has parts that were not read"
    assert partly_read(IndexReport(added=1)) == ""
