"""Many threads writing and searching at once: ``python -m tests.support.hammer --seconds 60``."""

import argparse
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.chaos import servers
from vlmsearch import Document, Pipeline, Record, Space
from vlmsearch.encoders.base import Encoder
from vlmsearch.stores.base import Store
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.types import WORDS, ImageSource, Role, Vectors

THREADS = 8
DOCUMENTS = 160
PAGE = 20
DIM = 32


class NumberEncoder(Encoder):
    """A text's vectors tell the text: a search for it has cosine 1 with no other one."""

    fingerprint = "numbers"
    spaces = (Space("clip", DIM, frozenset({"text", "image"})), Space("minilm", DIM, frozenset({"text"})))

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        rows = np.stack([np.random.default_rng(list(text.encode())).normal(size=DIM) for text in texts])
        unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return {"clip": unit, "minilm": unit}

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        raise AssertionError("there are no images")


@dataclass
class Seen:
    """What the threads did."""

    writes: int = 0
    searches: int = 0


LEAST = 20
"""So many writes and searches there are at least, however slow the machine is."""


def hammer(store: Store, seconds: float) -> Seen:
    """Eight threads write and eight search; AssertionError at a short page or a mix of two versions."""
    pipeline, seen, lock = Pipeline(NumberEncoder(), store), Seen(), threading.Lock()
    store.bind(NumberEncoder.fingerprint, NumberEncoder.spaces)
    store.upsert([make(i, 0) for i in range(DOCUMENTS)])
    deadline = time.monotonic() + seconds

    def write(thread: int) -> None:
        rng, turn = np.random.default_rng(thread), thread
        while time.monotonic() < deadline or seen.writes <= LEAST:
            turn += THREADS
            ids = rng.choice(DOCUMENTS, 5, replace=False)
            extra = DOCUMENTS + thread
            store.upsert([make(int(i), turn) for i in ids])
            store.upsert([make(extra, turn)])
            assert store.delete([f"doc-{extra}"]) == 1
            with lock:
                seen.writes += 3

    def search(thread: int) -> None:
        rng = np.random.default_rng(100 + thread)
        while time.monotonic() < deadline or seen.searches <= LEAST:
            check_page(pipeline, f"query {rng.integers(1000)}")
            with lock:
                seen.searches += 1

    with ThreadPoolExecutor(2 * THREADS) as pool:
        jobs = [pool.submit(job, i) for i in range(THREADS) for job in (write, search)]
        for job in jobs:
            job.result()
    check_page(pipeline, "at the end", DOCUMENTS)
    return seen


def make(number: int, turn: int) -> Record:
    """What is written to a document in a turn."""
    text = f"document {number} of turn {turn}"
    found = NumberEncoder().encode_texts([text])
    vectors = {
        field: found[space.name][0]
        for space in NumberEncoder.spaces
        for field in space.fields
        if field.modality == "text"
    }
    return Record(Document(f"doc-{number}", text=text, metadata={"turn": turn}), vectors)


def check_page(pipeline: Pipeline, query: str, limit: int = PAGE) -> None:
    """A page is full, names no document twice, and each cosine is that of the text that the document has."""
    matches = pipeline.search(query, limit=limit, min_score=0)
    assert len(matches) == limit
    assert len({match.document.id for match in matches}) == limit
    asked = NumberEncoder().encode_texts([query])["clip"][0]
    for match in matches:
        assert str(match.document.text).endswith(f"of turn {match.document.metadata['turn']}")
        own = NumberEncoder().encode_texts([str(match.document.text)])["clip"][0]
        cosines: Mapping[str, float] = {name: field.score for name, field in match.fields.items() if name != WORDS}
        assert all(abs(cosine - float(asked @ own)) < 1e-4 for cosine in cosines.values()), (match, float(asked @ own))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.hammer", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as both:
        store = MongoChromaStore(f"//{both.mongo.address}/threads", chroma=f"http://{both.chroma}")
        with store:
            seen = hammer(store, seconds)
            report = store.check()
        assert report.clean, report
    print(f"{seconds:g} s: {seen.writes} writes, {seen.searches} searches, no error, no short page, no mixed version")


if __name__ == "__main__":
    main()
