"""Files of judged queries: lines of JSON, BEIR."""

import json
from pathlib import Path

import pytest

from vlmsearch.errors import ConfigError
from vlmsearch.search.judged import JudgedQuery, read_queries


def test_lines_of_json_hold_ids_or_grades_or_nothing(tmp_path: Path) -> None:
    rows = [
        {"query": "a dog", "relevant": ["a", "b"]},
        {"id": "two", "query": "a car", "relevant": {"c": 2, "d": 0}},
        {"query": "a whale", "relevant": []},
        {"image": "pictures/q.png", "relevant": ["a"]},
    ]
    lines = [json.dumps(row) for row in rows]
    file = tmp_path / "queries.jsonl"
    file.write_text("\n".join([*lines[:2], "", *lines[2:]]) + "\n", encoding="utf-8-sig")
    assert read_queries(file) == [
        JudgedQuery("1", {"a": 1, "b": 1}, "a dog"),
        JudgedQuery("two", {"c": 2}, "a car"),
        JudgedQuery("4", {}, "a whale"),
        JudgedQuery("5", {"a": 1}, None, tmp_path / "pictures" / "q.png"),
    ]


def test_a_folder_of_beir_is_read_with_its_test_split_first(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    rows = [{"_id": "q1", "text": "a dog", "metadata": {}}, {"_id": "q2", "text": "a car", "metadata": {}}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"qrels has none of test.tsv, dev.tsv, train.tsv"):
        read_queries(tmp_path)
    dev = tmp_path / "qrels" / "dev.tsv"
    dev.write_text("query-id\tcorpus-id\tscore\nq2\td 2\t1\n")
    assert read_queries(tmp_path) == [JudgedQuery("q2", {"d 2": 1}, "a car")]
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    assert read_queries(tmp_path) == [JudgedQuery("q1", {"d1": 2}, "a dog")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", r"line 1: a row is an object such as .*, not '\[1\]'"),
        ('{"relevant": []}', 'line 1: a row needs "query", "image" or both'),
        ('{"query": " ", "relevant": []}', 'line 1: a row needs "query", "image" or both'),
        ('{"query": "a"}', 'line 1: "relevant" says which documents answer the query'),
        ('{"query": "a", "relevant": "b"}', "line 1: \"relevant\" is a list of ids, or whole numbers by ids, not 'b'"),
        ('{"query": "a", "relevant": {"b": "x"}}', 'line 1: "relevant" is a list of ids, or whole numbers by ids'),
        ('{"query": "a", "relevant": [], "id": 7}\n{"query": "b", "relevant": [], "id": "7"}', "'7' is there twice"),
        ("", r"holds no queries: write lines such as \{"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError, match=message):
        read_queries(file)


def test_judgements_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    queries, qrels = tmp_path / "queries.jsonl", tmp_path / "qrels" / "test.tsv"
    queries.write_text('{"_id": "1", "text": "a dog"}')
    qrels.parent.mkdir()
    for text, message in (
        ("1 0 a 1\n", "line 1: a judgement is QUERY, DOCUMENT and GRADE between tabs: '1 0 a 1'"),
        (f"1\ta\t{'9' * 90}\n", r"`grade` is from -2,147,483,647 to 2,147,483,647, not 9999"),
        ("1\ta\t1\n1\tb\thigh\n", "line 2: a grade is a whole number, not 'high'"),
        ("query-id\tcorpus-id\tscore\n", "no query of .* was judged: queries are '1', and judged are $"),
        ("2\ta\t1\n", "no query of .* was judged: queries are '1', and judged are '2'"),
    ):
        qrels.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_queries(tmp_path)
    qrels.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not a text in UTF-8"):
        read_queries(tmp_path)
    qrels.write_text("1\ta\t1\n")
    queries.write_text('{"_id": 1, "text": "a dog"}')
    with pytest.raises(ConfigError, match="line 1: a query is such as"):
        read_queries(tmp_path)
    queries.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_queries(tmp_path)
