"""Long texts, in small: handbooks of drawn abstracts."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import long_texts, outside
from benchmarks.long_texts import (
    Handbooks,
    cosine_first,
    draw_texts,
    measure_cost,
    measure_extractive,
    measure_first,
    measure_prompts,
    measure_rare,
    read_handbooks,
)
from vlmsearch.encoders.base import Encoder
from vlmsearch.registry import open_encoder

_SUBJECTS = ("library catalogue", "citation count", "journal subscription", "retrieval model", "microfilm reader")
_PLACES = ("hospital", "university", "parliament", "factory", "museum")


@pytest.fixture
def cisi(tmp_path: Path) -> Path:
    """Return a folder in CISI's format with 25 abstracts of about 80 words."""
    rng = random.Random(0)
    said = "The report compares methods of old. Readers of both houses were asked for more. A table is given of them."
    entries = [
        f".I {number}\n.T\nThe {subject}\nof a {place}\n.A\nNobody, N.\n.W\n"
        + "\n".join(f"The {subject} of the {place} {rng.randrange(100)}. {said}" for _ in range(3))
        for number, (subject, place) in enumerate((s, p) for s in _SUBJECTS for p in _PLACES)
    ]
    (tmp_path / "CISI.ALL").write_text("\n".join(entries) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """Return the mock encoder, which has no resources."""
    return open_encoder("mock:")


def test_handbooks_hold_abstracts_and_not_their_titles(cisi: Path) -> None:
    handbooks = read_handbooks(cisi, count=3, words=200, queries=5)
    assert [len(paragraphs) for paragraphs in handbooks.paragraphs.values()] == [3, 3, 3]
    assert len(handbooks.queries) == 5
    texts = {document.id: document.text or "" for document in handbooks.whole}
    for title, id in handbooks.queries:
        assert title.startswith("The ")
        assert "\n" not in title
        assert title not in texts[id], "the title itself is left out"
    assert [page.id for page in handbooks.by_hand][2:4] == ["handbook-00#page=3", "handbook-01#page=1"]
    assert handbooks == read_handbooks(cisi, count=3, words=200, queries=5), "drawn the same each time"


def test_the_right_text_is_counted_first_and_among_three(encoder: Encoder) -> None:
    handbooks = Handbooks(
        {"a": ["red kites", "blue bikes"], "b": ["green ferries", "grey trams"], "c": ["a plane"], "d": ["old vans"]},
        [("blue bikes", "a"), ("grey trams", "b"), ("a plane", "d")],
    )
    assert cosine_first(handbooks, encoder)[0] == 2
    assert measure_first(handbooks.by_hand, handbooks.queries, encoder)[0] == 2


def test_rare_words_are_shown_behind_few_and_many_others(cisi: Path, encoder: Encoder) -> None:
    handbooks = read_handbooks(cisi, count=4, words=200, queries=5)
    score, is_shown = measure_rare(handbooks, 0, encoder)
    assert 0.5 < score <= 1
    assert is_shown
    assert 0 <= measure_rare(handbooks, 100, encoder)[0] <= 1


def test_answers_in_the_middle_are_looked_for_in_prompts(cisi: Path, encoder: Encoder) -> None:
    handbooks = read_handbooks(cisi, count=4, words=200, queries=5)
    questions, shown, quoted, sources, quoted_sources = measure_prompts(handbooks, encoder)
    assert questions == 12
    assert 0 < shown <= sources <= 12
    assert 0 < quoted <= quoted_sources <= sources


def test_replies_are_measured_by_their_first_words(tmp_path: Path, encoder: Encoder) -> None:
    rows = [
        {"context": f"The {bird} lives in the {place}.", "qas": [
            {"question": f"Where does the {bird} live?", "answers": [{"text": f"in the {place}"}]},
            {"question": "Which bird sings?", "answers": []},
        ]}
        for bird, place in (("heron", "marsh"), ("kestrel", "tower"), ("jay", "oak"))
    ]  # fmt: skip
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": rows[:2]}, {"paragraphs": rows[2:]}]}))
    asked, right, words = measure_extractive(tmp_path / "squad.json", encoder)
    assert asked == 3, "a question without an answer is not asked"
    assert right == 3
    assert words >= 6


def test_a_long_text_costs_what_its_passages_do(cisi: Path) -> None:
    texts = dict(draw_texts(cisi, 3))
    assert [len(paragraphs) for paragraphs in texts.values()] == [14] * 3
    whole, pages = (measure_cost(cisi, 3, is_whole) for is_whole in (True, False))
    assert pages[0] == 42
    assert 3 < whole[0] < 42, "these small paragraphs are put together"
    assert all(figure > 0 for figure in (*whole, *pages))


def test_all_tables_are_printed(cisi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(read_handbooks, count=4, words=200, queries=5)
    monkeypatch.setattr(long_texts, "read_handbooks", small)
    monkeypatch.setattr(long_texts, "BEFORE", (0, 50))
    result = CliRunner().invoke(outside.main, ["long", "--cisi", str(cisi), "--encoder", "mock:", "--texts", "2"])
    assert result.exit_code == 0, result.output
    for title in ("of 5 titles", "four rare words behind 50", "answers in the middle", "2 texts"):
        assert title in result.output
    assert "ratio" in result.output
    assert "extractive" not in result.output, "no questions were given"
