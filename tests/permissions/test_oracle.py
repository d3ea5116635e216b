"""A restricted handle says of everything what an index of only its documents says, to the last bit."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vlmsearch_mocks import MockReranker

from vlmsearch import Document, Matches, Pipeline, Query
from vlmsearch.demo.drawing import render
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.registry import open_encoder, open_generator, open_store
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.stores.base import Describable, Tunable

GROUPS = [f"group:{n}" for n in range(8)]
WORDS = re.findall(
    r"\S+",
    "dog snow car blue pay rise map tree river house night cat red green invoice garden report train bridge letter "
    "Straße Häuser running runs 4471 77.31-22 parseHttp",
)


def _readers(rng: random.Random) -> list[str] | None:
    return rng.choice([None, [], ["*"], rng.sample(GROUPS, 1), rng.sample(GROUPS, 2), rng.sample(GROUPS, 4)])


def _says(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def make_documents(folder: Path, rng: random.Random) -> list[Document]:
    """Return notes, pictures with twins, long texts with passages, and pages of files, each with readers."""
    made = [
        Document(f"note-{n:03}", text=_says(rng, rng.randint(1, 25)), readers=_readers(rng), metadata=_values(n))
        for n in range(130)
    ]
    for n in range(45):
        path = folder / f"scene-{n:02}.png"
        scene = make_scene(n // 2 if n < 20 else n)  # the first have a twin each
        render(scene, 96).save(path)
        text = f"{scene.background} {_says(rng, 3)}" if n % 5 == 0 else None
        made.append(Document(path.name, image=path, text=text, readers=_readers(rng), metadata=_values(n)))
    for n in range(8):
        text = "\n\n".join(f"{_says(rng, 60).capitalize()}." for _ in range(8))
        made.append(Document(f"book-{n}", text=text, readers=_readers(rng), metadata=_values(n)))
    for n in range(8):
        of_file = _readers(rng)
        for page in range(1, 5):  # one file has pages of others, too
            readers = _readers(rng) if n == 0 else of_file
            made.append(
                Document(f"file-{n}.pdf#page={page}", text=_says(rng, 30), readers=readers, metadata=_values(n))
            )
    return made


def _values(n: int) -> Mapping[str, object]:
    return {
        "n": n,
        "year": 2000 + n % 7,
        "kind": "even" if n % 2 == 0 else "odd",
        **({"rare": n} if n % 40 == 3 else {}),
    }


class Remembered:
    """An encoder that encodes each text once."""

    def __init__(self, encoder: Encoder) -> None:
        self.known: dict[tuple[str, str], dict[str, np.ndarray[Any, Any]]] = {}
        self.encoder, self.encode = encoder, encoder.encode_texts

    def encode_texts(self, texts: Sequence[str], *, role: str = "document") -> dict[str, Any]:
        for text in texts:
            if (text, role) not in self.known:
                self.known[text, role] = self.encode([text], role=role)  # type: ignore[arg-type]
        rows = [self.known[text, role] for text in texts]
        spaces = [space for space in self.encoder.spaces if "text" in space.modalities]
        return {
            space.name: np.concatenate([row[space.name] for row in rows])
            if rows
            else np.empty((0, space.dim), np.float32)
            for space in spaces
        }


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    with open_encoder("onnx:demo") as opened:
        opened.encode_texts = Remembered(opened).encode_texts  # type: ignore[method-assign]
        yield opened


def _pages(handle: Pipeline, **options: Any) -> list[Matches]:
    pages = [handle.search("dog snow house", limit=4, **options)]
    while pages[-1].cursor and len(pages) < 12:
        pages.append(handle.search("dog snow house", limit=4, cursor=pages[-1].cursor, **options))
    return pages


def _info(handle: Pipeline) -> Mapping[str, object]:
    described = handle.store.describe() if isinstance(handle.store, Describable) else {}
    of_place = {"store", "created", "rejected", *described}
    return {key: value for key, value in handle.info().items() if key not in of_place}


def _measures(handle: Pipeline, id: str) -> object:
    queries = [JudgedQuery("a", {id: 1, "note-001": 1}, "dog snow"), JudgedQuery("b", {"x": 1}, "cat")]
    measured = handle.evaluate(queries)
    return measured["curves"], {name: field["measures"] for name, field in measured["fields"].items()}


Verb = Callable[[Pipeline, Sequence[str]], object]
VERBS: dict[str, Verb] = {
    "words": lambda h, ids: [
        h.search(q, limit=30) for q in ("dog snow", "pay rise invoice", "Haus", "4471", "parse http")
    ],
    "misspelt": lambda h, ids: [h.search(q, limit=30) for q in ("hosue", "gardn rivr", "invioce")],
    "nothing": lambda h, ids: [h.search(q) for q in ("zebra crossing", "the", "x")],
    "phrases": lambda h, ids: [h.search(q, limit=30) for q in ('"dog snow"', "red -dog", 'house -"blue pay"')],
    "picture": lambda h, ids: h.search("a red star at night", limit=20, min_score=0),
    "image": lambda h, ids: h.search(image=render(make_scene(3), 96), limit=20),
    "like": lambda h, ids: h.search(like=[ids[0], ids[-1]], limit=20),
    "without": lambda h, ids: [h.search("dog", without="red", limit=20), h.search("dog", without=[ids[1]], limit=20)],
    "where": lambda h, ids: h.search("dog", where={"$or": [{"year": {"$gte": 2004}}, {"kind": "odd"}]}, limit=30),
    "unknown": lambda h, ids: h.search("dog", where={"rare": {"$gt": 10_000}}),
    "readers": lambda h, ids: h.search("dog", where={"readers": "group:1"}, facets=["readers"], limit=30),
    "count": lambda h, ids: h.search("house", count=True, facets=["kind", "year", "rare"], limit=3),
    "sort": lambda h, ids: [h.search("house", sort=key, limit=20) for key in ("-year", "rare", "kind")],
    "whole files": lambda h, ids: [
        h.search("bridge letter", group=group, limit=30, min_score=0) for group in (True, False)
    ],
    "diversity": lambda h, ids: h.search("snow car", diversity=0.5, limit=15),
    "pages": lambda h, ids: [_pages(h), _pages(h, diversity=0.3)],
    "all": lambda h, ids: h.search("tree river", min_score=0, limit=400),
    "weights": lambda h, ids: h.search("tree river", weights={"words": 0}, limit=20),
    "words alone": lambda h, ids: h.search("tree river", weights={"words": 2, "minilm/text": 0.5}, limit=20),
    "rerank": lambda h, ids: h.search("tree river", rerank=True, rerank_first=20, limit=20, count=True),
    "many": lambda h, ids: h.search_many(["dog", Query(like=(ids[2],)), "rivr"], limit=12, facets=["n"]),
    "ask": lambda h, ids: [h.ask("the garden of the red house"), h.ask("a red dog", limit=2, where={"kind": "odd"})],
    "explain": lambda h, ids: [h.explain("dog snow hosue", id, parts=False) for id in ids[:: max(len(ids) // 5, 1)]],
    "explain reranked": lambda h, ids: h.explain("dog snow", ids[0], rerank=True, limit=3),
    "label": lambda h, ids: list(h.label(["dog", "a red star", "garden"], min_score=0)),
    "label where": lambda h, ids: list(h.label(["snow"], where={"kind": "odd"}, limit=9)),
    "duplicates": lambda h, ids: h.duplicates(),
    "evaluate": lambda h, ids: _measures(h, ids[0]),
    "documents": lambda h, ids: sorted(document.id for document in h.documents()),
    "count documents": lambda h, ids: [len(h), h.count(), h.info()["files"], h.info()["passages"]],
    "get": lambda h, ids: h.get([*ids, "never", f"{ids[0]}#passage=1", "book-1#passage=2"]),
    "thumbnail": lambda h, ids: [h.thumbnail(id, size=32) for id in ids if id.endswith(".png")][:3],
    "info": lambda h, ids: _info(h),
    "rejects": lambda h, ids: h.rejects(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sets", "step"),
    [
        ("mock:", 12, 12),
        ("sqlite:", 50, 25),
        pytest.param("mock:", 50, 1, marks=pytest.mark.exhaustive),
        pytest.param("sqlite:", 50, 1, marks=pytest.mark.exhaustive),
    ],
)
def test_every_verb_is_that_of_an_index_of_the_readable_alone(
    kind: str, sets: int, step: int, encoder: Encoder, tmp_path: Path
) -> None:
    """Check one of ``step`` verbs for each set of principals."""
    rng = random.Random(7)
    documents = make_documents(tmp_path, rng)
    generator, reranker = open_generator("extractive:"), MockReranker()

    def index_at(name: str) -> Pipeline:
        store = open_store(kind if kind == "mock:" else f"{kind}{tmp_path / name}")
        return Pipeline(encoder, store, generator, reranker=reranker)

    whole = index_at("whole")
    whole.add(documents)
    gone, again = {"note-005", "note-006", "scene-08.png"}, ["note-020", "book-2"]
    whole.delete(gone)
    whole.add([Document(d.id, text=f"{d.text} again", metadata=_values(1)) for d in documents if d.id in again])
    assert isinstance(whole.store, Tunable)
    order = [*(d.id for d in documents if d.id not in {*gone, *again}), *again]
    records = whole.store.records(order)
    differ: list[str] = []
    for turn in range(sets):
        principals = [*rng.sample(GROUPS, rng.choice([0, 1, 1, 2, 3, 5])), "user:ann"]
        handle = whole.restricted(principals)
        own = [r for r in records if r.document.readers is None or r.document.readers & {*principals}]
        few = index_at(f"few-{turn}")
        few.store.bind(encoder.fingerprint, encoder.spaces)
        few.store.upsert(own)
        ids = [record.document.id for record in own]
        for name, verb in list(VERBS.items())[turn % step :: step]:
            own_result, wanted = verb(handle, ids), verb(few, ids)
            if own_result != wanted:
                differ.append(f"{name} for {sorted(principals)}: {own_result} is not {wanted}")
    assert not differ, differ[0]
