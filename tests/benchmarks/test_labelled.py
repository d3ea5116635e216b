"""Labelled collections: what counts as an answer, and what has none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from benchmarks.labelled import OWN_LANGUAGES, draw_company, own_questions, read_cisi, read_questions, read_xquad
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
    collection = read_cisi(tmp_path)
    assert collection.documents == (
        Document("1", text="Dogs in the snow\nHuskies pull a sledge\nthrough the forest."),
        Document("2", text="Blue cars\nA parade of old cars."),
        Document("4", text="Boats on a lake."),
    )
    assert collection.queries == {"1": "a sledge and\nhuskies", "2": "cars of old"}
    assert collection.relevance == {"1": {"1": 1}, "2": {"2": 1, "4": 1}}
    more = collection.with_unanswered(["how to knead dough", "tyre pressure"])
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


def test_all_paragraphs_of_some_articles_are_left_out(tmp_path: Path) -> None:
    ids = [f"{article}-{number}" for article in range(40) for number in range(2)]
    queries = [{"id": f"q{id}", "text": f"about {id}?", "doc": id} for id in ids]
    (tmp_path / "es.json").write_text(json.dumps({"docs": {id: f"text {id}" for id in ids}, "queries": queries}))
    collection = read_xquad(tmp_path / "es.json")
    kept = [document.id for document in collection.documents]
    assert (len(kept), len({id.partition("-")[0] for id in kept})) == (56, 28), "both paragraphs of an article"
    assert collection.relevance == {f"q{id}": {id: 1} if id in kept else {} for id in ids}
    assert (collection.queries["q7-1"], collection.language) == ("about 7-1?", "es")


def test_a_company_is_the_same_whenever_it_is_drawn() -> None:
    company = draw_company()
    assert company == draw_company()
    texts = {document.id: document.text or "" for document in company.documents}
    assert len(texts) == len(set(texts.values())) == 80
    assert all(40 <= len(text.split()) <= 250 for text in texts.values())
    assert all(len(query.split()) <= 7 for query in company.queries.values())
    assert len(company.answered) == len(set(company.queries.values())) == 26
    (code,) = (query for query in company.queries.values() if query.startswith("DN-"))
    assert [id for id, text in texts.items() if code in text] == ["delivery-note-1"]


def test_paragraphs_in_six_languages_answer_two_questions_each() -> None:
    files = sorted(OWN_LANGUAGES.glob("*.json"))
    assert [file.stem for file in files] == ["ar", "de", "fr", "hi", "ru", "zh"]
    for file in files:
        collection = read_xquad(file, left_out=0)
        asked = Counter(id for relevance in collection.relevance.values() for id in relevance)
        assert asked == dict.fromkeys((document.id for document in collection.documents), 2)
        assert len(asked) == 40
        assert collection.language == file.stem
