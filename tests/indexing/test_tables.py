"""Tables as Excel, pandas and exports of chats write them, and columns of any name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.shards import png, write_parquet, write_tar
from vlmsearch import ConfigError, Document, Pipeline, Reject, SourceOptions
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.indexing.sources import Paths

Given = str | Mapping[str, str | Sequence[str]] | None


def read(table: Path, columns: Given = None) -> tuple[list[Document], list[Reject]]:
    source = Paths([table], options=SourceOptions(columns=columns))
    items = list(source)
    rejects = [item for item in items if isinstance(item, Reject)]
    documents = [item.document for item in items if isinstance(item, SourceDocument)]
    assert len(source) == len(items) - sum(item.id == str(table) for item in rejects)
    return documents, rejects


def documents(table: Path, columns: Given = None) -> list[Document]:
    found, rejects = read(table, columns)
    assert not rejects
    return found


def write(path: Path, data: str | bytes, encoding: str = "utf-8") -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode(encoding))
    return path


def lines(path: Path, *rows: object) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


GERMAN = (
    'id;text;Preis;Menge;Datum;Fassung\r\na;"Größe: rot, grün; blau";3,5;1.234,5;24.12.2024;1.2\r\n'
    'b;"zwei\r\nZeilen, ""so""";-0,25;7;;1,5E+10\r\n'
)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("first", ["", "sep=;\r\n"])
def test_a_table_of_excel_is_read_with_its_semicolons_and_decimal_commas(
    tmp_path: Path, encoding: str, first: str
) -> None:
    a, b = documents(write(tmp_path / "t.csv", first + GERMAN, encoding))
    assert a.text == "Größe: rot, grün; blau"
    assert b.text == 'zwei\r\nZeilen, "so"'
    values = [{key: value for key, value in item.metadata.items() if "unread" not in key} for item in (a, b)]
    assert values == [
        {"Preis": 3.5, "Menge": 1234.5, "Datum": "24.12.2024", "Fassung": 1.2},
        {"Preis": -0.25, "Menge": 7, "Fassung": 1.5e10},
    ]
    assert isinstance(values[1]["Menge"], int)


def test_numbers_have_decimal_commas_only_between_semicolons(tmp_path: Path) -> None:
    found = documents(write(tmp_path / "t.csv", 'text,n\nx,"1,5"\n'))
    assert found[0].metadata == {"n": "1,5"}
    odd = ["1,2,3", "1.23,5", "1,234.5", ",5", "1,", "+1,5", "01,5", "1.234.567"]
    table = write(tmp_path / "t.csv", "text;n\n" + "".join(f"row {value};{value}\n" for value in odd))
    assert [item.metadata["n"] for item in documents(table)] == odd


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("t.csv", "id|text\na|x, y; z\n", ("x, y; z", {})),
        ("t.csv", "id,text,note;old\na,x;y,1\n", ("x;y", {"note;old": 1})),
        ("t.csv", 'id;text;"a,b"\na;x,y;1\n', ("x,y", {"a,b": 1})),
        ("t.csv", "id\ttext\na\tx, y\n", ("x, y", {})),
        ("t.tsv", "id\ttext,old\ttext\na\t1,2\tx, y\n", ("x, y", {"text,old": "1,2"})),
        ("t.tsv", "id,text\na,x\ty\n", ("x\ty", {})),
        ("t.csv", 'sep=|\n"text"|"id,text"\nx|1\n', ("x", {"id,text": 1})),
        ("t.csv", "text\r\nHello, you; there\r\n", ("Hello, you; there", {})),
        ("t.csv", '"SEP=;"\ntext;n\nx;1\n', ("x", {"n": 1})),
    ],
)
def test_the_header_says_what_separates_the_columns(
    tmp_path: Path, name: str, data: str, expected: tuple[str, object]
) -> None:
    (found,) = documents(write(tmp_path / name, data))
    assert (found.text, found.metadata) == expected


def test_a_header_that_may_be_split_in_two_ways_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="',' or ';' may separate its columns"):
        read(write(tmp_path / "t.csv", "id,x;text\na,b;c\n"))


def test_points_are_between_thousands_only_in_a_table_with_decimal_commas(tmp_path: Path) -> None:
    table = "text;n;m\nx;1.234;1 234,5\ny;1.234.567;192.168.100.200\n"
    x, y = documents(write(tmp_path / "t.csv", table))
    assert (x.metadata, y.metadata) == ({"n": 1234, "m": 1234.5}, {"n": 1234567, "m": "192.168.100.200"})
    assert documents(write(tmp_path / "t.csv", table.replace(",5", "")))[0].metadata == {"n": 1.234, "m": "1 234"}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_quotes_after_backslashes_are_read_as_spark_writes_them(tmp_path: Path, name: str) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter="," if name == "t.csv" else "\t", doublequote=False, escapechar="\\")
    writer.writerows([["id", "text"], ["a", 'say "hi",\tor\n"no" at C:\\x'], ["b", "plain"]])
    a, b = documents(write(tmp_path / name, stream.getvalue()))
    assert (a.text, b.text) == ('say "hi",\tor\n"no" at C:\\x', "plain")


@pytest.mark.parametrize("quoted", ["it", '"a \\"dog\\""'])
def test_a_null_of_databases_is_an_empty_cell(tmp_path: Path, quoted: str) -> None:
    table = write(tmp_path / "t.csv", f"id,text,n,m\n\\N,{quoted},\\N,3\n1,x,5,\\N\n2,C:\\\\New,6,\\N\n")
    found = documents(table)
    assert [dict(item.metadata) for item in found] == [{"m": 3}, {"n": 5}, {"n": 6}]
    assert len(found[0].id) == 32


def test_quotes_between_tabs_take_no_rows_in(tmp_path: Path) -> None:
    rows = ['a\t"He said', "b\tno", 'c\t"foo" and', 'd\t5" disk']
    found = documents(write(tmp_path / "t.tsv", "\n".join(["id\ttext", *rows])))
    assert [f"{item.id}\t{item.text}" for item in found] == rows


def test_a_quote_that_takes_rows_in_is_an_error_even_if_another_one_closes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lines 2 to 4, cannot be read as CSV: a quote is not closed"):
        read(write(tmp_path / "t.csv", 'id,text\na,"He said\nb,no\nc,"foo\n'))
    (found,) = documents(write(tmp_path / "t.csv", 'id,text,n\na,"two\nlines",5"\n'))
    assert (found.text, found.metadata) == ("two\nlines", {"n": '5"'})


def test_empty_lines_above_the_header_are_left_out(tmp_path: Path) -> None:
    assert [item.text for item in documents(write(tmp_path / "t.csv", "\n\nid;text\n\na;x\n"))] == ["x"]


def test_spaces_after_commas_are_no_part_of_cells(tmp_path: Path) -> None:
    (found,) = documents(write(tmp_path / "t.csv", 'id, text, image, n\na, "x, y", b.png, 7\n'))
    assert found == Document("a", "x, y", tmp_path / "b.png", {"n": 7})


def test_an_image_in_a_field_of_another_name_is_rejected(tmp_path: Path) -> None:
    table = lines(
        tmp_path / "t.jsonl", {"text": "a", "image": {"url": "a.png"}}, {"text": "b", "image": {"path": None}}
    )
    (found,), (reject,) = read(table)
    assert (found.text, found.image) == ("b", None)
    assert "'image' is a string, not {'url': 'a.png'}" in reject.message


def test_parts_of_a_message_are_its_text(tmp_path: Path) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "eA=="}}
    turns = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "yes"}, picture]}]
    (found,) = documents(lines(tmp_path / "t.jsonl", {"contents": turns}), "text=contents")
    assert found.text == "user: hi\n\nmodel: yes"
    assert found.metadata["unread_count"] == 1


def test_the_number_of_a_row_counts_the_line_of_the_separator(tmp_path: Path) -> None:
    _, (reject,) = read(write(tmp_path / "t.csv", "sep=;\nid;text\na;x;y;z\n"))
    assert reject.id == f"{tmp_path}/t.csv:3"


def test_letters_after_a_long_beginning_in_ascii_decide_on_the_character_set(tmp_path: Path) -> None:
    rows = [f"{number},a red house near the river" for number in range(10_000)]
    rows += [f"{number + 20_000},Größe und Länge über die Straße für Mädchen" for number in range(50)]
    for encoding in ("cp1252", "utf-8"):
        table = write(tmp_path / f"{encoding}.csv", "\n".join(["id,text", *rows]), encoding)
        found = documents(table)
        assert len(found) == 10_050
        assert {item.text for item in found[10_000:]} == {"Größe und Länge über die Straße für Mädchen"}
        assert "unread" not in found[0].metadata


def test_columns_have_other_names_in_tables_of_every_format(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"sku": "007", "title": "A dog", "body": "It runs.", "photo": "a.png", "price": 3},
        {"sku": "008", "title": "A cat", "body": None, "photo": None, "price": 4},
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "s.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "s.csv", "t.tsv", "t.jsonl", "t.parquet"):
        for columns in (
            "text=title, text=body,image=photo,id=sku",
            {"text": ["title", "body"], "image": "photo", "id": "sku"},
        ):
            assert documents(tmp_path / name, columns) == [
                Document("007", "A dog\n\nIt runs.", tmp_path / "a.png", {"price": 3}),
                Document("008", "A cat", None, {"price": 4}),
            ]


def test_columns_of_a_tar_are_fields_of_its_json(tmp_path: Path) -> None:
    fields: dict[str, object] = {"sku": "7", "title": "A dog"}
    shard = write_tar(tmp_path / "s.tar", {"0.png": png(0), "0.json": fields, "0.txt": "x"})
    (found,) = documents(shard, "text=title,id=sku")
    metadata = {"sku": "7", "unread": "1 text value", "unread_count": 1}
    assert found == Document(f"{shard}/0", "A dog", png(0), metadata)


def test_a_name_with_a_comma_is_quoted(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "Text, long", "a=b"], ["1", "A dog", "2"]])
    expected = [Document("1", "A dog", None, {"a=b": 2})]
    assert documents(table, 'id=id,"text=Text, long"') == documents(table, {"text": "Text, long"}) == expected
    assert SourceOptions(columns={"text": "Text, long"}).columns == '"text=Text, long"'


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    row = {"sku": "7", "body": "A dog"}
    tables = [tmp_path / "t.csv", write_parquet(tmp_path / "t.parquet", [row])]
    pd.DataFrame([row]).to_csv(tables[0], index=False)
    for table in tables:
        with pytest.raises(ConfigError, match=r"has no column 'skuu'; it has sku, body$"):
            read(table, "text=body,id=skuu")
        with pytest.raises(ConfigError, match="it has sku, body: `columns` names others, such as text=NAME"):
            read(table)
    table = lines(tmp_path / "t.jsonl", row)
    _, (reject,) = read(table, "text=body,id=skuu")
    assert (reject.id, reject.code) == (str(table), "invalid")
    assert "no line has a field 'skuu'" in reject.message
    _, (reject,) = read(table)
    assert reject.message.endswith("it has sku, body: `columns` names others, such as text=NAME")


@pytest.mark.parametrize("columns", ["body", "txt=body", "id=a,id=b", "text=", {"image": ["a", "b"]}])
def test_columns_that_cannot_be_meant_are_refused(columns: Given) -> None:
    with pytest.raises(ConfigError, match="`columns` names columns for id, text and image, such as text=body,image="):
        SourceOptions(columns=columns)


def test_another_choice_of_columns_reads_the_rows_again(tmp_path: Path) -> None:
    table = lines(tmp_path / "t.jsonl", {"id": "a", "text": "A dog", "body": "A cat"})
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    assert pipeline.index(table).added == 1
    options = SourceOptions(columns={"text": "body"})
    assert (pipeline.index(table, options=options).updated, pipeline.index(table, options=options).unchanged) == (1, 1)
    assert pipeline.get("a")[0].text == "A cat"
    assert pipeline.get("a")[0].metadata == {"unread": "1 text value", "unread_count": 1}


def test_messages_are_a_text(tmp_path: Path) -> None:
    openai = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}], "n": 1}
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "https://x"}}]
    seeing = {"messages": [{"role": "user", "content": parts}, {"role": "tool", "content": None, "tool_calls": [{}]}]}
    found = documents(lines(tmp_path / "a.jsonl", openai, seeing), "text=messages")
    assert [item.text for item in found] == ["user: Hi\n\nassistant: Hello", "user: What is it?"]
    assert [item.metadata for item in found] == [{"n": 1}, {"unread": "1 image, 1 message", "unread_count": 2}]
    sharegpt = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
    for table in (lines(tmp_path / "b.jsonl", sharegpt), write_parquet(tmp_path / "b.parquet", [sharegpt])):
        assert documents(table, "text=conversations")[0].text == "human: Hi\n\ngpt: Hello"
    telegram = {"id": 5, "from": "Ann", "text": ["see ", {"type": "link", "text": "https://x"}, " now"]}
    assert documents(lines(tmp_path / "c.jsonl", telegram)) == [
        Document("5", "see https://x now", None, {"from": "Ann"})
    ]
    pairs = {"prompt": "Why?", "completion": "So."}
    assert documents(lines(tmp_path / "d.jsonl", pairs), "text=prompt,text=completion")[0].text == "Why?\n\nSo."
    log = {"message": {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "name": "x"}]}}
    (found_log,) = documents(lines(tmp_path / "f.jsonl", log), "text=message")
    assert (found_log.text, found_log.metadata["unread"]) == ("user: Hi", "1 tool_use")
    captions = {"image": "a.png", "captions": ["A dog.", "It runs."]}
    assert documents(lines(tmp_path / "e.jsonl", captions), "text=captions")[0].text == "A dog.\n\nIt runs."


def test_a_field_of_a_field_has_a_path(tmp_path: Path) -> None:
    row = {"payload": {"body": "A dog", "by": {"name": "Ann"}}, "a.b": "7"}
    (found,) = documents(lines(tmp_path / "t.jsonl", row), "text=payload.body,id=a.b")
    assert found == Document("7", "A dog", None, {"unread": "1 payload value", "unread_count": 1})
    (found,) = documents(lines(tmp_path / "t.jsonl", {"m": {"t": "A dog", "u": "a.png"}}), "text=m.t,id=m.u,image=m.u")
    assert found == Document("a.png", "A dog", tmp_path / "a.png", {})
    (found,) = documents(write_parquet(tmp_path / "t.parquet", [row]), "text=payload.body,id=a.b")
    assert (found.id, found.text) == ("7", "A dog")


def test_the_index_of_pandas_stays_out_unless_it_is_called_id(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["A dog", "A cat", "A cow"], "n": [1, 2, 3]})
    first = io.StringIO()
    frame[1:].to_csv(first)
    pd.read_csv(io.StringIO(first.getvalue())).to_csv(tmp_path / "t.csv")
    frame[1:].iloc[::-1].to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        assert {item.text: item.metadata for item in documents(tmp_path / name)} == {
            "A cat": {"n": 2},
            "A cow": {"n": 3},
        }
    frame.index = pd.Index(["x", "y", "z"])
    frame.to_csv(tmp_path / "t.csv")
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        assert documents(tmp_path / name)[0].metadata == {"n": 1, "unread": "1 unnamed value", "unread_count": 1}
    for index in (pd.Index(["x", "y", "z"], name="id"), pd.RangeIndex(4, 10, 2, name="id")):
        frame.index = index
        frame.to_csv(tmp_path / "t.csv")
        frame.to_parquet(tmp_path / "t.parquet")
        for name in ("t.csv", "t.parquet"):
            assert [(item.id, item.text) for item in documents(tmp_path / name)] == [
                *zip(map(str, index), ["A dog", "A cat", "A cow"])
            ]


def test_arrays_of_which_some_are_missing_do_not_cost_the_rows_of_parquet(tmp_path: Path) -> None:
    vectors = pa.array([[0.5, 1.0], None, [0.0, 1.0]], pa.list_(pa.float32(), 2))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2]), vectors)
    table = pa.table({"id": ["a", "b", "c"], "text": ["x", "y", "z"], "v": vectors, "t": tensors, "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "t.parquet")
    unread = {"unread": "1 t value, 1 v value", "unread_count": 2}
    assert [document.metadata for document in documents(tmp_path / "t.parquet")] == [
        {"n": number, **unread} for number in (1, 2, 3)
    ]


def test_values_called_unread_are_said_where_they_make_room(tmp_path: Path) -> None:
    own = {"text": "x", "unread": "mine", "": "index"}
    names = "1 unnamed value, 1 unread value"
    assert documents(lines(tmp_path / "t.jsonl", own))[0].metadata == {"unread": names, "unread_count": 2}


def test_a_number_is_the_text_of_a_sample(tmp_path: Path) -> None:
    (document,) = documents(write_tar(tmp_path / "t.tar", {"a.json": {"text": 5, "n": 1}}))
    assert (document.text, document.metadata) == ("5", {"n": 1})


def test_a_column_of_maps_called_metadata_is_metadata(tmp_path: Path) -> None:
    maps = pa.array([[("place", "Oslo")], [("twice", "a"), ("twice", "b")]], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"text": ["a", "b"], "metadata": maps}), tmp_path / "t.parquet")
    first, second = documents(tmp_path / "t.parquet")
    assert first.metadata == {"place": "Oslo"}
    assert second.metadata == {"unread": "1 metadata value", "unread_count": 1}
