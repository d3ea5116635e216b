"""Misspelt words of queries: what they are taken for, and what is not taken for misspelt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import serving
from vlmsearch import Document, Pipeline, connect
from vlmsearch.search.relevance import words_beside
from vlmsearch.search.spelling import nearest_words, respelt
from vlmsearch.server.settings import IndexSettings, ServerSettings

MISSPELT = """
bycicle bicycle, recieve receive, enviroment environment, calender calendar, tommorow tomorrow, restaraunt restaurant,
neccessary necessary, beleive believe, buisness business, cemetary cemetery, embarass embarrass, foriegn foreign,
gaurd guard, grammer grammar, knowlege knowledge, libary library, lisence license, medecine medicine,
parliment parliament, posession possession, refridgerator refrigerator, rythm rhythm, schedual schedule,
suprise surprise,
temperture temperature, threshhold threshold, vaccum vacuum, vegtable vegetable, pasword password, keybord keyboard,
umberlla umbrella, giutar guitar, hospitel hospital, mountian mountain, elefant elephant, fotograph photograph,
choclate chocolate, garantee guarantee, hansome handsome, dinasaur dinosaur, wierd weird, accomodation accommodation
fahrad fahrrad, standart standard, agressiv aggressiv, rhytmus rhythmus, maschiene maschine, tolleranz toleranz,
kühlschank kühlschrank, gerurtstag geburtstag, vorraussetzung voraussetzung
bicilceta bicicleta, iglecia iglesia, ventna ventana, cabayo caballo, telefno teléfono, exelente excelente,
gitarra guitarra, aereopuerto aeropuerto, havitación habitación
велосипет велосипед, кампьютер компьютер, извени извини, агенство агентство, руский русский, пагода погода,
територия территория, собоки собаки
"""
PAIRS = [tuple(pair.split()) for pair in MISSPELT.replace("\n", ",").split(",") if pair.strip()]
LANGUAGES = {"fahrad": "das ist nicht von der", "bicilceta": "el texto de la casa que está", "велосипет": "это"}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Sentences with the right words, in their languages."""
    around, texts = "this is about the", []
    for typed, right in PAIRS:
        around = LANGUAGES.get(typed, around)
        texts.append(f"{around} {right}")
    return texts


@pytest.fixture(scope="module", params=["mock", "sqlite"])
def index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> Iterator[Pipeline]:
    store = "mock:" if request.param == "mock" else f"sqlite:{tmp_path_factory.mktemp('spelling')}/index"
    with Pipeline.open(encoder="onnx:demo-minilm", store=store) as pipeline:
        pipeline.add(Document(str(number), text=text) for number, text in enumerate(texts))
        yield pipeline


def test_misspelt_words_are_met_by_the_nearest_words_of_the_index(index: Pipeline) -> None:
    mended = nearest_words(index.store, [typed for typed, _ in PAIRS], "auto", index.encoder)
    wrong = {typed: (words, right) for (typed, right), words in zip(PAIRS, mended) if words.get(typed) != right}
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize(
    "query",
    [
        "bicycles and guitars",  # held by their stems
        "zeppelins",  # nothing is near
        "BYCICLE",  # an abbreviation
        "bycicle7",  # a code
        "x-bycicle",
        "www.bycicle.org",
        "bycicle" * 8,
        '"bycicle"',  # a phrase
        'the "my bycicle" sign',
        "gard",  # too short
        "kuard",  # another first letter
        "東京 オリンピック",
    ],
)
def test_other_words_are_as_they_are(index: Pipeline, query: str) -> None:
    assert nearest_words(index.store, [query], "auto", index.encoder) == [{}]
    assert index.search(query).shown_for == {}


def test_what_the_model_knows_is_a_word() -> None:
    with Pipeline.open(encoder="onnx:demo-minilm", store="mock:") as pipeline:
        pipeline.add([Document("1", text="a squire on a horse"), Document("2", text="a heat wave")])
        assert pipeline.search("square").shown_for == {}
        assert pipeline.search("squrie").shown_for == {"squrie": "squire"}


def test_words_keep_their_place_and_their_capitals(index: Pipeline) -> None:
    [words] = nearest_words(index.store, ["My Bycicle, (giutar) and bycicle-7 bycicle."], "auto", index.encoder)
    assert list(words.items()) == [("Bycicle", "Bicycle"), ("giutar", "guitar"), ("bycicle", "bicycle")]
    mended = respelt("My Bycicle, (giutar) and bycicle-7 bycicle.", words)
    assert mended == "My Bicycle, (guitar) and bycicle-7 bicycle."


def test_words_and_vectors_are_asked_for_what_was_meant(index: Pipeline) -> None:
    right, misspelt = index.search("guitar", min_score=0), index.search("giutar", min_score=0)
    assert [match.document.id for match in misspelt] == [match.document.id for match in right]
    assert right[0].score > misspelt[0].score > 0.3
    assert right[0].fields["minilm/text"] == misspelt[0].fields["minilm/text"]
    assert misspelt.shown_for == {"giutar": "guitar"}
    assert misspelt.spelling == "Shown for guitar (no document has giutar)."
    assert repr(misspelt).splitlines()[1].strip() == misspelt.spelling
    assert index.explain("giutar", right[0].document.id).notes[-1] == misspelt.spelling


def test_words_that_stand_for_others_count_less() -> None:
    sure, respelt_words = words_beside(40.0, "red stars"), words_beside(40.0, "red stars", respelt=1)
    assert 0 < respelt_words.weight < sure.weight
    assert respelt_words.alone is not None
    assert sure.alone is not None
    assert respelt_words.alone.slope < sure.alone.slope


def test_every_page_and_every_query_is_of_the_same_words(index: Pipeline) -> None:
    first = index.search("giutar temperture", limit=1, min_score=0)
    second = index.search("giutar temperture", limit=1, min_score=0, cursor=first.cursor)
    assert first.shown_for == second.shown_for == {"giutar": "guitar", "temperture": "temperature"}
    assert first[0].document.id != second[0].document.id
    many = index.search_many(["giutar", "guitar", "temperture"])
    assert [dict(matches.shown_for) for matches in many] == [{"giutar": "guitar"}, {}, {"temperture": "temperature"}]
    counted = index.search("giutar", count=True, limit=100)
    assert counted.shown_for == {"giutar": "guitar"}
    assert counted.total == len(counted) > 0


def test_what_is_left_out_is_not_mended(index: Pipeline) -> None:
    assert index.search("guitar -temperture").shown_for == {}
    assert index.search("temperature", without="temperture").shown_for == {}


def test_a_service_and_its_client_tell_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("how to repair a bicycle")
    settings = IndexSettings(f"sqlite:{tmp_path}/index", "onnx:demo-minilm", allow=(str(tmp_path),))
    with serving(ServerSettings({"notes": settings})) as running, connect(running.url, index="notes") as remote:
        remote.index(tmp_path)
        matches = remote.search("bycicle repair")
        assert matches.shown_for == {"bycicle": "bicycle"}
        assert [match.document.text for match in matches] == ["how to repair a bicycle"]
