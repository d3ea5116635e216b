"""Labelled collections: what counts as an answer, and what has none."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.labelled import own_questions, read_cisi, read_questions
from vlmsearch.types import Document

CISI = {
    "CISI.ALL": """.I 1
.T
Dogs in the snow
.A
Nobody, N.
.W
Huskies pull a sledge
through the forest.
.X
2	5	1
.I 2
.T
Blue cars
.W
A parade of old cars.
.I 3
.A
An author and nothing else
.I 4
.W
Boats on a lake.
""",
    "CISI.QRY": ".I 1\n.W\na sledge and\nhuskies\n.I 2\n.T\na title\n.W\ncars of old\n.I 3\n.W\nnever judged\n",
    "CISI.REL": "     1      1\t0\t0.0\n     2      2\t0\t0.0\n     2      4\t0\t0.000000\n     9      4\t0\t0.0\n",
}


def test_cisi_is_read_and_unanswered_queries_join(tmp_path: Path) -> None:
    for name, text in CISI.items():
        (tmp_path / name).write_text(text)
    found = read_cisi(tmp_path)
    assert found.documents == (
        Document("1", text="Dogs in the snow\nHuskies pull a sledge\nthrough the forest."),
        Document("2", text="Blue cars\nA parade of old cars."),
        Document("4", text="Boats on a lake."),
    )
    assert found.queries == {"1": "a sledge and\nhuskies", "2": "cars of old"}
    assert found.relevance == {"1": {"1": 1}, "2": {"2": 1, "4": 1}}
    more = found.with_unanswered(["how to knead dough", "tyre pressure"])
    assert more.answered == ("1", "2")
    assert [more.queries[id] for id in more.unanswered] == ["how to knead dough", "tyre pressure"]


def test_own_questions_are_about_an_entry_of_their_topic() -> None:
    collections = list(own_questions())
    assert [len(collection.queries) for collection in collections] == [24] * 6
    for collection in collections:
        ids = {document.id for document in collection.documents}
        assert len(ids) == 12
        assert {id for answers in collection.relevance.values() for id in answers} == ids
    queries = [query for collection in collections for query in collection.queries.values()]
    assert len(set(queries)) == len(queries)


def test_questions_of_entries_that_are_left_out_have_no_answer(tmp_path: Path) -> None:
    rows = [
        {"id": f"s{i}", "question": f"question {i}?", "answers": ["so", "or so"], "queries": [f"ask {i}", f"say {i}"]}
        for i in range(40)
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    collection = read_questions(tmp_path / "questions.jsonl")
    ids = {document.id for document in collection.documents}
    assert 15 <= len(ids) <= 25
    assert len(collection.queries) == 80
    assert collection.relevance.keys() == collection.queries.keys()
    for id, answers in collection.relevance.items():
        entry = id.partition("#")[0]
        assert answers == ({entry: 1} if entry in ids else {})
