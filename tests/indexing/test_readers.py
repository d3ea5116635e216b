"""The readers of documents: given, in front matter, in tables and in the index; on files, their parts and in copies."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator

from tests.support.pdf_files import write_pdf
from vlmsearch import (
    ConfigError,
    Document,
    IndexReport,
    InvalidInputError,
    MetadataChange,
    Pipeline,
    RejectedDocumentsWarning,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.csv_file import export_csv
from vlmsearch.indexing.diff import diff
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.indexing.parquet import ParquetIndex, export_index
from vlmsearch.indexing.reindex import reindex
from vlmsearch.media import ocr
from vlmsearch.registry import open_store
from vlmsearch.wire import Origin, from_json, to_json

HR = frozenset({"group:hr"})
ANN = frozenset({"user:ann"})
NOBODY = frozenset[str]()


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(MockEncoder(), MemoryStore())


def index(pipeline: Pipeline, path: Path, readers: Collection[str] | None = None) -> IndexReport:
    return pipeline.index(path, options=SourceOptions(readers=None if readers is None else list(readers)))


def readers(pipeline: Pipeline) -> dict[str, frozenset[str] | None]:
    """The readers of all documents, by the last part of the id."""
    return {Path(document.id).name: document.readers for document in pipeline.documents()}


def test_given_readers_are_those_of_the_file_and_change_without_encoding(tmp_path: Path, pipeline: Pipeline) -> None:
    (tmp_path / "a.txt").write_text("a dog in the snow")
    assert index(pipeline, tmp_path, HR).added == 1
    assert readers(pipeline) == {"a.txt": HR}
    report = index(pipeline, tmp_path)
    assert (report.unchanged, readers(pipeline)) == (1, {"a.txt": HR})
    [stored] = pipeline.documents()
    assert change_metadata(pipeline.store, [stored.id], {"seen": True}) == 1
    vectors = pipeline.store.records([stored.id])[0].vectors
    report = index(pipeline, tmp_path, ["user:ann", "user:bob"])
    assert (report.updated, report.unchanged, report.unlabelled) == (1, 0, 0)
    [record] = pipeline.store.records([stored.id])
    assert record.document.readers == ANN | {"user:bob"}
    assert record.document.metadata["seen"] is True
    assert all((record.vectors[field] == vector).all() for field, vector in vectors.items())
    assert index(pipeline, tmp_path, ["user:bob", "user:ann"]).unchanged == 1
    (tmp_path / "a.txt").write_text("a cat")
    report = index(pipeline, tmp_path)
    assert (report.updated, report.unlabelled) == (1, 0)
    assert readers(pipeline) == {"a.txt": ANN | {"user:bob"}}
    index(pipeline, tmp_path, [])
    assert readers(pipeline) == {"a.txt": NOBODY}
    index(pipeline, tmp_path, ["*"])
    assert readers(pipeline) == {"a.txt": None}


def test_labels_that_are_lost_are_counted_beside_readers_that_are_kept(tmp_path: Path, pipeline: Pipeline) -> None:
    for name in ("dog", "car"):
        (tmp_path / f"{name}.txt").write_text(name)
    index(pipeline, tmp_path, HR)
    assert sum(labelled.written for labelled in pipeline.label(["dog", "car"], write=True, where={"type": "txt"})) == 2
    assert readers(pipeline) == {"car.txt": HR, "dog.txt": HR}
    assert index(pipeline, tmp_path, HR).unchanged == 2
    assert index(pipeline, tmp_path, ["user:ann"]).updated == 2
    assert {document.metadata["label"] for document in pipeline.documents()} == {"dog", "car"}
    (tmp_path / "dog.txt").write_text("a dog and a car")
    report = index(pipeline, tmp_path)
    assert (report.updated, report.unlabelled, set(readers(pipeline).values())) == (1, 1, {ANN})


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("readers: group:hr", HR),
        ("readers: [group:hr, group:hr]", HR),
        ("readers:\n  - group:hr\n  - user:ann", HR | {"user:ann"}),
        ("readers: '*'", None),
        ("readers: ''", None),
        ("readers: null", None),
        ("readers: []", NOBODY),
        ("readers: ['']", NOBODY),
        ("readers: {}", NOBODY),
        ("readers: 7", NOBODY),
    ],
)
def test_front_matter_names_readers_unless_others_are_given(
    block: str, expected: frozenset[str] | None, tmp_path: Path, pipeline: Pipeline
) -> None:
    (tmp_path / "a.md").write_text(f"---\n{block}\n---\nA dog.")
    index(pipeline, tmp_path)
    assert readers(pipeline) == {"a.md": expected}
    index(pipeline, tmp_path, ["user:ann"])
    assert readers(pipeline) == {"a.md": ANN}


@pytest.mark.parametrize(
    "text",
    [
        "---\nreaders: {group: hr}\n---\nA dog.",
        "---\nreaders: [{group: hr}]\n---\nA dog.",
        "---\ntitle: 'open\nreaders: group:hr\n---\nA dog.",
        "---\n{title: a, readers: [group:hr}\n---\nA dog.",
        f"---\nreaders: {'x' * 257}\nmore: [{'x' * 257}\n---\nA dog.",
        "---\nreaders: group:hr\nA dog.",
        "+++\nreaders = [\n+++\nA dog.",
        '+++\n[readers]\ngroup = "hr"\n+++\nA dog.',
        "\n---\nreaders: group:hr\n---\nA dog.",
        "---\rreaders: group:hr\r---\rA dog.",
        f"---\ntitle: {'x' * 2**15}\nreaders: group:hr\n---\nA dog.",
        "---\n? readers\n: [group:hr]\n: more\n---\nA dog.",
        "---\nreaders: group:hr\nreaders: '*'\n---\nA dog.",
        "---\nhr: &hr {readers: [group:hr]}\n<<: *hr\n---\nA dog.",
    ],
)
def test_readers_in_front_matter_that_cannot_be_read_open_nothing(
    text: str, tmp_path: Path, pipeline: Pipeline
) -> None:
    (tmp_path / "a.md").write_text(text, newline="")
    (tmp_path / "b.md").write_text("---\ntitle: 'open\n---\nReaders: all")
    report = index(pipeline, tmp_path)
    [reject] = report.rejects
    assert "has front matter with `readers` that cannot be read: give a name or a list" in reject.message
    assert readers(pipeline) == {"b.md": None}


ROWS: list[tuple[dict[str, object], frozenset[str] | None]] = [
    ({"readers": "group:hr"}, HR),
    ({"readers": ["group:hr", "user:ann"]}, HR | {"user:ann"}),
    ({"readers": []}, NOBODY),
    ({"readers": None}, None),
    ({}, None),
    ({"readers": 5}, NOBODY),
    ({"readers": "*"}, None),
]


def test_rows_of_json_lines_name_readers(tmp_path: Path, pipeline: Pipeline) -> None:
    table = tmp_path / "rows.jsonl"
    rows = [{"id": str(number), "text": "a dog", **row} for number, (row, _) in enumerate(ROWS)]
    bad = [{"id": "bad", "text": "a dog", "readers": value} for value in ({"group": "hr"}, [1, 2])]
    nested = {"id": "nested", "text": "a dog", "metadata": {"readers": ["group:hr"]}, "readers": None}
    table.write_text("\n".join(map(json.dumps, [*rows, *bad, nested])))
    report = index(pipeline, table)
    assert ["'readers' is a name or a list of names" in reject.message for reject in report.rejects] == [True, True]
    expected = {str(number): names for number, (_, names) in enumerate(ROWS)}
    assert readers(pipeline) == {**expected, "nested": HR}
    index(pipeline, table, ["user:bob"])
    assert set(readers(pipeline).values()) == {frozenset({"user:bob"})}


@pytest.mark.parametrize(
    "extra",
    [{"a.json": '{"readers": ["group:hr"],}'}, {"a.json": "{}", "a.more.json": '{"readers": ["group:hr"]}'}],
)
def test_readers_in_json_of_a_tar_that_is_not_read_open_nothing(
    extra: dict[str, str], tmp_path: Path, pipeline: Pipeline
) -> None:
    with tarfile.open(tmp_path / "rows.tar", "w") as tar:
        for name, text in {"a.txt": "a dog", **extra, "b.txt": "a cat", "b.json": "{,}"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    [reject] = index(pipeline, tmp_path / "rows.tar").rejects
    assert "names 'readers': let it be JSON, and the only one" in reject.message
    assert readers(pipeline) == {"b": None}


@pytest.mark.parametrize("kind", [pa.null(), pa.int64(), pa.string()])
def test_an_empty_list_of_any_type_in_parquet_is_nobody(kind: pa.DataType, tmp_path: Path, pipeline: Pipeline) -> None:
    columns = {"id": ["a", "b"], "text": ["a dog", "a cat"], "readers": pa.array([[], None], pa.list_(kind))}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    index(pipeline, tmp_path / "rows.parquet")
    assert readers(pipeline) == {"a": NOBODY, "b": None}
    pipeline.add(pa.table({**columns, "id": ["c", "d"]}))
    pipeline.add(pd.DataFrame({"id": ["e", "f"], "text": ["x", "y"], "readers": [[], None]}))
    assert readers(pipeline) == {"a": NOBODY, "b": None, "c": NOBODY, "d": None, "e": NOBODY, "f": None}


def test_cells_of_csv_name_readers(tmp_path: Path, pipeline: Pipeline) -> None:
    cells = {
        "group:hr": HR,
        "group:hr; user:ann": HR | {"user:ann"},
        '"[""group:hr""]"': HR,
        "[]": NOBODY,
        ";": NOBODY,
        "": None,
        "5": NOBODY,
    }
    lines = [f"{number},a dog,{cell}" for number, cell in enumerate(cells)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,text,readers ", *lines, 'bad,a dog,"[""group:hr"', "bad,a,[1]"]))
    report = index(pipeline, tmp_path / "rows.csv")
    assert ["'readers' is a name or a list of names" in reject.message for reject in report.rejects] == [True, True]
    assert readers(pipeline) == {str(number): names for number, names in enumerate(cells.values())}
    assert pipeline.get("6")[0].metadata["readers"] == 5


def test_a_row_without_readers_keeps_those_of_the_row_before_it(pipeline: Pipeline) -> None:
    first, between = Document("a", text="a dog", readers=HR), [Document(str(n), text="a cat") for n in range(600)]
    pipeline.add([first, Document("a", text="a dog again")])
    assert (readers(pipeline), pipeline.get("a")[0].text) == ({"a": HR}, "a dog again")
    pipeline.delete("a")
    pipeline.add([first, *between, Document("a", text="a dog again"), *between])
    assert pipeline.get("a")[0].readers == HR
    pipeline.add([first, Document("a", text="a dog again", readers=["*"])])
    assert pipeline.get("a")[0].readers is None


def test_a_file_that_cannot_be_used_for_a_while_has_its_readers_afterwards(tmp_path: Path, pipeline: Pipeline) -> None:
    (tmp_path / "b.txt").write_text("a cat")
    for text in ("a dog", "", "a dog"):
        (tmp_path / "a.txt").write_text(text)
        index(pipeline, tmp_path, HR if not len(pipeline) else None)
        assert readers(pipeline)["a.txt"] == HR
        assert [Path(reject.id).name for reject in pipeline.rejects()] == ["a.txt"] * (not text)


def pdf(tmp_path: Path, *pages: str) -> Path:
    return write_pdf(tmp_path / "a.pdf", pages)


def test_parts_have_the_readers_of_their_file_and_new_ones_too(tmp_path: Path, pipeline: Pipeline) -> None:
    path = pdf(tmp_path, "one", "two")
    index(pipeline, path, HR)
    assert readers(pipeline) == {"a.pdf": HR, "a.pdf#page=1": HR, "a.pdf#page=2": HR}
    assert index(pipeline, path).unchanged == 1
    pdf(tmp_path, "one", "two", "three")
    index(pipeline, path)
    assert set(readers(pipeline)) == {"a.pdf", *(f"a.pdf#page={number}" for number in (1, 2, 3))}
    assert set(readers(pipeline).values()) == {HR}
    report = index(pipeline, path, ["user:ann"])
    assert (report.updated, report.unchanged, set(readers(pipeline).values())) == (1, 0, {ANN})
    assert index(pipeline, path, ["user:ann"]).unchanged == 1
    index(pipeline, path, ["*"])
    assert set(readers(pipeline).values()) == {None}


def test_a_new_part_has_the_readers_that_the_others_have_in_common(tmp_path: Path, pipeline: Pipeline) -> None:
    path = pdf(tmp_path, "one", "two")
    index(pipeline, path)
    given = {"": ["group:hr", "user:ann"], "#page=1": ["group:hr", "user:bob"]}
    for fragment, names in given.items():
        [stored] = pipeline.get(f"{path}{fragment}")
        [stamp] = pipeline.store.stamps([stored.id]).values()
        metadata = {**stored.metadata, "readers": tuple(names)}
        pipeline.store.update_metadata([MetadataChange(stored, stamp, metadata, stamp.digest)])
    pdf(tmp_path, "one", "two", "three")
    index(pipeline, path)
    assert readers(pipeline)["a.pdf#page=3"] == HR
    assert readers(pipeline)["a.pdf#page=2"] is None


def test_a_file_whose_whole_is_missing_gives_new_parts_the_readers_of_the_others(
    tmp_path: Path, pipeline: Pipeline
) -> None:
    path = pdf(tmp_path, "one", "two")
    index(pipeline, path, HR)
    pipeline.store.delete([str(path)])
    pdf(tmp_path, "one", "two", "three")
    index(pipeline, path)
    assert (len(readers(pipeline)), set(readers(pipeline).values())) == (4, {HR})


def test_pages_come_in_the_place_of_a_picture_and_go_with_its_readers(tmp_path: Path, pipeline: Pipeline) -> None:
    sheets = [Image.new("RGB", (40, 40), colour) for colour in ("navy", "red", "green")]
    path = tmp_path / "scan.tif"
    sheets[0].save(path)
    index(pipeline, tmp_path, HR)
    sheets[0].save(path, save_all=True, append_images=sheets[1:])
    index(pipeline, tmp_path)
    assert readers(pipeline) == {"scan.tif": HR, **{f"scan.tif#page={number}": HR for number in (1, 2, 3)}}
    pipeline.store.delete([str(path)])
    sheets[1].save(path)
    index(pipeline, tmp_path)
    assert readers(pipeline) == {"scan.tif": HR}


def test_a_page_that_is_added_alone_has_the_readers_of_its_file(tmp_path: Path, pipeline: Pipeline) -> None:
    path = pdf(tmp_path, "one")
    index(pipeline, path, HR)
    pipeline.add([Document(f"{path}#page=2", text="two"), Document(f"{path}#page=3", text="three", readers=["*"])])
    assert readers(pipeline) == {"a.pdf": HR, "a.pdf#page=1": HR, "a.pdf#page=2": HR, "a.pdf#page=3": None}


@pytest.mark.parametrize("order", [1, -1])
def test_a_page_that_is_added_beside_its_file_has_its_readers(order: int, pipeline: Pipeline) -> None:
    pages = [Document("a.pdf", text="all", readers=HR), Document("a.pdf#page=1", text="one")]
    others = [Document(str(n), text="a cat") for n in range(600)]
    pipeline.add([*pages[::order], *others, Document("a.pdf#page=2", text="two")])
    assert {id: names for id, names in readers(pipeline).items() if id.startswith("a.pdf")} == {
        "a.pdf": HR,
        "a.pdf#page=1": HR,
        "a.pdf#page=2": HR,
    }


@pytest.mark.parametrize("names", [None, ["user:bob"]])
def test_a_page_that_somebody_added_before_it_was_there_has_the_readers_of_its_file(
    names: list[str] | None, tmp_path: Path, pipeline: Pipeline
) -> None:
    path = tmp_path / "a.pdf"
    pipeline.restricted(["user:bob"]).add(Document(f"{path}#page=2", text="mine", readers=names))
    pdf(tmp_path, "one")
    index(pipeline, path, HR)
    pdf(tmp_path, "one", "two")
    index(pipeline, path)
    [page] = pipeline.get(f"{path}#page=2")
    assert (page.text, page.readers and page.readers & {"user:bob", "*"}) == ("two", frozenset())


def test_a_change_of_readers_on_a_page_or_the_file_is_one_of_the_file(tmp_path: Path, pipeline: Pipeline) -> None:
    path = pdf(tmp_path, "one", "two")
    index(pipeline, path)
    other = {"year": 2024, "readers": ["group:hr"]}
    assert change_metadata(pipeline.store, [f"{path}#page=2"], other) == 3
    assert set(readers(pipeline).values()) == {HR}
    assert {document.id for document in pipeline.documents() if "year" in document.metadata} == {f"{path}#page=2"}
    assert change_metadata(pipeline.store, [f"{path}#page=1"], {}, ["readers", "year"]) == 3
    assert set(readers(pipeline).values()) == {None}
    assert pipeline.get(f"{path}#page=2")[0].metadata["year"] == 2024
    assert change_metadata(pipeline.store, [str(path)], {"readers": []}) == 3
    assert set(readers(pipeline).values()) == {NOBODY}
    with pytest.raises(InvalidInputError, match="string, number, bool or list of strings"):
        change_metadata(pipeline.store, [str(path)], {"readers": {"group": "hr"}})


def test_a_writer_is_refused_new_parts_of_a_file_that_it_cannot_read(tmp_path: Path, pipeline: Pipeline) -> None:
    path = pdf(tmp_path, "one")
    index(pipeline, path, HR)
    pipeline.add(Document(f"{path}#page=3", text="three", readers=["user:bob"]))
    writer, pages = pipeline.restricted(["user:bob"]), [Document(f"{path}#page={n}", text="mine") for n in (2, 3)]
    with pytest.warns(RejectedDocumentsWarning, match="#page=2' is a part of another document: choose another id"):
        report = writer.add(pages)
    assert (report.added, report.updated) == (0, 1)
    assert {Path(document.id).name for document in writer.documents()} == {"a.pdf#page=3"}


def test_a_writer_is_refused_what_it_cannot_read_and_nothing_is_deleted(pipeline: Pipeline) -> None:
    pipeline.add([Document("a", text="a dog", readers=["group:hr"]), Document("b", text="a cat", readers=["user:ann"])])
    writer = pipeline.restricted(["user:ann"])
    given = [
        Document("a", text="mine"),
        Document("b", text="theirs", readers=["group:hr"]),
        Document("c", text="a new one", readers=["user:ann"]),
    ]
    with pytest.warns(RejectedDocumentsWarning, match="2 of 3 documents"):
        report = writer.add(given)
    assert [(reject.id, reject.code) for reject in report.rejects] == [("a", "invalid"), ("b", "invalid")]
    assert report.added == 1
    assert {document.id: document.text for document in pipeline.documents()} == {
        "a": "a dog",
        "b": "a cat",
        "c": "a new one",
    }


NAMES = {"a": HR, "b": frozenset({"x;y", "[z", "5", " a "}), "c": NOBODY, "d": None}


@pytest.fixture
def named(pipeline: Pipeline) -> Pipeline:
    pipeline.add(Document(id, text="a dog", readers=names) for id, names in NAMES.items())
    return pipeline


def opened_copy(named: Pipeline) -> tuple[MemoryStore, Pipeline]:
    store = MemoryStore("copy")
    copy(named.store, store)
    return store, Pipeline(MockEncoder(), store)


def test_copies_and_exports_have_the_readers(named: Pipeline, tmp_path: Path) -> None:
    store, copied = opened_copy(named)
    assert readers(copied) == NAMES
    assert copy(named.store, store).unchanged == len(NAMES)
    export_index(named.store, tmp_path / "index.parquet")
    imported = Pipeline(MockEncoder(), MemoryStore("imported"))
    with ParquetIndex(tmp_path / "index.parquet") as file:
        copy(file, imported.store)
    assert readers(imported) == NAMES
    export_csv(named.store, tmp_path / "index.csv")
    table = Pipeline(MockEncoder(), MemoryStore("table"))
    table.index(tmp_path / "index.csv")
    assert readers(table) == NAMES
    with open_store(f"sqlite:{tmp_path / 'index'}") as other:
        copy(named.store, other)
        assert reindex(other, MockEncoder(neighbours={"a dog": ["a cat"]})).encoded == len(NAMES)
        assert {document.id: document.readers for document in other.get(list(NAMES))} == NAMES


def test_a_change_of_readers_is_a_difference_and_is_copied(named: Pipeline) -> None:
    store, copied = opened_copy(named)
    assert not diff(named.store, store).differences
    change_metadata(named.store, ["a"], {"readers": ["user:ann"]})
    [difference] = diff(named.store, store).differences
    assert (difference.id, difference.what) == ("a", ("metadata", "digest"))
    assert copy(named.store, store).copied == 1
    assert readers(copied) == readers(named)


def test_readers_are_in_what_is_shown_and_sent(named: Pipeline) -> None:
    [document] = named.get("a")
    assert json.loads(json.dumps(to_json(document)))["metadata"]["readers"] == ["group:hr"]
    assert from_json(Document, to_json(document), Origin("http://127.0.0.1", "default")).readers == HR
    assert "group:hr" in document._repr_html_()
    assert "readers" in repr(document)


def test_what_reads_or_describes_a_picture_keeps_its_readers(
    tmp_path: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ocr, "read_text", lambda _: [ocr.Line("a dog in the snow", (0, 0, 9, 9), 0.9)])
    make_scene(1).draw(64).save(tmp_path / "a.png")
    options = SourceOptions(ocr=True, readers=["group:hr"])
    assert pipeline.index(tmp_path, options=options).added == 1
    assert pipeline.index(tmp_path, options=options).unchanged == 1
    assert pipeline.index(tmp_path, options=SourceOptions(ocr=True)).unchanged == 1
    [document] = pipeline.documents()
    assert (document.text, document.readers) == ("a dog in the snow", HR)
    make_scene(2).draw(64).save(tmp_path / "b.png")
    index(pipeline, tmp_path / "b.png", HR)
    pipeline.generator = MockGenerator("a blue car", pictures=4)
    assert pipeline.describe().described == 1
    assert pipeline.describe(fields=["colour"], prompt="Say").rejects
    assert readers(pipeline) == {"a.png": HR, "b.png": HR}
    assert index(pipeline, tmp_path / "b.png", ["user:ann"]).updated == 1
    [document] = pipeline.get(str(tmp_path / "b.png"))
    assert (document.text, document.readers) == ("A blue car", ANN)


def test_no_label_and_no_model_says_who_may_read(named: Pipeline) -> None:
    with pytest.raises(ConfigError, match="`key` 'readers' says who may read a document: write labels under another"):
        list(named.label([], write=True, key="readers"))
    with pytest.raises(ConfigError, match="`fields` has 'readers', which says who may read a document: no model"):
        named.describe(fields=["readers:text"])
    assert readers(named) == NAMES


@pytest.mark.parametrize("key", ["Readers", "READERS", " readers"])
def test_a_key_that_is_readers_but_for_case_opens_nothing(tmp_path: Path, key: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,text,{key.strip().title()}\n1,secret,group:hr\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "2", "text": "secret", key: ["group:hr"]}))
    (tmp_path / "c.md").write_text(f"---\n{key.strip().upper()}: group:hr\n---\nsecret")
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        report = pipeline.index([tmp_path / name for name in ("a.csv", "b.jsonl", "c.md")])
        with pytest.raises(InvalidInputError, match=f"'{key}' does not say who may read"):
            pipeline.add(Document("d", text="secret", metadata={key: "group:hr"}))
        assert len(pipeline) == 0
        assert [reject.code for reject in report.rejects] == ["invalid"] * 3
        assert "does not say who may read: write 'readers', or give it another name" in report.rejects[0].message
