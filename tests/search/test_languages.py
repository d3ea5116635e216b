# ruff: noqa: RUF001 - texts in Russian
"""An index in a language that its text model hardly knows: words decide, and search says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.labelled import OWN_LANGUAGES, read_xquad
from benchmarks.outside import measure_together
from vlmsearch import Document, Pipeline, UncalibratedWarning
from vlmsearch.search.relevance import Backgrounds, Judge, TextStatistics, words_beside
from vlmsearch.types import Field

NOUNS = [
    "река",
    "гора",
    "мост",
    "завод",
    "поезд",
    "лодка",
    "школа",
    "рынок",
    "театр",
    "огород",
    "пекарня",
    "мельница",
    "аптека",
    "музей",
    "вокзал",
    "ферма",
]
VERBS = ["стоит", "шумит", "работает", "открывается", "строится", "ждёт", "гудит", "светится"]
PLACES = ["у леса", "за холмом", "на севере", "возле озера", "рядом с площадью", "под старым дубом"]
TEXTS = [
    f"{noun} {VERBS[n % 8]} {PLACES[n % 6]}, и там каждый день номер {n} встречает гостей"
    for n, noun in enumerate(NOUNS * 4)
]
STORES = ["mock:", "sqlite:{}/index"]


@pytest.fixture(params=STORES)
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="onnx:demo-minilm", store=request.param.format(tmp_path)) as opened:
        yield opened


def filled(pipeline: Pipeline, texts: list[str] = TEXTS) -> Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncalibratedWarning)
        pipeline.add(Document(f"{n:02}", text=text) for n, text in enumerate(texts))
    return pipeline


def test_search_warns_once_of_a_language_that_the_model_hardly_knows(pipeline: Pipeline) -> None:
    with pytest.warns(UncalibratedWarning, match="minilm hardly knows Cyrillic.*multilingual") as caught:
        pipeline.add(Document(f"{n:02}", text=text) for n, text in enumerate(TEXTS))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [(name, reason)] = pipeline.search("мельница у леса").uncalibrated.items()
    assert (name, reason) == ("minilm/text", "minilm hardly knows Cyrillic, which the texts of this index are in")


def test_words_decide_where_vectors_know_nothing(pipeline: Pipeline) -> None:
    filled(pipeline)
    for at in (3, 20, 41):
        noun, place = NOUNS[at % 16], PLACES[at % 6]
        query = f"{noun} {place} номер {at}"
        matches = pipeline.search(query, limit=5, min_score=0)
        said = [match.fields["words"].score for match in matches]
        assert said == sorted(said, reverse=True)
        assert matches[0].document.id == f"{at:02}"
        assert [match.document.id for match in pipeline.search(query)] == [f"{at:02}"], "and no other is shown"


def test_what_no_text_answers_is_not_shown(pipeline: Pipeline) -> None:
    filled(pipeline)
    assert not pipeline.search("как починить велосипед у дома")


def test_few_texts_are_judged_by_their_letters(pipeline: Pipeline) -> None:
    filled(pipeline, TEXTS[:12])
    assert "minilm hardly knows" in pipeline.search("мельница").uncalibrated["minilm/text"]
    assert [match.document.id for match in pipeline.search("мельница стоит")][:1] == ["11"]


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("wie repariere ich das Fahrrad mit der Hand", "German"),
        ("где стоит мельница", "Cyrillic"),
        ("the mill and the lake in which it is", None),
        ("mill", None),
        ("4711", None),
    ],
)
def test_a_query_in_another_language_is_said_to_be_so(pipeline: Pipeline, query: str, language: str | None) -> None:
    filled(pipeline, [f"The mill number {n} stands at the lake, and it is as old as the others" for n in range(20)])
    reason = pipeline.search(query).uncalibrated.get("words")
    assert reason == (language and f"the query is in {language}, and the texts of this index are in English")


def test_english_words_that_a_model_lacks_shrink_no_vectors() -> None:
    assert TextStatistics(9.0, {"English": 0.9}).knowledge == 1
    assert TextStatistics(9.0, {}).knowledge == 1
    assert TextStatistics(1.0, {"German": 1.0}).knowledge == 1
    assert TextStatistics(3.0, {"German": 1.0}).knowledge == pytest.approx(0.125)
    assert TextStatistics(12.0, {"Thai": 1.0}).knowledge < 0.01


def test_words_by_themselves_are_judged_by_what_other_texts_meet() -> None:
    met = [words_beside(50.0, "a b c d e f", known=0.0, rivals=rivals)(6.0) for rivals in (0.0, 2.0, 5.0)]
    assert met == sorted(met, reverse=True)
    assert met[1] - met[2] == pytest.approx(28 * 3 / 50, rel=0.05)


def test_rivals_are_documents_and_no_passages_of_one(tmp_path: Path) -> None:
    long = " ".join(f"Мельница стоит у реки, и в год {n} её чинили мастера." for n in range(60))
    with Pipeline.open(encoder="onnx:demo-minilm", store=f"sqlite:{tmp_path}/index") as pipeline:
        filled(pipeline, [long, *TEXTS[:10]])
        manifest = pipeline.store.manifest()
        assert manifest is not None
        backgrounds, field = Backgrounds(), Field("minilm", "text")
        judge = Judge(pipeline.encoder, pipeline.store, manifest, backgrounds)
        assert pipeline.store.count_passages() > 5
        judge.backgrounds.get(pipeline.store, manifest, field)
        words = pipeline.store
        hits = words.compare_words("мельница чинили мастера", pipeline.store.sample_ids(field, 512))  # type: ignore[attr-defined]
        assert len({hit.id for hit in hits}) > 5
        assert backgrounds.rivals(pipeline.store, words, field, "мельница чинили мастера") < hits[0].score / 4  # type: ignore[arg-type]


def test_words_of_long_queries_count_more_than_their_mean() -> None:
    few, several, many = (
        words_beside(10.0 * n, " ".join(f"word{letter}" for letter in "abcdefghijklmnopqrst"[:n])) for n in (2, 5, 16)
    )
    assert few.slope == pytest.approx(0.3 / 2**0.75)
    assert several.slope == pytest.approx(0.3 / 5**0.75)
    assert 0.3 / 16**0.75 < many.slope < several.slope
    assert many(160 / 8) == pytest.approx(0.3 / 16**0.75 * 20 - 0.6, abs=0.02), "what two of them say is as before"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vlmsearch.UncalibratedWarning")
@pytest.mark.parametrize("file", sorted(OWN_LANGUAGES.glob("*.json")), ids=lambda file: file.stem)
def test_vectors_that_know_little_do_not_outvote_words_in_six_languages(file: Path) -> None:
    figures = measure_together([read_xquad(file)], "onnx:demo-minilm")
    assert figures.ndcg is not None
    assert figures.by_words is not None
    assert figures.precision is not None
    assert figures.ndcg > figures.by_words - 0.01
    assert figures.precision > 0.7
