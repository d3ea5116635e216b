"""A document that is hidden is one that is not there: for every verb, every method of stores, and asyncio."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typing_extensions import get_protocol_members, is_protocol
from vlmsearch_mocks import MockEncoder, MockReranker

import vlmsearch.stores
from vlmsearch import AsyncPipeline, ConfigError, Document, Pipeline, Query
from vlmsearch.index import Index
from vlmsearch.indexing.reindex import reindex
from vlmsearch.registry import open_generator, open_store
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.stores.base import Store
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.types import MetadataChange, Stamp

IDS = {  # hidden ids, and such as no index has
    "salary": "zalary",
    "salary.png": "zalary.png",
    "salary.pdf#page=1": "zalary.pdf#page=1",
    "long#passage=1": "lone#passage=1",
    "long": "lone",
}


@pytest.fixture(params=["mock:", "sqlite:"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    store = open_store("mock:" if request.param == "mock:" else f"sqlite:{tmp_path / 'index'}")
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    with Pipeline(MockEncoder(), store, open_generator("extractive:"), reranker=MockReranker()) as made:
        made.add([Document(f"note-{n}", text=f"pay number {n} of the house", metadata={"n": n}) for n in range(9)])
        made.add(
            [
                Document("salary", text="the pay of the boss is 4471", readers=["group:hr"], metadata={"secret": 1}),
                Document("salary.png", text="pay", image=tmp_path / "red.png", readers=["group:hr"]),
                Document("salary.pdf#page=1", text="pay rise", readers=[]),
                Document("long", text="pay. " * 900, readers=["user:boss"]),
            ]
        )
        assert made.store.passages(["long"])
        yield made


def outcome(call: Callable[[], object], id: str) -> str:
    """Return what a call gives or raises, without the id."""
    try:
        result = call()
        if isinstance(result, Iterator):
            result = list(result)
    except Exception as exc:  # noqa: BLE001 - told by the test
        result = f"{type(exc).__name__}: {exc}"
    return repr(result).replace(id, "ID") if not isinstance(result, np.ndarray) else repr(result.tolist())


BY_ID: dict[str, Callable[[Any, str], Any]] = {
    "search": lambda h, id: h.search(like=id),
    "search without": lambda h, id: h.search("pay", without=[id]),
    "search_many": lambda h, id: h.search_many(["pay", Query("pay", like=(id,))]),
    "explain": lambda h, id: h.explain("pay boss", id),
    "explain parts": lambda h, id: h.explain("pay boss", id, parts=True, rerank=True),
    "get": lambda h, id: h.get([id, "note-1"]),
    "thumbnail": lambda h, id: h.thumbnail(id),
    "evaluate": lambda h, id: h.evaluate([JudgedQuery("a", {id: 1, "note-1": 1}, "pay")])["fields"]["fused"][
        "measures"
    ],
    "delete": lambda h, id: h.delete([id]),
}
"""The verbs that take ids."""
OF_ALL = {"ask", "count", "describe", "documents", "duplicates", "info", "label", "rejects"}
"""The verbs that take none: each is compared with an index of the readable documents alone."""
WRITES = {"add", "index"}
"""The verbs that write: a document that the writer cannot read stays as it is."""
REFUSED = {"check", "watch"}
OTHERS = {
    "close", "open", "restricted", "encoder", "store", "generator", "reranker", "image_limits",
}  # fmt: skip


@pytest.mark.parametrize("verb", BY_ID)
@pytest.mark.filterwarnings("ignore")
def test_a_hidden_id_is_an_absent_one(whole: Pipeline, verb: str) -> None:
    handle = whole.restricted(["user:ann"])
    for hidden, absent in IDS.items():
        told = outcome(lambda id=hidden: BY_ID[verb](handle, id), hidden)  # type: ignore[misc]
        assert told == outcome(lambda id=absent: BY_ID[verb](handle, id), absent)  # type: ignore[misc]
    assert len(whole) == 13


@pytest.mark.filterwarnings("ignore")
def test_a_hidden_id_is_an_absent_one_for_asyncio(whole: Pipeline) -> None:
    async def read(verb: Callable[[Any, str], Any], id: str) -> str:
        try:
            return repr(await verb(handle, id)).replace(id, "ID")
        except Exception as exc:  # noqa: BLE001 - told by the test
            return f"{type(exc).__name__}: {exc}".replace(id, "ID")

    async def compare() -> None:
        await handle.close()  # which closes nothing
        for hidden, absent in IDS.items():
            for name, verb in BY_ID.items():
                if name != "evaluate":  # whose call here reads the result
                    assert await read(verb, hidden) == await read(verb, absent), name
        assert await handle.count() == 9
        assert [document.id async for document in handle.documents()] == [f"note-{n}" for n in range(9)]
        await unrestricted.close()

    unrestricted = AsyncPipeline(whole)
    handle = unrestricted.restricted(["user:ann"])
    asyncio.run(compare())


def test_every_verb_has_a_rule() -> None:
    verbs = {name for name in dir(Pipeline) if not name.startswith("_")}
    assert verbs == {name.split()[0] for name in BY_ID} | OF_ALL | WRITES | REFUSED | OTHERS & verbs
    assert {name for name in dir(Index) if not name.startswith("_")} <= verbs
    awaited = {name for name in dir(AsyncPipeline) if not name.startswith("_")}
    assert awaited - {"pipeline", "answer"} <= verbs | {"ask_stream"}


def test_what_takes_all_documents_is_refused(whole: Pipeline, tmp_path: Path) -> None:
    handle = whole.restricted(["group:hr"])
    for call in (handle.check, lambda: next(handle.watch(tmp_path)), lambda: handle.index(tmp_path, prune=True)):
        with pytest.raises(ConfigError, match="restricted handle"):
            call()
    with pytest.raises(ConfigError):
        reindex(handle.store, MockEncoder(neighbours={"pay": ["map"]}))
    with pytest.raises(ConfigError, match="who may read"):
        handle.label(["pay"], write=True, key="readers")


# ---- stores

OF_STORES: dict[str, Callable[[Any, str], Any]] = {
    "get": lambda s, id: s.get([id]),
    "records": lambda s, id: s.records([id]),
    "encoded": lambda s, id: s.encoded([id]),
    "stamps": lambda s, id: s.stamps([id]),
    "fields": lambda s, id: s.fields([id]),
    "passages": lambda s, id: s.passages([id]),
    "delete": lambda s, id: s.delete([id]),
    "compare": lambda s, id: [s.compare(f, _unit(s, f), [id]) for f in _fields(s)],
    "update_metadata": lambda s, id: s.update_metadata([MetadataChange(Document(id), Stamp(""), {}, "")]),
    "compare_words": lambda s, id: s.compare_words("pay", [id]),
    "get_versions": lambda s, id: s.get_versions({id: ""}),
    "documents_after": lambda s, id: [d.id for d in s.documents_after(id[:-1], 1) if d.id == id],
}
"""The methods of stores, and of the protocols that pass, which take ids."""
LISTS: dict[str, Callable[[Any], Any]] = {
    "ids": lambda s: sorted(s.ids()),
    "row_ids": lambda s: sorted(s.row_ids()),
    "__len__": len,
    "size": lambda s: s.size(),
    "count_files": lambda s: s.count_files(),
    "count_passages": lambda s: s.count_passages(),
    "search": lambda s: [len(s.search(f, _unit(s, f), limit=99)[0]) for f in _fields(s)],
    "sample": lambda s: [np.sort(s.sample(f, 99), axis=0).tolist() for f in _fields(s)],
    "sample_ids": lambda s: [s.sample_ids(f, 99) for f in _fields(s)],
    "search_words": lambda s: s.search_words("pay 4471", limit=99),
    "count_words": lambda s: s.count_words(["pay", "boss"]),
    "outlines": lambda s: sorted(o.id for o in s.outlines(["n"])),
}
"""Those that say something of all documents: they say what an index of the readable ones says."""
OF_INDEX = {"bind", "manifest", "as_opened", "places", "close", "upsert", "name", "is_served", "overview"}
"""Those that say nothing of documents; and those that other tests have."""
PASSED = {
    "WordSearch", "CountsWords", "ReadsVersions", "HasOverview", "ListsPages", "ReadsKeys",
}  # fmt: skip
HIDDEN = {
    "Tunable", "RejectList", "Checkable", "Replaceable", "OnDisk", "Exposable", "Describable", "Preloads",
    "RanksWithin", "SamplesWithin", "ChecksWrites", "OverviewsWithin", "CountsWithin",
}  # fmt: skip
"""The protocols of stores that a restricted one has, and those that it has not."""


def _fields(store: Store) -> list[Any]:
    manifest = store.manifest()
    assert manifest is not None
    return [field for space in manifest.spaces for field in space.fields]


def _unit(store: Store, field: Any) -> Any:
    manifest = store.manifest()
    assert manifest is not None
    dim = next(space.dim for space in manifest.spaces if field in space.fields)
    return np.eye(1, dim, dtype=np.float32)


def _protocols() -> dict[str, type]:
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.iter_modules(vlmsearch.stores.__path__, "vlmsearch.stores.")
        if not info.ispkg
    ]
    classes = (value for module in modules for value in vars(module).values() if inspect.isclass(value))
    return {
        kind.__name__: kind
        for kind in classes
        if is_protocol(kind)
        and getattr(kind, "_is_runtime_protocol", False)
        and kind.__module__.startswith("vlmsearch")
    }


def test_every_protocol_of_stores_has_a_rule_and_what_is_hidden_is_not_there(whole: Pipeline) -> None:
    protocols = _protocols()
    assert protocols.keys() <= PASSED | HIDDEN
    store = restricted_store(whole.store, readable([]))
    for name, protocol in protocols.items():
        assert isinstance(store, protocol) == (name in PASSED and isinstance(whole.store, protocol)), name
    public = {name for name in dir(store) if not name.startswith("_") or name == "__len__"}
    own = {name for name in dir(Store) if not name.startswith("_")} | {"name", "__len__"}
    passed = {member for name in PASSED for member in get_protocol_members(protocols[name])}
    assert public <= own | passed
    assert own | passed <= OF_STORES.keys() | LISTS.keys() | OF_INDEX


def test_every_method_of_a_restricted_store_hides_ids(whole: Pipeline, tmp_path: Path) -> None:
    scope = readable(["user:ann"])
    handle = restricted_store(whole.store, scope)
    url = "mock:" if whole.store.name == "mock:" else f"sqlite:{tmp_path / 'few'}"
    with open_store(url) as few:
        few.bind(whole.encoder.fingerprint, whole.encoder.spaces)
        few.upsert(whole.store.records([f"note-{n}" for n in range(9)]))
        for name, method in OF_STORES.items():
            for hidden, absent in IDS.items() if hasattr(handle, name) else ():
                told = outcome(lambda id=hidden: method(handle, id), hidden)  # type: ignore[misc]  # noqa: B023
                assert told == outcome(lambda id=absent: method(handle, id), absent), name  # type: ignore[misc]  # noqa: B023
        for name, listing in LISTS.items():
            if hasattr(handle, name):
                assert listing(handle) == listing(few), name
    assert len(whole) == 13


# ---- handles


def test_a_handle_of_a_handle_narrows(whole: Pipeline) -> None:
    hr = whole.restricted(["group:hr"])
    assert len(hr) == 11
    assert len(hr.restricted(["user:boss"])) == len(hr.restricted([])) == 9
    assert len(hr.restricted(["group:hr", "user:boss"])) == 11
    assert hr.restricted(["user:boss"]).get(["salary", "long"]) == []


def test_closing_a_handle_closes_nothing(whole: Pipeline) -> None:
    with whole.restricted(["group:hr"]) as handle:
        assert len(handle) == 11
    assert handle.search("pay")
    assert whole.search("pay")


def test_the_last_handles_are_kept(whole: Pipeline) -> None:
    first = whole.restricted(["group:0"])
    assert whole.restricted(iter(["group:0", "group:0"])) is first
    handles = [whole.restricted([f"group:{n}"]) for n in range(65)]
    assert whole.restricted(["group:64"]) is handles[64]
    assert whole.restricted(["group:0"]) is not first
    assert len(first) == 9


def test_a_handle_that_is_in_use_takes_new_samples_also_where_others_are_kept(whole: Pipeline) -> None:
    def scores(handle: Pipeline) -> list[float]:
        return [match.score for match in handle.search("a fox in the fog", like=["fox"], min_score=0)]

    whole.add([Document(f"fox{n}" if n else "fox", text=f"a fox in the fog {n}") for n in range(30)])
    handle = whole.restricted(["user:bob"])
    before = scores(handle)
    for n in range(64):
        whole.restricted([f"user:{n}"])
    whole.add([Document(f"fox{n}", text=f"a fox in the fog {n}", readers=["group:hr"]) for n in (1, 2)])
    assert before != scores(handle) == scores(whole.restricted(["user:new"]))


def test_a_handle_follows_the_index_to_another_model(tmp_path: Path) -> None:
    old, new = MockEncoder(), MockEncoder(neighbours={"pay": ["map"]})
    url = f"sqlite:{tmp_path / 'index'}"
    with Pipeline(old, open_store(url), next_encoders=[new]) as pipeline, open_store(url) as other:
        pipeline.add([Document("pay", text="pay", readers=["group:hr"]), Document("map", text="map")])
        handles = {(): pipeline.restricted([]), ("group:hr",): pipeline.restricted(["group:hr"])}
        assert [len(handle) for handle in handles.values()] == [1, 2]
        reindex(other, new)
        for principals, handle in handles.items():
            shown = {match.document.id for match in handle.search("pay map", min_score=0)}
            assert shown == ({"map", "pay"} if principals else {"map"})
            assert len(handle.get(["pay", "map"])) == len(shown)
        assert pipeline.get("pay")[0].readers == frozenset({"group:hr"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_fork_has_no_new_handles(whole: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = whole.restricted([])
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    for call in (lambda: whole.restricted(["group:hr"]), lambda: handle.restricted(["group:hr"]), handle.count):
        with pytest.raises(ConfigError, match="fork"):
            call()
