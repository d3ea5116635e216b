"""The scores that an index gives to queries, and to the texts of its own documents."""

from pathlib import Path

import pytest
from PIL import Image

from vlmsearch import ConfigError, Document, Index, Pipeline
from vlmsearch.search.scores import OWN_QUERIES, index_scores

THINGS = ("dog", "car", "boat", "tree")


def counts(pipeline: Index, queries: list[str] | None = None) -> dict[str, int]:
    found = index_scores(pipeline, queries)
    return {name: sum(values) for name, values in found.histogram["counts"].items()}


def test_queries_have_best_and_other_matches() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document(thing, text=f"a {thing}") for thing in THINGS)
        found = index_scores(pipeline, ["a dog", " ", "a car", "zebra quagga"])
        best = [pipeline.search(query, min_score=0)[0].score for query in ("a dog", "a car", "zebra quagga")]
    histogram = found.histogram
    assert found.title == "Scores of 3 queries"
    assert found.threshold == 0.3
    assert found.empty == sum(score < 0.3 for score in best) / 3 > 0
    assert sum(histogram["counts"]["best matches"]) == 3
    assert 3 < sum(histogram["counts"]["other matches"]) <= 9
    places = [max(n for n, edge in enumerate(histogram["edges"][:-1]) if n == 0 or edge <= score) for score in best]
    for place in set(places):
        assert histogram["counts"]["best matches"][place] == places.count(place)
    assert repr(found) == "IndexScores(Scores of 3 queries: 33% of the queries show nothing from 0.3)"


def test_own_texts_find_their_documents() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document(thing, text=f"-a {thing}") for thing in THINGS)  # a minus is no exclusion here
        assert counts(pipeline)["their own documents"] == len(THINGS)
        pipeline.add(Document(f"n{number}", text=f"note {number}") for number in range(2 * OWN_QUERIES))
        assert index_scores(pipeline).title == f"Scores of the texts of {OWN_QUERIES} documents as queries"
        assert index_scores(pipeline) == index_scores(pipeline)


def test_an_index_without_texts_says_what_to_give(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document("a", image=tmp_path / "a.png"))
        with pytest.raises(ConfigError, match="no document has a text to search for: give `queries`"):
            index_scores(pipeline)
        with pytest.raises(ConfigError, match="there are no queries"):
            index_scores(pipeline, ["", " "])
        assert sum(counts(pipeline, ["a dog"]).values()) == 1
