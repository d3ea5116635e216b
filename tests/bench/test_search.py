"""`vlmsearch bench search`: what a user calls, with words of each frequency."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import ok
from vlmsearch.bench.search import SHARES, WidenedEncoder, draw_documents, marked_words
from vlmsearch.registry import open_encoder


@pytest.mark.slow
def test_every_call_is_timed_and_the_index_is_kept(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'index'}"
    options = ["--store", store, "--dim", "48", "--words", "usual", "--lengths", "2", "--calls", "3", "--json"]
    first = json.loads(ok("bench", "search", "--documents", "300", *options))
    assert first["documents"] == 300
    assert first["dim"] == 48
    assert first["written_per_second"] > 0
    assert first["memory"] is None or first["memory"]["own"] > 2**20, "the service's, where the system says it"
    calls = [figure["what"] for figure in first["figures"]]
    assert calls[:3] == ["first search of a process", "words alone, 100 hits", "search"]
    assert calls[-2:] == ["HTTP, 1 client", "HTTP, 8 clients"]
    for figure in first["figures"]:
        assert figure["rate"] > 0
        assert 0 < figure["p50_ms"] <= figure["p99_ms"]
    again = json.loads(ok("bench", "search", *options))
    assert again["documents"] == 300
    assert again["written_per_second"] is None


def test_marked_words_are_in_their_shares_of_the_documents() -> None:
    with WidenedEncoder(open_encoder("mock:"), 48) as encoder:
        texts = [record.document.text or "" for records in draw_documents(4000, encoder) for record in records]
    for kind, share in SHARES.items():
        for word in marked_words(kind):
            assert sum(word in text.split() for text in texts) / 4000 == pytest.approx(share, abs=0.04)


def test_widened_vectors_keep_who_is_near() -> None:
    with open_encoder("mock:") as model, WidenedEncoder(model, 512) as encoder:
        texts = ["a red star", "a red star on sand", "nothing like it"]
        (wide,) = encoder.encode_texts(texts).values()
        narrow = model.encode_texts(texts)[encoder.spaces[0].name]
    assert wide.shape == (3, 512)
    assert wide @ wide.T == pytest.approx(narrow @ narrow.T, abs=0.2)
