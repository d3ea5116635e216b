"""Titles and authors of files: found as text, and not where a producer filled them in by itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.facts import own
from tests.support.films import film
from tests.support.office import write
from tests.support.pdf_files import write_pdf
from vlmsearch import Document, Paths, Pipeline, SourceOptions, Store
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.indexing.containers import KINDS
from vlmsearch.media.about import About
from vlmsearch.stores.sqlite.store import SqliteStore

ALL = SourceOptions(pdf=True, video=True, office=True)
FORMATS = ("docx", "epub", "html", "mkv", "mp4", "ods", "odt", "pdf", "pptx", "rtf", "xlsx")
TITLE, AUTHOR, TEXT = "Lighthouse Chronicles", "Virginia Woolfgang", "It was a dark night"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    with OnnxEncoder("demo") as encoder, SqliteStore(str(tmp_path / "index")) as store:
        yield Pipeline(encoder, store)


def make(path: Path, title: str = TITLE, author: str = AUTHOR) -> Path:
    """Write a file with a title and an author."""
    if path.suffix == ".pdf":
        return write_pdf(path, [TEXT], title=title, author=author)
    if path.suffix in (".mkv", ".mp4"):
        return film(path, (3,), tags={"title": title, "artist": author})
    if path.suffix == ".eml":
        path.write_text(f"Subject: {title}\nFrom: {author}\n\n{TEXT}\n")
        return path
    return write(path, TEXT, title, [author])


def documents(pipe: Pipeline, folder: Path) -> dict[str, Document]:
    pipe.index(Paths([folder], options=ALL))
    return {Path(document.id).name: document for document in pipe.store.get(sorted(pipe.store.ids()))}


def test_files_of_every_format_are_found_by_title_and_by_author(pipe: Pipeline, tmp_path: Path) -> None:
    formats = (*FORMATS, "eml")  # whose producers fill in no subject
    assert all(any(f".{suffix}" in kind.suffixes for suffix in formats) for kind in KINDS if kind.option)
    (tmp_path / "in").mkdir()
    for suffix in formats:
        make(tmp_path / "in" / f"a.{suffix}")
    written = documents(pipe, tmp_path / "in")
    for suffix in formats:
        document = written[f"a.{suffix}"]
        metadata = own(document.metadata)
        assert (metadata["title"], metadata["author"]) == (TITLE, AUTHOR)
        assert document.text is not None
        assert document.text.startswith(f"{TITLE}\n\n{AUTHOR}")
        assert document.text.count(TITLE) == 1
        assert str(metadata.get("date", "none")) not in document.text
    for query in (TITLE, "Woolfgang"):
        matches = pipe.search(query, limit=20)
        assert {Path(match.document.id).name for match in matches} == {f"a.{suffix}" for suffix in formats}
    assert all(document.text == TEXT for name, document in written.items() if "#page" in name)


@pytest.mark.parametrize(
    "value",
    [
        "(anonymous)", "anonymous", "unspecified", "untitled", "Untitled document", "Untitled 1", "Unbenannt 1",
        "Document1", "Microsoft Word - lease final.docx", "Microsoft PowerPoint - talk", "lease final.docx",
        "PowerPoint Presentation", "PowerPoint-Präsentation", "Présentation PowerPoint", "Slide 1", "python-docx",
        "openpyxl", "Apache POI", "PptxGenJS", "Un-named", "Unknown Creator", "Microsoft Office User", "Windows User",
    ],
)  # fmt: skip
def test_what_producers_write_by_default_is_no_title_and_no_author(value: str) -> None:
    assert About(value, value, value, value) == About()


@pytest.mark.parametrize("value", ["The Anonymous Letters", "Document 14 of 20", "Slide rules", "Word", "Lee, Ann"])
def test_what_only_looks_like_a_default_stays(value: str) -> None:
    assert About(value, value) == About(title=value, author=value)


@pytest.mark.parametrize("suffix", FORMATS)
def test_defaults_are_neither_text_nor_metadata(pipe: Pipeline, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in").mkdir()
    make(tmp_path / "in" / f"report.{suffix}", "PowerPoint Presentation", "python-docx")
    document = documents(pipe, tmp_path / "in")[f"report.{suffix}"]
    assert not {"title", "author"} & document.metadata.keys()
    said = (document.text or "").lower()
    assert not any(word in said for word in ("powerpoint", "python-docx", "unspecified"))


@pytest.mark.parametrize(
    ("text", "above"),
    [
        ("Winter", ["Ann Lee"]),
        ("Winter\nby Ann Lee\nSnow fell.", []),
        ("WINTER  \n\nSnow fell.", ["Ann Lee"]),
        ("Winterly snow fell.", ["Winter", "Ann Lee"]),
        ("Snow fell in Winter. Ann Leeds saw it.", ["Winter", "Ann Lee"]),
    ],
)
def test_what_a_text_begins_with_is_not_said_again(text: str, above: list[str]) -> None:
    assert About("Winter", "Ann Lee").over(text) == "\n\n".join([*above, text])


def test_all_authors_of_a_book_are_kept_and_the_first_one_of_an_open_document(tmp_path: Path, pipe: Pipeline) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.epub", TEXT, TITLE, ["Ann Lee", "Bo Ek"])
    editor = "Bo Ek</dc:creator><meta:initial-creator xmlns:meta='m'>Ann Lee</meta:initial-creator><dc:creator>"
    write(tmp_path / "in" / "b.odt", TEXT, TITLE, [editor])
    written = documents(pipe, tmp_path / "in")
    assert [written[name].metadata["author"] for name in ("a.epub", "b.odt")] == ["Ann Lee; Bo Ek", "Ann Lee"]


@pytest.mark.parametrize("make_store", [SqliteStore, lambda _: MemoryStore()], ids=["arrays", "fields"])
def test_a_page_with_the_answer_is_shown_and_not_the_title_above_it(
    tmp_path: Path, make_store: Callable[[str], Store]
) -> None:
    (tmp_path / "in").mkdir()
    pages = ["Agreement between landlord and tenant\nof the flat", "The rent is due on the third working day."]
    pages += [
        "The notice period is three months.\nIt begins at the end of a month.",
        "Pets need the landlord's consent.",
    ]
    lease = write_pdf(tmp_path / "in" / "lease.pdf", pages, title="Rental agreement and notice period")
    with OnnxEncoder("demo") as encoder, make_store(str(tmp_path / "index")) as store:
        pipe = Pipeline(encoder, store)
        documents(pipe, tmp_path / "in")
        pipe.add([Document("note", text="a dog runs in the snow"), Document("other", text="a notice at the door")])
        match = pipe.search("notice period", limit=1, min_score=0)[0]
        assert match.document.id == f"{lease}#page=3"
        assert next(iter(match.parts.items())) == (str(lease), match.score)
        assert set(match.fields) == {"clip/image", "minilm/text", "words"}
        assert pipe.explain("notice period", match.document.id).relevance == match.score
        assert pipe.explain("notice period", str(lease)).outcome == "part", "the page is shown in its place"
        for min_score in (None, 0.0):
            assert pipe.search("rental agreement", limit=1, min_score=min_score)[0].document.id == str(lease)
