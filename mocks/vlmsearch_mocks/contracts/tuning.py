"""What a store that keeps the tuning of an index has to do with it."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from vlmsearch.errors import ConfigError, IndexMismatchError, VlmsearchError
from vlmsearch.stores.base import Replaceable, Store, Tunable
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, StoreSuite, make_records

TUNING = {"words": 0.5, "clip/image": 2.0, "min_score": 0.25}


def tunable(store: Store) -> Tunable:
    """Return the store as one that is tuned."""
    assert isinstance(store, Tunable), f"{store.name} cannot be tuned"
    return store


def tuning_of(store: Store) -> Mapping[str, float]:
    """Return the tuning in the manifest."""
    manifest = store.manifest()
    assert manifest is not None
    return manifest.tuning


class TuningContract(StoreSuite):
    """Every sentence of `Tunable`: subclass it beside `StoreContract` for a store that keeps a tuning."""

    def test_tuning_before_bind_is_refused(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            with pytest.raises(VlmsearchError, match="bind"):
                tunable(store).tune(TUNING)
            assert store.manifest() is None

    def test_the_manifest_has_the_tuning_until_another_takes_its_place(self, store: Store) -> None:
        assert tuning_of(store) == {}
        store.upsert(make_records(3))
        for values in (TUNING, {"min_score": 1}, {"clip/text": 0}, {}):
            tunable(store).tune(values)
            assert tuning_of(store) == values
        tunable(store).tune(TUNING)
        store.bind("encoder 1", SPACES)
        store.upsert(make_records(4))
        assert tuning_of(store) == TUNING
        assert len(store.search(IMAGE, make_records(1)[0].vectors[IMAGE][None], limit=9)[0]) == 4

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"clip/sound": 1.0}, "has no 'clip/sound' to tune; there are clip/image, clip/text, minilm/text, words"),
            ({"words": -0.1}, "words is a number of at least 0, not -0.1"),
            ({"words": math.inf}, "words is a number of at least 0, not inf"),
            ({"words": math.nan}, "words is a number of at least 0, not nan"),
            ({"min_score": 1.1}, "min_score is from 0 to 1, not 1.1"),
        ],
    )
    def test_a_tuning_that_makes_no_sense_is_refused(
        self, store: Store, values: Mapping[str, float], message: str
    ) -> None:
        tunable(store).tune({"words": 1.0})
        with pytest.raises(ConfigError, match=message):
            tunable(store).tune({"minilm/text": 1.0, **values})
        assert tuning_of(store) == {"words": 1.0}

    def test_a_durable_store_has_its_tuning_after_it_was_closed(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            tunable(store).tune(TUNING)
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            assert tuning_of(store) == (TUNING if self.durable else {})

    def test_a_tuning_belongs_to_the_model(self, store: Store) -> None:
        store.upsert(make_records(2))
        tunable(store).tune(TUNING)
        with pytest.raises(IndexMismatchError):
            store.bind("encoder 2", SPACES)
        assert tuning_of(store) == TUNING
        if not isinstance(store, Replaceable):
            return
        built = store.beside("encoder 2", SPACES)
        built.upsert(make_records(2))
        assert (tuning_of(store), tuning_of(built)) == (TUNING, {})
        store.freeze(built)
        with pytest.raises(VlmsearchError, match="takes no writes"):
            tunable(store).tune({})
        store.switch(built)
        assert tuning_of(store) == {}
        tunable(store).tune({"words": 3.0})
        assert tuning_of(store) == {"words": 3.0}
