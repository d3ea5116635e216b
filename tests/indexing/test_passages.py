"""Long texts in passages: where they are cut, what is indexed of them, and that nothing stale is left behind."""

from __future__ import annotations

import dataclasses
import random
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import run
from tests.support.office import write
from tests.support.pdf_files import write_pdf
from vlmsearch import Document, InvalidInputError, Pipeline, SourceOptions
from vlmsearch.encoders.base import Encoder
from vlmsearch.indexing import flow
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.diff import diff
from vlmsearch.indexing.parquet import ParquetIndex, export_index
from vlmsearch.indexing.passages import Splitter, with_passages, without_passages
from vlmsearch.indexing.reindex import reindex
from vlmsearch.integrations.framework_index import FrameworkDocument, FrameworkIndex
from vlmsearch.registry import open_store
from vlmsearch.types import Field, Passage, Role, Space, Vectors


def words(texts: Sequence[str]) -> list[int]:
    """A token a word; a character of a script without spaces is one, too."""
    return [sum(max(1, sum(char > "\u0e00" for char in word)) for word in text.split()) for text in texts]


SPLITTER = Splitter(80, words)


def paragraph(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count)) + "."


def split(text: str, splitter: Splitter = SPLITTER) -> tuple[Passage, ...]:
    """The passages of a text, which cover it and fit the window."""
    passages = splitter.split(text)
    assert not passages or "".join(passage.text for passage in passages) == text
    assert [passage.number for passage in passages] == list(range(1, len(passages) + 1))
    for passage in passages:
        assert text[passage.start : passage.end] == passage.text != ""
        assert splitter.count([passage.encoded])[0] <= splitter.window
        assert splitter.count([passage.heading])[0] <= splitter.window // 4
    return passages


def test_a_text_that_the_model_reads_whole_has_no_passages() -> None:
    assert split(paragraph(80)) == ()
    assert split("") == split(" \n" * 10_000) == ()
    assert len(split(paragraph(81))) == 2


def test_paragraphs_of_some_size_are_passages_of_their_own_and_small_ones_are_put_together() -> None:
    sizes = [30, 40, 25, 6, 6, 6, 50, 3]

    passages = split("\n\n".join(paragraph(size, f"p{number}x") for number, size in enumerate(sizes)))

    counts = words([passage.text for passage in passages])
    assert counts == [30, 40, 43, 53]


def test_a_paragraph_that_is_too_long_is_cut_at_sentences_into_equal_parts() -> None:
    sentences = [paragraph(10, f"S{number}x") for number in range(9)]

    passages = split(" ".join(sentences))

    assert [words([passage.text])[0] for passage in passages] == [50, 40]
    assert passages[0].text == " ".join(sentences[:5]) + " "


def test_a_sentence_that_is_too_long_is_cut_at_words_and_a_word_at_characters() -> None:
    for passage in split("word " * 500):
        assert passage.text.endswith(" ")
    letters = Splitter(50, lambda texts: list(map(len, texts)))
    assert {len(passage.text) for passage in split("x" * 1000, letters)} == {50}


MARKDOWN = f"""# Handbook

{paragraph(40, "intro")}

## Keys

{paragraph(40, "keys")}

{paragraph(40, "more")}

### Spare ones

{paragraph(40, "spare")}

```
# no heading
```

Safes
-----

{paragraph(60, "safe")}
"""


def test_markdown_headings_are_the_path_of_a_passage_and_stay_in_its_text() -> None:
    passages = split(MARKDOWN)

    assert [(passage.heading, passage.text.split()[:2]) for passage in passages] == [
        ("", ["#", "Handbook"]),
        ("Handbook", ["##", "Keys"]),
        ("Handbook > Keys", ["more0", "more1"]),
        ("Handbook > Keys", ["###", "Spare"]),
        ("Handbook", ["Safes", "-----"]),
    ]
    assert passages[2].encoded.startswith("Handbook > Keys\n\nmore0")


def test_headings_without_marks_are_known_by_their_numbers_capitals_and_empty_lines() -> None:
    text = (
        f"Handbook of the house\n\n{paragraph(40)}\n\n2 Keys\n\n{paragraph(40)}\n\n2.3 Spare keys\n{paragraph(40)}\n\n"
        f"{paragraph(40)}\n\nTHE SAFE\n{paragraph(40)}\n\n{paragraph(40)}\n\n"
        f"Doors\n\n{paragraph(40)}\n\n{paragraph(40)}"
    )

    passages = split(text)

    path = ["Handbook of the house", "2 Keys", "2.3 Spare keys", "THE SAFE", "Doors"]
    assert [passage.heading for passage in passages] == [" > ".join(path[:count]) for count in (0, 1, 2, 3, 3, 4, 4, 5)]


def test_lists_sums_and_lines_of_text_are_no_headings() -> None:
    listed = "\n\n".join(f"item {number}" for number in range(100))
    wrapped = "\n".join(
        f"{number}.5 litres of milk are in the {number} bottles that stand here" for number in range(40)
    )
    for text in (listed, wrapped, f"{paragraph(70)}\n\n- a point\n\n{paragraph(70)}"):
        assert {passage.heading for passage in split(text)} <= {"", "item 0"}


def test_a_numbered_heading_may_follow_a_sentence_without_an_empty_line() -> None:
    lines = "\n".join(textwrap.wrap(paragraph(40), 100))

    passages = split(f"{lines}\n2.3 Spare keys\n{lines}\n\n{lines}\n2.5 litres\n\n{lines}")

    assert [passage.heading for passage in passages] == ["", "", "2.3 Spare keys", "2.3 Spare keys"]


def test_a_long_path_keeps_the_nearest_headings() -> None:
    text = f"# {paragraph(15, 'far')}\n\n## Near one\n\n### Nearest\n\n{paragraph(70)}\n\n{paragraph(70)}"

    assert split(text)[-1].heading == "Near one > Nearest"


@pytest.mark.parametrize("stop", ["。", "\uff01", "\uff1f"])
def test_chinese_and_japanese_are_cut_behind_their_stops(stop: str) -> None:
    passages = split("".join(f"我们在第{number}天学习汉语{stop}" for number in range(40)))

    assert len(passages) > 4
    assert all(passage.text.endswith(stop) for passage in passages)


def test_thai_is_cut_at_spaces() -> None:
    phrase = "กุญแจอยู่ที่ประตู "

    passages = split(phrase * 40)

    assert len(passages) > 4
    assert all(passage.text.endswith(" ") for passage in passages)


HUGE = {
    "words": "word " * 200_000,
    "letters": "a" * 1_000_000,
    "lines": "a\n" * 500_000,
    "empty lines": "\n" * 1_000_000 + paragraph(200),
    "stops": "." * 1_000_000,
    "marks": "#" * 1_000_000,
    "sentences": "好。" * 500_000,
    "headings": "# a\n\n" * 200_000,
    "quotes": '." ' * 300_000,
}


@pytest.mark.parametrize("kind", HUGE)
def test_the_time_grows_with_the_length_of_any_text(kind: str) -> None:
    text = HUGE[kind]
    started = time.process_time()
    split(text[: len(text) // 8])
    eighth, started = time.process_time() - started, time.process_time()
    split(text)
    assert time.process_time() - started < max(24 * eighth, 2.0)


def test_any_text_is_covered_by_passages_that_fit() -> None:
    generator = random.Random(48)
    parts = [
        "word",
        " ",
        "\n",
        "\n\n",
        ". ",
        "# Head\n\n",
        "好",
        "。",
        "TITLE\n",
        "2.3 Key\n",
        "\ud83d",
        "é",
        "a" * 90,
        "===",
    ]
    parts += ["```\n", "- point\n", "🐕", "\r\n", "\u2028", "ก", "\t", "longer line " * 20]
    for _ in range(300):
        text = "".join(generator.choices(parts, k=generator.randrange(600)))
        window = generator.choice([8, 20, 80, 300])
        split(text, Splitter(window, generator.choice([words, lambda texts: list(map(len, texts))])))


class Plain(Encoder):
    """An encoder that does not say how much it reads."""

    fingerprint = "plain"
    spaces = (Space("plain", 2, frozenset({"text"})),)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        return {"plain": np.tile(np.array([1, 0], np.float32), (len(texts), 1))}

    def encode_images(self, images: Sequence[object]) -> dict[str, Vectors]:
        return {}


def test_an_encoder_that_measures_no_texts_reads_a_thousand_characters() -> None:
    splitter = Splitter.of(Plain())

    assert splitter.split("a" * 1000) == ()
    assert all(len(passage.encoded) <= 1000 for passage in split("A sentence of words. " * 200, splitter))
    assert len(splitter.split("a" * 1001)) == 2


def test_the_mark_of_a_digest_comes_before_others_and_goes_again() -> None:
    for digest in ("ab12", "ab12~ocr1", "ab12~ocr1~seen12+cd", "ab12+cd"):
        marked = with_passages(digest)
        assert marked != digest
        assert marked.startswith("ab12:")
        assert (without_passages(marked), with_passages(marked)) == (digest, marked)
    assert with_passages("") == ""


# ---- what is indexed

LONG = "\n\n".join(paragraph(150, f"p{number}x") for number in range(4))
PAGE = "\n".join(textwrap.wrap(LONG, 100))
TEXTS = [Field("clip", "text"), Field("minilm", "text")]


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(MockEncoder(), MemoryStore())


def shown(pipeline: Pipeline, id: str = "a") -> tuple[Passage, ...]:
    return pipeline.store.passages([id]).get(id, ())


def test_a_long_text_is_one_document_with_the_vectors_of_its_passages(pipeline: Pipeline) -> None:
    report = pipeline.add([Document("a", LONG, metadata={"year": 2024}), Document("b", "a short text")])

    (record,) = pipeline.store.records(["a"])
    assert (report.added, report.passages, report.cut) == (2, 4, 0)
    assert report.counts() == {"added": 2, "passages": 4}
    assert (len(pipeline), pipeline.store.count_passages(), record.document.text) == (2, 4, LONG)
    assert "".join(passage.text for passage in shown(pipeline)) == LONG
    assert not record.vectors.keys() & set(TEXTS)
    expected = MockEncoder().encode_texts([encoded.passage.encoded for encoded in record.passages])
    for field in TEXTS:
        np.testing.assert_allclose(record.vectors_of(field), expected[field.space], atol=1e-6)
    assert pipeline.add(Document("a", LONG, metadata={"year": 2024})).unchanged == 1


def test_long_texts_are_stored_when_some_of_a_batch_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "STORED_TOGETHER", 1)
    encoder = MockEncoder()
    encode, sizes, done = encoder.encode_texts, list[int](), list[int]()

    def counting(texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        sizes.append(len(texts))
        return encode(texts, role=role)

    monkeypatch.setattr(encoder, "encode_texts", counting)
    documents = [Document(f"{number}", LONG) for number in range(flow.BATCH)]
    report = Pipeline(encoder, MemoryStore()).add(documents, on_progress=done.append)
    assert (report.passages, sum(sizes), max(sizes)) == (4 * flow.BATCH, 4 * flow.BATCH, flow.BATCH)
    assert done[:4] == [16, 32, 48, 64]


def test_what_is_replaced_shrunk_or_deleted_leaves_no_passage(pipeline: Pipeline) -> None:
    for text, count in ((LONG, 4), (LONG[: len(LONG) // 2], 2), ("short", 0), (LONG, 4)):
        pipeline.add(Document("a", text))
        assert (pipeline.store.count_passages(), len(shown(pipeline))) == (count, count)
    pipeline.delete("a")
    assert (len(pipeline), pipeline.store.count_passages()) == (0, 0)


def test_files_that_are_gone_leave_no_passage(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    (tmp_path / "b.txt").write_text("short")
    assert pipeline.index(tmp_path).passages == 4
    (tmp_path / "a.txt").unlink()
    assert pipeline.index(tmp_path, prune=True).pruned == 1
    assert pipeline.store.count_passages() == 0


def test_without_passages_a_long_text_is_cut_and_counted_and_both_ways_are_indexed_anew(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    (tmp_path / "b.txt").write_text("short")
    whole = SourceOptions(passages=False)

    report = pipeline.index(tmp_path, options=whole)
    assert (report.added, report.passages, report.cut) == (2, 0, 1)
    assert pipeline.index(tmp_path, options=whole).unchanged == 2

    report = pipeline.index(tmp_path)
    assert (report.updated, report.unchanged, report.passages, report.cut) == (1, 1, 4, 0)
    report = pipeline.index(tmp_path, options=whole)
    assert (report.updated, report.unchanged, report.passages, report.cut) == (1, 1, 0, 1)
    (record,) = pipeline.store.records([str(tmp_path / "a.txt")])
    assert record.vectors.keys() == set(TEXTS)
    assert pipeline.add(Document("x", LONG), passages=False).cut == 1


def test_the_command_line_says_how_many_passages_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    index = ("index", str(tmp_path / "a.txt"), "--store", f"sqlite:{tmp_path}/index", "--encoder", "mock:")

    assert "4 passages of long texts" in run(*index).stdout
    assert "1 long texts are found by their beginnings alone" in run(*index, "--no-passages").stderr


def test_an_id_that_names_a_passage_is_refused_in_a_line(pipeline: Pipeline) -> None:
    with pytest.raises(
        InvalidInputError, match="'x#passage=2' names a passage: give the document another id"
    ) as caught:
        pipeline.add(Document("x#passage=2", "a text"))
    assert caught.value.code == "invalid"
    assert "\n" not in str(caught.value)


def test_a_long_page_of_a_pdf_has_passages_of_its_own(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "f.pdf", ["A short page.", PAGE], size=(900, 2000))
    options = SourceOptions(pdf=True)

    report = pipeline.index(path, options=options)

    assert len(shown(pipeline, f"{path}#page=2")) == report.passages >= 3
    assert shown(pipeline, f"{path}#page=1") == ()
    assert pipeline.get(f"{path}#page=2#passage=2")[0].text == shown(pipeline, f"{path}#page=2")[1].text
    assert pipeline.index(path, options=options).unchanged == 1
    assert pipeline.index(path, options=SourceOptions(pdf=True, passages=False)).cut == 1
    assert pipeline.store.count_passages() == 0


def test_headings_of_web_pages_and_titles_of_files_are_those_of_passages(pipeline: Pipeline, tmp_path: Path) -> None:
    body = f"<h2>Keys</h2><p>{paragraph(150)}<p>{paragraph(150)}<h2>Safe</h2><p>{paragraph(150)}<p>{paragraph(150)}"
    (tmp_path / "a.html").write_text(f"<title>Handbook</title>{body}")

    pipeline.index(tmp_path, options=SourceOptions(office=True))

    headings = [passage.heading for passage in shown(pipeline, str(tmp_path / "a.html"))]
    assert headings == ["", "Handbook > Keys", "Handbook", "Handbook > Safe"]


@pytest.mark.parametrize("passages", [False, True])
def test_frameworks_have_passages_where_they_ask_for_them(pipeline: Pipeline, passages: bool) -> None:
    index = FrameworkIndex(pipeline, passages=True) if passages else FrameworkIndex(pipeline)

    index.write([FrameworkDocument("a", LONG)])

    assert pipeline.store.count_passages() == (4 if passages else 0)
    assert pipeline.add(Document("b", LONG)).passages == 4


# ---- indexes of before, copies and exports


def test_the_model_of_an_index_renews_it_in_its_place(tmp_path: Path) -> None:
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    (tmp_path / "a.txt").write_text(LONG)
    (tmp_path / "b.txt").write_text("short")
    options = SourceOptions(office=True, pdf=True)
    write(tmp_path / "c.docx", LONG)
    write_pdf(tmp_path / "d.pdf", ["A short page.", PAGE], size=(900, 2000))
    pipeline.index(tmp_path, options=dataclasses.replace(options, passages=False))
    pipeline.add([Document("x", LONG), Document("y", "short")], passages=False)

    report = reindex(pipeline.store, pipeline.encoder)

    assert (report.encoded, report.lost, report.documents) == (4, (), len(pipeline))
    assert pipeline.store.count_passages() >= 15
    again = pipeline.index(tmp_path, options=options)
    assert (again.added, again.updated, again.unchanged) == (0, 0, 4)
    assert pipeline.add([Document("x", LONG), Document("y", "short")]).unchanged == 2
    assert reindex(pipeline.store, pipeline.encoder).encoded == 0
    fresh = Pipeline(MockEncoder(), MemoryStore())
    fresh.index(tmp_path, options=options)
    fresh.add([Document("x", LONG), Document("y", "short")])
    assert diff(pipeline.store, fresh.store).counts == {}
    assert reindex(pipeline.store, pipeline.encoder, passages=False).encoded == 4
    assert pipeline.store.count_passages() == 0


def test_another_model_makes_passages_of_its_own(pipeline: Pipeline, tmp_path: Path) -> None:
    other = MockEncoder(neighbours={"a dog": ["a cat"]})
    pipeline.add([Document("a", LONG), Document("b", "short")], passages=False)
    with open_store(f"sqlite:{tmp_path}/index") as kept:
        copy(pipeline.store, kept)
        assert reindex(kept, other).switched
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path}/index") as opened:
        assert opened.store.count_passages() == 4
    with Pipeline(other, open_store(f"sqlite:{tmp_path}/index")) as renewed:
        assert renewed.add([Document("a", LONG), Document("b", "short")]).unchanged == 2


def test_copies_and_exports_have_the_passages(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.add([Document("b", "short"), *(Document(f"a{number}", LONG) for number in range(300))])
    counted: list[int] = []
    file = tmp_path / "index.parquet"
    with MemoryStore() as copied, MemoryStore() as read:
        assert copy(pipeline.store, copied).copied == 301
        assert diff(pipeline.store, copied, tolerance=0).same
        assert export_index(pipeline.store, file, on_progress=counted.append).documents == 301
        with ParquetIndex(file) as exported:
            assert (len(exported), counted[-1]) == (301, 301)
            assert copy(exported, read).copied == 301
            assert copy(exported, read, prune=True).unchanged == 301
        assert diff(pipeline.store, read, tolerance=0).same
        assert read.passages(["a7"]) == pipeline.store.passages(["a7"])
        read.delete(["b"])
        Pipeline(MockEncoder(), read).add(Document("a1", LONG), passages=False)
        found = diff(pipeline.store, read)
        assert found.counts["first only"] == found.counts["passages"] == found.counts["clip/text"] == 1
