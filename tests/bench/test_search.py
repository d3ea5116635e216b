"""`vlmsearch bench search`: what a user calls, in a process, as a command and over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli import ok
from vlmsearch.bench.search import (
    SHARES,
    WidenedEncoder,
    caption_queries,
    draw_captions,
    draw_documents,
    fill,
    marked_words,
    measure_http,
    measure_processes,
)
from vlmsearch.errors import BackendError
from vlmsearch.registry import open_encoder, open_store

IN_PROCESS = [
    "search, 1 % of the documents",
    "search, half of them",
    "search, count",
    "search, count and 3 facets",
    "search, sorted by a key",
    "search, 8 threads",
]


@pytest.mark.slow
def test_captions_are_searched_in_a_process_as_a_command_and_over_http(tmp_path: Path) -> None:
    workers = "1,2" if sys.platform == "linux" else "1"
    options = ["--store", f"sqlite:{tmp_path / 'index'}", "--calls", "3", "--workers", workers, "--json"]
    first = json.loads(ok("bench", "search", "--documents", "300", *options))
    assert first["documents"] == 300
    assert first["written_per_cpu_second"] > 0
    figures = first["figures"]
    assert [(figure["what"], figure["words"]) for figure in figures[:6]] == [
        (what, name) for name in ("2 words", "8 words", "a code") for what in ("words alone, 100 hits", "search")
    ]
    assert [figure["what"] for figure in figures[6:]] == [
        *IN_PROCESS,
        "vlmsearch search",
        "import numpy, onnxruntime, tokenizers, click",
        "HTTP, 1 client",
        "HTTP, 8 clients",
        *(["HTTP, 1 client, 2 workers", "HTTP, 8 clients, 2 workers"] if sys.platform == "linux" else []),
    ]
    for figure in figures:
        assert figure["rate"] > 0
        assert 0 < figure["p50_ms"] <= figure["p99_ms"]
        assert figure["cpu_ms"] is None or figure["cpu_ms"] >= 0
        is_service = figure["what"].startswith("HTTP") and sys.platform == "linux"
        assert (figure["memory"] is not None) is is_service
        assert not is_service or figure["memory"] > 2**20, "the service's own and its part of what it shares"
    again = json.loads(ok("bench", "search", *options))
    assert again["documents"] == 300
    assert again["written_per_cpu_second"] is None


@pytest.mark.slow
def test_texts_of_any_length_of_vectors_are_searched_in_one_process() -> None:
    measured = json.loads(ok("bench", "search", "--documents", "300", "--dim", "48", "--calls", "3", "--json"))
    assert measured["dim"] == 48
    figures = measured["figures"]
    assert {figure["words"] for figure in figures} == {"2 usual", "8 frequent", "2 rare"}
    assert [figure["what"] for figure in figures[6:]] == IN_PROCESS


@pytest.mark.slow
def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    store, queries = f"sqlite:{tmp_path / 'none'}", caption_queries()[0]
    with pytest.raises(BackendError, match="a process failed: Error: no index at"):
        list(measure_processes("nothing:", store, queries, calls=1))
    with pytest.raises(BackendError, match=r"the service did not start: Error: .*nothing"):
        list(measure_http("nothing:", store, queries, workers=1, calls=1, clients=1))


def test_captions_have_numbers_and_words_of_falling_frequencies(tmp_path: Path) -> None:
    with open_encoder("mock:") as encoder, open_store(f"sqlite:{tmp_path / 'index'}") as store:
        drawn = list(draw_captions(2500, encoder))
        fill(store, encoder, drawn)
        assert len(store) == 2500
        texts = [record.document.text or "" for records in drawn for record in records]
        ((field, vector),) = drawn[0][0].vectors.items()
        assert vector == pytest.approx(encoder.encode_texts(texts[:1])[field.space][0])
    assert [text.rpartition(" ")[2] for text in texts] == [str(number) for number in range(2500)]
    shares = [sum(f" {word} " in text for text in texts) / 2500 for word in ("dog", "woman", "worker")]
    assert shares[0] > 1.5 * shares[1] > 2 * shares[2] > 0
    words = {word for text in texts for word in text.replace(",", "").split()}
    for name, queries in caption_queries():
        assert len(set(queries)) == len(queries)
        assert all(set(query.split()) <= words for query in queries), name


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
