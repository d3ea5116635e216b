"""Files of judged queries: lines of JSON, TREC, BEIR."""

import json
from pathlib import Path

import pytest

from vlmsearch.errors import ConfigError
from vlmsearch.search.judged import JudgedQuery, read_qrels, read_queries


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


def test_topics_and_judgements_of_trec_are_read(tmp_path: Path) -> None:
    topics, qrels = tmp_path / "topics.tsv", tmp_path / "qrels.txt"
    topics.write_text("301\tInternational Organized Crime\n302\tPoliomyelitis\n303\tnot judged\n")
    qrels.write_text("301 0 FBIS-1 1\n301 0 my photos/a b.jpg 2\n302 0 FBIS-1 0\n302 Q0 FBIS-2 -2\n")
    assert read_queries(topics, qrels) == [
        JudgedQuery("301", {"FBIS-1": 1, "my photos/a b.jpg": 2}, "International Organized Crime"),
        JudgedQuery("302", {}, "Poliomyelitis"),
    ]


def test_a_folder_of_beir_is_read_with_its_test_split_unless_another_is_named(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    rows = [{"_id": "q1", "text": "a dog", "metadata": {}}, {"_id": "q2", "text": "a car", "metadata": {}}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"qrels has none of test.tsv, dev.tsv, train.tsv: .* with `qrels`"):
        read_queries(tmp_path)
    dev = tmp_path / "qrels" / "dev.tsv"
    dev.write_text("query-id\tcorpus-id\tscore\nq2\td 2\t1\n")
    assert read_queries(tmp_path) == [JudgedQuery("q2", {"d 2": 1}, "a car")]
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    assert read_queries(tmp_path) == [JudgedQuery("q1", {"d1": 2}, "a dog")]
    assert read_queries(tmp_path, dev) == [JudgedQuery("q2", {"d 2": 1}, "a car")]


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
    topics, qrels = tmp_path / "topics.tsv", tmp_path / "qrels"
    topics.write_text("1\ta dog\n")
    with pytest.raises(ConfigError, match=r"topics of TREC, which need `qrels`; lines of JSON end with \.jsonl"):
        read_queries(topics)
    for text, message in (
        ("1 0 a\n", "line 1: a judgement is QUERY 0 DOCUMENT GRADE, not '1 0 a'"),
        ("1\ta\t1\n1\tb\thigh\n", "line 2: a grade is a whole number, not 'high'"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgements"),
    ):
        qrels.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_qrels(qrels)
    qrels.write_text("2 0 a 1\n")
    with pytest.raises(
        ConfigError, match=r"no query was judged: the ids of queries are '2' in .*qrels and '1' in .*to"
    ):
        read_queries(topics, qrels)
    topics.write_text("1 a dog\n")
    with pytest.raises(ConfigError, match="line 1: a query is ID, a tab and its text"):
        read_queries(topics, qrels)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_qrels(tmp_path / "away")
    qrels.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not a text in UTF-8"):
        read_qrels(qrels)
