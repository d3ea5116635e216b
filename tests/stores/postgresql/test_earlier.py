"""An index of an earlier version: it is renewed beside it, and processes of that version go on searching it."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.cli import run
from tests.support.earlier_postgres import Sign, make_earlier
from tests.support.equal_stores import assert_equal_stores
from tests.support.worlds import Moment, Process, postgres_world
from vlmsearch import ConfigError, Document, Pipeline, Reject, Stamp
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing.reindex import drop_old, opened_earlier, reindex, renew
from vlmsearch.registry import open_store
from vlmsearch.stores import generations, terms
from vlmsearch.stores.base import Store, needed_manifest
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.postgresql.store import PostgresStore

ENCODER = MockEncoder()
OTHER = MockEncoder(neighbours={"a red star": ["a blue moon"]})
IDENTITY = ("generation", "fingerprint", "created", "run")
"""What tells a process that an index is still the one that it has open."""
COMMAND = "renew it once with `vlmsearch reindex --store URL`"
_names = map(f"earlier{os.getpid()}_{{}}".format, count())


def fill(pipeline: Pipeline, documents: int) -> None:
    pipeline.add(
        [Document(f"d{n:04}", text=f"a cat of colour {n % 7} {n}", metadata={"n": n}) for n in range(documents)]
    )


def matches(pipeline: Pipeline, queries: tuple[str, ...]) -> list[list[tuple[Document, float, Any]]]:
    """Return the matches of some queries; scores are rounded."""
    return [
        [(match.document, round(match.score, 5), match.passage) for match in pipeline.search(query, min_score=0)]
        for query in queries
    ]


def tables(url: str, table: str) -> set[str]:
    """Return the names of the tables of all generations."""
    with psycopg.connect(url) as session:
        query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ %s"
        return {name for (name,) in session.execute(query, (rf"^{table}[_$][0-9]",))}


@pytest.mark.parametrize("sign", ["$", "_"])
def test_a_renewed_index_equals_one_that_is_made_anew(sign: Sign, postgres_url: str, tmp_path: Path) -> None:
    table = next(_names)
    url, anew = (f"{postgres_url}?table={name}" for name in (table, f"{table}anew"))
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    for place in (url, anew):
        with Pipeline(ENCODER, open_store(place)) as pipeline:
            fill(pipeline, 30)
            pipeline.add([Document("odd", text="Küsse \x00 auf Seite 12 \ud800", metadata={"a\x1a": ["ü", "\x00"]})])
            pipeline.add([Document("long", text=" ".join(f"Sentence {n} is about snow." for n in range(400)))])
            pipeline.add([Document("scene", image=tmp_path / "scene.png")])
            assert len(list(pipeline.label(["cat", "snow"], write=True, min_score=0))) == 33
            store = pipeline.store
            assert isinstance(store, PostgresStore)
            store.tune({"words": 0.25})
            store.reject([Reject("bad.png", "corrupt", "no image", Stamp("digest", "pictures"))])
    make_earlier(postgres_url, table, sign)
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        for call in (lambda: pipeline.search("cat"), lambda: pipeline.add([Document("new", text="new")])):
            with pytest.raises(ConfigError, match=COMMAND):
                call()
    refused = run("search", "cat", "--store", url)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    done = run("reindex", "--store", url)
    assert (done.returncode, done.stdout.splitlines()[0].partition(":")[0]) == (0, "33 documents, 0 encoded"), done
    with Pipeline(ENCODER, open_store(url)) as pipeline, Pipeline(ENCODER, open_store(anew)) as other:
        queries = ("a cat of colour 3", "Seite 12 Küsse", "snow", "sentence 40")
        assert matches(pipeline, queries) == matches(other, queries)
        assert_equal_stores(pipeline.store, other.store)
        assert pipeline.store.passages(["long"]) == other.store.passages(["long"])
        assert len(pipeline.store.passages(["long"])["long"]) > 5
        manifests = (needed_manifest(pipeline.store), needed_manifest(other.store))
        assert [(manifest.tuning, manifest.language) for manifest in manifests] == [({"words": 0.25}, "auto")] * 2
        assert pipeline.check().clean
        assert isinstance(pipeline.store, PostgresStore)
        assert pipeline.store.disk_use().documents == 66
        assert f"{table}{sign}1" in tables(postgres_url, table)
        assert "removed" in run("reindex", "--store", url, "--drop-old").stdout
        assert {name.partition("$")[2][:1] for name in tables(postgres_url, table)} == {"2"}
        assert matches(pipeline, queries) == matches(other, queries)


def test_an_index_with_other_terms_of_codes_is_renewed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Format 2 has the same tables, and "7731.22.05" in parts alone."""
    url = f"{postgres_url}?table={next(_names)}"
    parts = Document("part", text="the valve 7731.22.05 leaks")
    with monkeypatch.context() as earlier:
        earlier.setattr(PostgresStore, "format", 2)
        earlier.setattr(terms, "_codes", lambda *_: [])
        with Pipeline(ENCODER, open_store(url)) as pipeline:
            fill(pipeline, 3)
            pipeline.add([parts])
    with Pipeline(ENCODER, open_store(url)) as pipeline, pytest.raises(ConfigError, match=COMMAND):
        pipeline.search("cat")
    done = run("reindex", "--store", url)
    assert (done.returncode, done.stdout.splitlines()[0].partition(":")[0]) == (0, "4 documents, 0 encoded"), done
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        assert pipeline.search("77312205")[0].document == parts
        assert run("reindex", "--store", url, "--drop-old").returncode == 0
        assert pipeline.check().clean


def test_words_of_another_stemmer_are_told_and_renewed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{postgres_url}?table={next(_names)}"
    with monkeypatch.context() as earlier:
        earlier.setattr(generations, "rules_of", lambda _: "snowballstemmer 1.0")
        earlier.setattr(terms, "_codes", lambda *_: [])
        with Pipeline(ENCODER, open_store(url)) as pipeline:
            pipeline.add([Document("part", text="the valve 7731.22.05 leaks")])
    asked = run("search", "valve", "--store", url, "--encoder", "mock:")
    assert "has words made by snowballstemmer 1.0, and here is snowballstemmer" in asked.stderr
    assert "made by snowballstemmer 1.0" in run("info", "--store", url).stdout
    done = run("reindex", "--store", url)
    assert (done.returncode, done.stdout.splitlines()[0].partition(":")[0]) == (0, "1 documents, 0 encoded"), done
    assert "made by" not in run("info", "--store", url).stdout
    after = run("search", "77312205", "--store", url, "--encoder", "mock:")
    assert "part" in after.stdout
    assert "words" not in after.stderr


@contextmanager
def searching(url: str, table: str, sign: Sign) -> Iterator[list[tuple[Any, ...]]]:
    """Note what a search of the earlier version sees, all the time."""
    seen, is_over = list[tuple[Any, ...]](), threading.Event()
    names = [f'"{table}{sign}1"', f'"{table}{sign}1{sign}3"']
    vector = str(list(map(float, ENCODER.encode_texts(["a cat of colour 3"], role="query")["minilm"][0])))

    def search() -> None:
        while not is_over.is_set():
            try:
                with psycopg.connect(url) as session:
                    session.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS SHARE MODE".encode())
                    [(row,)] = session.execute(f"SELECT row FROM {table}_index WHERE slot = 'index'".encode())
                    nearest = session.execute(
                        f"SELECT d.id, d.version, d.terms, d.times, d.length, d.language FROM {names[1]} v "
                        f"JOIN {names[0]} d USING (row) ORDER BY v.vector <#> %s::vector LIMIT 5".encode(),
                        (vector,),
                    )
                    seen.append((tuple(map(row.get, IDENTITY)), tuple(id for id, *_ in nearest)))
            except psycopg.Error as exc:
                seen.append((exc,))

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield seen
        reached = len(seen)
        while len(seen) < reached + 3 and thread.is_alive():
            is_over.wait(0.01)
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("sign", ["$", "_"])
def test_who_has_the_earlier_index_open_goes_on_searching_and_loses_no_write(sign: Sign, postgres_url: str) -> None:
    table = next(_names)
    url = f"{postgres_url}?table={table}"
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        fill(pipeline, 40)
    make_earlier(postgres_url, table, sign)
    documents = f'"{table}{sign}1"'
    with open_store(url) as store, searching(postgres_url, table, sign) as seen:
        assert isinstance(store, GenerationalStore)
        read_slot, freeze = store.read_slot, store.freeze

        def write_first(built: Store) -> None:
            with psycopg.connect(postgres_url) as session:
                session.execute(f"DELETE FROM {documents} WHERE id = 'd0030'".encode())
                session.execute(
                    f"UPDATE {documents} SET metadata = '{{\"n\": -1}}', digest = 'other' WHERE id = 'd0031'".encode()
                )
            freeze(built)
            assert "change" in (read_slot("index") or {}), "the earlier version writes nothing then"

        store.freeze = write_first  # type: ignore[method-assign]
        assert opened_earlier(store)
        assert renew(store).switched
        assert not opened_earlier(store)
        assert len(store) == 39
        assert store.get(["d0030", "d0031"])[0].metadata == {"n": -1}
    assert len(set(seen)) == 1, "neither the switch nor the copy is seen"
    with open_store(url) as store:
        assert isinstance(store, GenerationalStore)
        query = f"SELECT row FROM {table}_index WHERE slot = 'index'".encode()
        with psycopg.connect(postgres_url, autocommit=True) as session:
            [(row,)] = session.execute(query)
            assert (row["format"], "change" in row) == (3, True), "neither opened anew nor written by that version"
            assert drop_old(store)
            [(row,)] = session.execute(query)
            assert (row["generation"], "change" in row) == ("2", False)
        Pipeline(ENCODER, store).add([Document("new", text="a new cat")])
        assert len(store) == 40


@pytest.mark.parametrize("step", [47, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_killed_renewal_leaves_the_index_as_it_was_and_goes_on(step: int, postgres_url: str) -> None:
    moments: tuple[Moment, ...] = ("before", "after")
    points = 0
    for point in count(3, step):
        reached = False
        for moment in moments:
            table = next(_names)
            world, process = postgres_world(postgres_url, table), Process(point, moment)
            with closing(world.open()) as store:
                fill(Pipeline(ENCODER, store), 8)
                store.reject([Reject("bad.png", "corrupt", "no image", Stamp("digest", "pictures"))])
            make_earlier(postgres_url, table)
            with process.until_it_dies():
                killed = world.open(process)
                assert opened_earlier(killed)
                renew(killed)
            reached |= process.was_killed
            points += process.was_killed
            with searching(postgres_url, table, "$") as seen:
                pass
            assert [len(answer) for _, answer in set(seen)] == [5]
            with closing(world.open()) as store:
                assert isinstance(store, PostgresStore)
                if opened_earlier(store):
                    assert renew(store).switched
                assert drop_old(store)
                assert len(store) == len(store.get([f"d{n:04}" for n in range(8)])) == 8
                assert [reject.id for reject in store.rejects()] == ["bad.png"]
                assert store.check().clean
                assert len(store.search_words("cat", limit=9).hits) == 8
                of_generation = f"{table}${store.generation}"
                assert all(name.startswith(of_generation) for name in tables(postgres_url, table))
        if not reached:
            break
    assert points > 1


def test_an_interrupted_renewal_takes_writes_again(postgres_url: str) -> None:
    table = next(_names)
    with open_store(f"{postgres_url}?table={table}") as store:
        assert isinstance(store, GenerationalStore)
        fill(Pipeline(ENCODER, store), 8)
    make_earlier(postgres_url, table)
    with open_store(f"{postgres_url}?table={table}") as store:
        assert isinstance(store, GenerationalStore)
        assert opened_earlier(store)

        def interrupt(_: int) -> None:
            if "change" in (store.read_slot("index") or {}):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            renew(store, on_progress=interrupt)
        row = store.read_slot("index") or {}
        assert (row["format"], "change" in row) == (1, False)


@pytest.mark.parametrize("encoder", [ENCODER, OTHER], ids=["the same model", "another model"])
def test_reindexing_with_a_model_renews_the_index_too(encoder: MockEncoder, postgres_url: str) -> None:
    table = next(_names)
    with Pipeline(ENCODER, open_store(f"{postgres_url}?table={table}")) as pipeline:
        fill(pipeline, 8)
    make_earlier(postgres_url, table)
    with open_store(f"{postgres_url}?table={table}") as store:
        report = reindex(store, encoder)
        assert (report.switched, report.encoded) == (True, 0 if encoder is ENCODER else 8)
        assert len(Pipeline(encoder, store).search("cat", min_score=0)) == 8
        assert drop_old(store)
