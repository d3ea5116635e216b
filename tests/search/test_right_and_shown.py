"""With the real all-MiniLM-L6-v2: what is ranked first is shown, whatever else lies beside it."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.labelled import draw_company
from tests.support.checkpoints import minilm
from vlmsearch import Document, Pipeline
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.data import passages
from vlmsearch.encoders.base import Encoder
from vlmsearch.models.recipe import find_recipe
from vlmsearch.registry import open_encoder, open_store

pytestmark = pytest.mark.slow
NO_PICTURES = {"clip/image": 0.0}
LEASE = (
    "The lease of the storage hall in {} Street runs for five years. The notice period is {} months to the end of a "
    "quarter, in writing. Rent is due on the third working day of the month, and the hall is heated from October on."
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoder]:
    folder = tmp_path_factory.mktemp("real") / "all-minilm-l6-v2"
    build_bundle(find_recipe("all-minilm-l6-v2"), checkpoint=minilm(), out=folder, precisions=["int8"])
    with open_encoder(f"onnx:demo-clip+{folder}") as opened:
        yield opened


@contextmanager
def index(encoder: Encoder, folder: Path, texts: Sequence[str]) -> Iterator[Pipeline]:
    with open_store(f"sqlite:{folder}/index") as store:
        pipeline = Pipeline(encoder, store)
        pipeline.add(Document(str(number), text=text) for number, text in enumerate(texts))
        yield pipeline


def other_texts(count: int) -> list[str]:
    return [passage.text for passage in passages()[::2][:count]]


def test_photographs_beside_documents_change_nothing(encoder: Encoder, tmp_path: Path) -> None:
    company = draw_company()
    code = "REF-7042 lies on shelf 9, and questions go to the office on the second floor. " * 6
    with index(encoder, tmp_path, [*(document.text or "" for document in company.documents), code]) as pipeline:

        def scores() -> dict[str, dict[str, float]]:
            asked = [*company.queries.values(), "REF-7042"]
            return {
                query: {match.document.id: match.score for match in pipeline.search(query, weights=NO_PICTURES)}
                for query in asked
            }

        alone = scores()
        assert alone["REF-7042"]["80"] > 0.9
        assert sum(map(bool, alone.values())) > 15
        pictures = []
        for number in range(240):
            path = tmp_path / f"IMG_{number:04}.png"
            Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
            pictures.append(Document(f"photo-{number}", image=path))
        pipeline.add(pictures)
        beside = scores()
    for query, found in alone.items():
        assert beside[query] == pytest.approx(found, abs=0.02), query


@pytest.mark.parametrize("copies", [1, 6, 200])
def test_copies_of_the_answer_hide_none_of_it(encoder: Encoder, tmp_path: Path, copies: int) -> None:
    streets = [f"{name} {number}" for number in range(20) for name in ("Oak", "Mill", "Hill", "Lake", "Dale")]
    leases = [LEASE.format(streets[n % 100], "six" if n < 100 else "nine") for n in range(copies)]
    with index(encoder, tmp_path, [*other_texts(60), *leases]) as pipeline:
        found = pipeline.search("notice period of the storage hall", limit=5)
        assert [int(match.document.id) >= 60 for match in found] == [True] * min(copies, 5)
        assert not pipeline.search("habitat of penguins")


def test_a_topic_that_half_of_the_index_is_about_is_found(encoder: Encoder, tmp_path: Path) -> None:
    rng = random.Random(1)
    dogs = [
        f"a {rng.choice(['brown', 'small', 'white', 'wet'])} dog {rng.choice(['runs', 'jumps', 'sleeps', 'swims'])} "
        f"{rng.choice(['on the grass', 'in a river', 'near a fence', 'on the beach'])} {word}"
        for word in ("alone", "again", "happily", "slowly", "today", "at night", "in the sun", "in the rain")
        for _ in range(18)
    ]
    with index(encoder, tmp_path, [*dict.fromkeys(dogs), *other_texts(120)]) as pipeline:
        for query in ("a dog running", "a dog runs on the grass"):
            found = pipeline.search(query, limit=5)
            assert len(found) == 5
            assert all("dog runs" in (match.document.text or "") for match in found)
        assert not pipeline.search("the price of copper")


def test_texts_of_one_pattern_are_like_each_other(encoder: Encoder, tmp_path: Path) -> None:
    things = ("paper", "toner", "chairs", "lamps", "cables", "screens", "desks", "shelves")
    texts = [
        f"Invoice {7000 + n} of May {1 + n % 28} for {things[n % 8]}: {20 + 13 * n} euros are payable within 14 days."
        for n in range(64)
    ]
    with index(encoder, tmp_path, texts) as pipeline:
        alike = pipeline.search(like=["3"], limit=5)
        assert len(alike) == 5
        assert not pipeline.search("habitat of penguins")


def test_a_name_is_found_in_a_text_that_is_longer_than_most(encoder: Encoder, tmp_path: Path) -> None:
    people, times = (
        ("the baker", "Peter", "the plumber", "Anna", "the bank", "my aunt"),
        ("noon", "four", "nine", "six"),
    )
    notes = [
        f"{verb} {who} about lunch at {when}" for verb in ("call", "meet", "ask") for who in people for when in times
    ]
    talk = (
        "Talked to Mrs Zimmermann from the insurance about the water damage in the cellar, she sends the form next week"
    )
    with index(encoder, tmp_path, [*notes, talk]) as pipeline:
        found = pipeline.search("Zimmermann")
        assert [match.document.id for match in found] == [str(len(notes))]
        assert not pipeline.search("Kowalski")


def test_what_all_documents_say_makes_none_of_them_likely(encoder: Encoder, tmp_path: Path) -> None:
    texts = [f"{text} This page belongs to the staff handbook." for text in other_texts(80)]
    with index(encoder, tmp_path, texts) as pipeline:
        assert all(match.score < 0.9 for match in pipeline.search("what is the staff handbook", min_score=0))
