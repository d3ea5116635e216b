"""One bit of the file turns: what is found is still true, or it is told, by an error in one line or by the check."""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, TEXT, make_records

from vlmsearch import Document, Record, Reject, Stamp, VlmsearchError
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Hit, Scalar

WORDS = ("Hunde", "Häuser", "Bücher", "Öfen", "Küsse", "Äpfel")


def records() -> list[Record]:
    """Some dozens of records with texts, images, metadata of all kinds and vectors."""
    made = []
    for i, record in enumerate(make_records(40, (IMAGE, CAPTION, TEXT))):
        text = f"{i} laufende {WORDS[i % 6]} {'spielen im Garten ' * (i % 4)}" if i % 7 else None
        metadata: dict[str, Scalar] = {"number": i, "part": i / 4, "is even": i % 2 == 0, "word": WORDS[i % 6]}
        image = Path(f"bilder/{WORDS[i % 6]}-{i}.jpg") if i % 3 else None
        if text is None and image is None:
            text = "nichts"
        made.append(Record(Document(record.document.id, text, image, metadata), record.vectors, record.stamp))
    return made


RECORDS = records()
IDS = [record.document.id for record in RECORDS]


def by_id(hits: list[Hit]) -> list[Hit]:
    """Equal scores are in the order of writing, and a document is written again after a repair."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def everything(store: SqliteStore) -> dict[str, Callable[[], object]]:
    """What a store can be asked, by name."""
    queries = {field: [RECORDS[i].vectors[field][None] for i in (0, 17, 39)] for field in (IMAGE, CAPTION, TEXT)}
    filters: list[dict[str, object]] = [{"word": word} for word in WORDS]
    filters += [{"is even": True}, {"part": {"$gte": 5}}, {"number": {"$lt": 9}}]
    return {
        "manifest": store.manifest,
        "length": lambda: len(store),
        "ids": lambda: list(store.ids()),
        "texts": lambda: store.get(IDS),
        "stamps": lambda: (store.stamps(IDS), store.fields(IDS)),
        "rejects": store.rejects,
        "filters": lambda: [
            store.search(TEXT, queries[TEXT][0], limit=99, where=parse_filter(where)) for where in filters
        ],
        "words": lambda: [
            by_id(store.search_words(word, limit=99).hits)
            for word in (*WORDS, "laufende", "spielen im Garten", "nichts", "7")
        ],
        "filtered words": lambda: by_id(store.search_words("laufende", limit=99, where=parse_filter(filters[0])).hits),
        "vectors": lambda: [store.search(field, one, limit=9) for field, some in queries.items() for one in some],
        "compared": lambda: store.compare(IMAGE, queries[IMAGE][0], IDS, parse_filter(filters[1])),
        "pages": lambda: store.documents_after("id-2", 20, parse_filter(filters[6])),
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of an index that was written, changed and closed."""
    path = tmp_path_factory.mktemp("whole") / "index"
    with SqliteStore(str(path), language="de") as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:25])
        store.upsert(RECORDS[20:])
        store.delete(["id-5", "id-6"])
        store.upsert(RECORDS[5:7])
        store.tune({"words": 0.5})
        store.reject([Reject("bad.png", "corrupt", "kein Bild", Stamp("d", "s"))])
    return path.read_bytes()


@cache
def used(content: bytes) -> list[int]:
    """Where there is anything: most of a small file is empty."""
    return [at for at in range(len(content)) if any(content[max(at - 8, 0) : at + 8])]


def look(path: Path, truth: dict[str, object]) -> tuple[list[str], list[str], bool]:
    """What is not true and not refused, what errors say, and whether the check tells, by an error or its report."""
    wrong, errors, is_told = list[str](), list[str](), False
    with SqliteStore(str(path)) as store:
        for name, ask in everything(store).items():
            try:
                if ask() != truth[name]:
                    wrong.append(name)
            except VlmsearchError as exc:
                errors.append(str(exc))
        try:
            is_told = not store.check().clean
        except VlmsearchError as exc:
            errors.append(str(exc))
            is_told = True
    return wrong, errors, is_told


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.exhaustive)])
def test_no_bit_that_turns_is_served_and_not_told(tmp_path: Path, whole: bytes, count: int) -> None:
    told = 0
    (tmp_path / "whole").write_bytes(whole)
    with SqliteStore(str(tmp_path / "whole")) as store:
        truth = {name: ask() for name, ask in everything(store).items()}
        assert store.check().clean
    for seed in range(count):
        content = bytearray(whole)
        place, bit = random.Random(seed).choice(used(whole)), random.Random(seed).randrange(8)
        content[place] ^= 1 << bit
        path = tmp_path / f"{seed}"
        path.write_bytes(content)
        try:
            wrong, errors, is_told = look(path, truth)
        except Exception as exc:
            raise AssertionError(f"bit {bit} of byte {place}: {path}") from exc
        assert not wrong or is_told, f"bit {bit} of byte {place}: {wrong} differ, and the check is clean: {path}"
        assert not any("\n" in said for said in errors), errors
        told += is_told
    assert told > count / 2, "most bits matter"


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_what_a_repair_does_not_refuse_is_whole_again_once_its_sources_are_indexed(
    tmp_path: Path, whole: bytes, count: int
) -> None:
    (tmp_path / "whole").write_bytes(whole)
    with SqliteStore(str(tmp_path / "whole")) as store:
        truth = {name: ask() for name, ask in everything(store).items() if name not in ("manifest", "rejects")}
    repaired = 0
    for seed in range(count):
        place, content, path = random.Random(seed).choice(used(whole)), bytearray(whole), tmp_path / f"{seed}"
        content[place] ^= 1 << random.Random(seed).randrange(8)
        path.write_bytes(content)
        with SqliteStore(str(path)) as store:
            try:
                report = store.check(repair=True)
            except VlmsearchError:
                continue
            assert store.check().clean, (seed, report)
            store.bind("e", SPACES)
            stamps = store.stamps(IDS)
            changed = [record for record in RECORDS if stamps.get(record.document.id) != record.stamp]
            assert len(changed) <= 2, "nothing else is lost"
            assert len(changed) <= len(report.damaged) + len(report.missing)
            store.upsert(changed)
            store.delete([id for id in store.ids() if id not in IDS])
            assert {name: ask() for name, ask in everything(store).items() if name in truth} == truth, (seed, report)
        repaired += 1
    assert repaired > count / 2
