"""What people give to `add`: dicts, images and tables, and what is said of the rest."""

import datetime as dt
import subprocess
import sys
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import ConfigError, Document, InvalidInputError, Pipeline, RejectedDocumentsWarning
from vlmsearch.demo.scenes import make_scene
from vlmsearch.index import add_reported
from vlmsearch.indexing.given import given_documents

NAN = float("nan")


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    with Pipeline(MockEncoder(), MemoryStore()) as opened:
        yield opened


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": [1, 2, 3],
            "text": ["a dog", "a car", None],
            "image": [None, NAN, "photos/a.png"],
            "year": np.array([2019, 2020, 2021], np.int32),
            "rating": [0.5, NAN, 1.0],
            "day": pd.to_datetime(["2024-05-01", None, "2024-05-03"]),
            "tag": pd.array(["x", None, "z"], dtype="string"),
        }
    )


EXPECTED = [
    Document("1", "a dog", None, {"year": 2019, "rating": 0.5, "day": "2024-05-01T00:00:00", "tag": "x"}),
    Document("2", "a car", None, {"year": 2020}),
    Document("3", None, Path("photos/a.png"), {"year": 2021, "rating": 1.0, "day": "2024-05-03T00:00:00", "tag": "z"}),
]


class Streamed:
    """A table of another package, which is known by Arrow's interface alone."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_a_hundred_rows_with_numpys_numbers_are_all_indexed(pipeline: Pipeline) -> None:
    rows = ({"id": f"{i}", "text": f"dog {i}", "year": np.int64(i), "score": np.float32(i)} for i in range(100))
    assert pipeline.add(rows).added == 100
    assert len(pipeline.search("dog", where={"year": {"$gte": 90}}, limit=100, min_score=0)) == 10


def test_a_pandas_table_has_a_document_in_each_row() -> None:
    assert list(given_documents(frame())) == EXPECTED
    assert list(given_documents(frame().set_index("id"))) == EXPECTED


def test_an_arrow_table_has_a_document_in_each_row() -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "text": ["a dog", None],
            "day": [dt.date(2024, 5, 1), None],
            "price": [Decimal("1.50"), None],
            "image": [None, {"bytes": b"data", "path": "a.png"}],
        }
    )
    expected = [
        Document("1", "a dog", None, {"day": "2024-05-01", "price": 1.5}),
        Document("2", None, b"data"),
    ]
    assert list(given_documents(table)) == expected
    assert list(given_documents(Streamed(table))) == expected
    assert list(given_documents(table.to_batches()[0])) == expected
    assert list(given_documents(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))) == expected
    many = pa.table({"text": [f"dog {i}" for i in range(1000)]})
    assert [document.text for document in given_documents(many)] == many["text"].to_pylist()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame({"caption": ["a dog"], "year": [1]}), "needs a column text or image, and has caption, year"),
        (pa.table({"caption": ["a dog"]}), "needs a column text or image, and has caption"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "has two columns 'text'"),
        (pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), "has two columns 'text'"),
    ],
)
def test_a_table_of_other_columns_is_refused(pipeline: Pipeline, table: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"`documents`: the table {said}"):
        pipeline.add(table)
    assert pipeline.count() == 0


def test_a_dict_is_a_document_with_its_other_keys_as_metadata() -> None:
    rows: list[dict[str, object]] = [
        {"id": "a", "text": "a dog", "year": 2024},
        {"id": 7, "text": 5, "image": "a.png"},
        {"id": "b", "text": "x", "metadata": {"year": 2024}, "tag": "t"},
        {"id": "c", "text": "x", "metadata": "plain"},
        {"id": "", "text": "no id", "image": ""},
    ]
    made = list(given_documents(rows))
    assert made[:4] == [
        Document("a", "a dog", None, {"year": 2024}),
        Document("7", "5", Path("a.png")),
        Document("b", "x", None, {"year": 2024, "tag": "t"}),
        Document("c", "x", None, {"metadata": "plain"}),
    ]
    assert made[4] == Document(text="no id")
    assert list(given_documents(rows[0])) == made[:1]


def test_an_image_is_a_document(pipeline: Pipeline, tmp_path: Path) -> None:
    picture = make_scene(1).draw(96)
    pixels = np.asarray(picture)
    assert pipeline.add(picture).added == 1
    assert pipeline.add(picture).unchanged == 1
    assert pipeline.add(pixels).unchanged == 1, "the same pixels"
    assert pipeline.add([np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8), Image.new("L", (9, 9))]).added == 3
    assert pipeline.add(np.full((2, 8, 8, 3), [[[[7]]], [[[9]]]], np.uint8)).added == 2, "a batch of two"
    picture.save(tmp_path / "a.png")
    found = pipeline.search(image=pixels, min_score=0)[0].document
    assert found.id == Document(image=picture).id
    assert pipeline.add(Document("path", image=str(tmp_path / "a.png"))).added == 1
    assert pipeline.get("path")[0].image == tmp_path / "a.png"
    assert pipeline.search(image=str(tmp_path / "a.png"), limit=1, min_score=0)[0].score == pytest.approx(
        pipeline.search(image=picture, limit=1, min_score=0)[0].score
    )


def test_an_id_that_is_left_out_is_a_digest_of_all_that_a_document_has() -> None:
    first = Document(text="a dog", metadata={"year": 2024, "tag": "x"})
    assert len(first.id) == 32
    assert first.id == Document(text="a dog", metadata={"tag": "x", "year": np.int16(2024)}).id
    picture = make_scene(1).draw(32)
    different = [
        first,
        Document(text="a dog", metadata={"year": 2025, "tag": "x"}),
        Document(text="a dog"),
        Document(text="a car"),
        Document(text="a dog", image="a.png"),
        Document(text="a dog", image=b"a.png"),
        Document(text="a dog", image=picture),
        Document(image=make_scene(2).draw(32)),
    ]
    assert len({document.id for document in different}) == len(different)
    assert Document(image=picture).id == Document(image=np.asarray(picture)).id


@pytest.mark.parametrize("is_lenient", [False, True])
def test_a_picture_that_cannot_be_read_has_an_id_and_is_rejected(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lenient: bool
) -> None:
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", is_lenient)  # as WeasyPrint sets it
    make_scene(1).draw(96).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:300])
    with Image.open(tmp_path / "cut.png") as picture, pytest.raises(InvalidInputError, match="cut short") as caught:
        pipeline.add(picture)
    assert caught.value.code == "truncated"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("photos", r"not str: write Document\(text=...\) for a text, Document\(image=...\) .* call index\(path\)"),
        (Path("photos"), r"not PosixPath: write Document\(image=path\) .* call index\(path\)"),
        (b"bytes", r"not bytes: write Document\(image=data\)"),
        (None, r"not NoneType: write Document\(id, text=..., image=...\)"),
        (7, "not int: "),
        (Document, "not type: "),
        ([Document("a", text="x"), ("b", "text")], "not tuple at place 2: "),
        (pd.Series(["a dog"]), "not str at place 1: "),
        (pa.array(["a dog"]), "not StringArray: |not StringScalar at place 1: "),
    ],
)
def test_what_is_no_document_is_one_line_that_says_what_to_write(pipeline: Pipeline, given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as caught:
        pipeline.add(given)
    assert str(caught.value).startswith("`documents`: a Document, a dict, an image or a table is added, ")
    assert "\n" not in str(caught.value)


def test_a_call_whose_documents_are_all_rejected_raises(pipeline: Pipeline) -> None:
    bad: list[Any] = [{"id": f"{i}", "text": ["a"]} for i in range(3)]
    said = "3 of 3 documents cannot be used; the first is 0: the text is a string, not list"
    with pytest.raises(InvalidInputError, match=said) as caught:
        pipeline.add(bad)
    assert caught.value.code == "invalid"
    assert [reject.id for reject in pipeline.rejects()] == ["0", "1", "2"]
    with pytest.raises(InvalidInputError, match=said):
        pipeline.add(bad)
    with pytest.raises(InvalidInputError, match=r"the document cannot be used: .* text nor image, only metadata: txt"):
        pipeline.add({"txt": "a dog"})
    with pytest.raises(
        InvalidInputError, match=r"uint8 of shape \(height, width, 3\), not float64 of shape \(4, 5, 3\)"
    ):
        pipeline.add(np.zeros((4, 5, 3)))
    assert pipeline.add([]).seen == 0


def test_a_call_with_some_rejects_warns_at_the_callers_line(pipeline: Pipeline) -> None:
    documents = [Document("a", text="a dog"), Document("b", image=b"no image"), Document("c")]
    with pytest.warns(RejectedDocumentsWarning, match="2 of 3 documents cannot be used; the first is b: ") as caught:
        report = pipeline.add(documents)
    assert caught[0].filename == __file__
    assert (report.added, len(report.rejects), report.indexed, report.seen) == (1, 2, 1, 3)
    assert repr(report).startswith("IndexReport(added=1, rejects=2, seconds=")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pipeline.add(Document("d", text="a car")).added == 1
        assert len(add_reported(pipeline, documents).rejects) == 2
        assert len(add_reported(pipeline, documents[1:]).rejects) == 2


def test_an_image_of_the_web_is_rejected_with_what_to_do(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInputError, match=r"download it first, as `curl -O https://example\.org/a\.png` does"):
        pipeline.add(Document("a", image="https://example.org/a.png"))
    with pytest.raises(InvalidInputError, match=r"'http://example\.org/a\.png' is on the web"):
        pipeline.search(image="http://example.org/a.png")


def test_documents_are_made_as_they_are_needed() -> None:
    made: list[int] = []

    def rows() -> Iterator[dict[str, object]]:
        for number in range(3):
            made.append(number)
            yield {"text": f"{number}"}

    documents = given_documents(rows())
    next(documents)
    assert made == [0]


def test_no_package_is_imported_to_look_at_documents() -> None:
    code = """
import sys
from vlmsearch.indexing.given import given_documents
list(given_documents([{"id": "a", "text": "a dog"}, {"text": "b", "when": None}]))
print(sorted({"numpy", "pandas", "pyarrow", "PIL"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
