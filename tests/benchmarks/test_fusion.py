"""Ways to make one ranking, on candidates that were ranked by hand and on small indexes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fusion import (
    OURS,
    Candidates,
    ask_all,
    by_evidence,
    by_min_max,
    by_reciprocal_rank,
    by_z_score,
    main,
    measure,
    with_feedback,
)
from benchmarks.labelled import LabelledCollection, drawn_scenes
from tests.support.labelled import write_cisi
from tests.support.tables import tables
from vlmsearch import Pipeline
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.search.relevance import Backgrounds, Judge
from vlmsearch.types import Document, Field, Hit

_IMAGE, _TEXT = Field("clip", "image"), Field("minilm", "text")
_BOTH, _ONE = frozenset({_IMAGE, _TEXT}), frozenset({_IMAGE})


def _candidates(**changes: object) -> Candidates:
    """A photograph without a caption, "plain", first by its image; "both" second by its image and first by its text."""
    ranked = {
        "clip/image": [Hit("plain", 0.4), Hit("both", 0.3), Hit("other", 0.2)],
        "minilm/text": [Hit("both", 0.9), Hit("other", 0.5)],
        "words": [Hit("both", 4.0)],
    }
    owned = {"plain": _ONE, "both": _BOTH, "other": _BOTH}
    given = {"text": "", "vectors": {}, "ranked": ranked, "behind": {}, "owned": owned, "most": 8.0}
    return Candidates(**{**given, **changes})  # type: ignore[arg-type]


def test_reciprocal_ranks_are_a_share_of_what_the_fields_of_a_document_could_give() -> None:
    found = dict(by_reciprocal_rank(_candidates()))
    assert list(found) == ["plain", "both", "other"]
    assert found["plain"] == 1
    assert found["both"] == pytest.approx((61 / 62 + 1 + 1) / 3)
    assert found["other"] == pytest.approx((61 / 63 + 61 / 62) / 3), "words do not find it, though it has a text"


def test_values_are_brought_to_one_scale() -> None:
    assert dict(by_min_max(_candidates())) == pytest.approx({"plain": 1, "both": 0.5 + 1, "other": 0})
    far = math.sqrt(1.5)  # the z-score of the first and the last of three that are evenly apart
    expected = {"plain": far, "both": 0 + 1 + 0, "other": -far - 1 - 4}
    assert dict(by_z_score(_candidates())) == pytest.approx(expected)


def test_what_a_field_did_not_list_has_its_value() -> None:
    ranked = {"minilm/text": [Hit("both", 0.9), Hit("other", 0.5)], "words": [Hit("both", 4.0)]}
    found = _candidates(
        ranked=ranked, behind={"words": {"other": Hit("other", 3.0)}}, owned={"both": _BOTH, "other": _BOTH}
    )
    assert found.values == {"minilm/text": {"both": 0.9, "other": 0.5}, "words": {"both": 4.0, "other": 3.0}}


def test_ours_is_what_a_search_does(tmp_path: Path) -> None:
    scenes = drawn_scenes(130, queries=5)
    with open_encoder("onnx:demo") as encoder, open_store(f"sqlite:{tmp_path}/index") as store:
        pipeline = Pipeline(encoder, store)
        pipeline.add(scenes.documents)
        manifest = store.manifest()
        assert manifest is not None
        judge = Judge(encoder, store, manifest, Backgrounds())
        for id, candidates in ask_all(scenes.queries, encoder, store, manifest):
            matches = pipeline.search(scenes.queries[id], limit=20, min_score=0.0)
            ours = by_evidence(judge, candidates)[:20]
            assert [one for one, _ in ours] == [match.document.id for match in matches]
            assert [score for _, score in ours] == pytest.approx([match.score for match in matches], abs=1e-6)
            alone = by_evidence(judge, candidates, "words")
            assert {one for one, _ in alone} == {hit.id for hit in candidates.ranked["words"]}
            moved = with_feedback(judge, candidates)
            first = [one for one, _ in by_evidence(judge, candidates)[:5]]
            pictures = np.array([record.vectors[_IMAGE] for record in store.records(first)])
            before, after = (pictures @ each.vectors[_IMAGE][0] for each in (candidates, moved))
            assert after.mean() > before.mean() + 0.05
            assert np.linalg.norm(moved.vectors[_IMAGE]) == pytest.approx(1, abs=1e-5)


def test_measures_of_what_is_shown() -> None:
    documents = tuple(Document(id, text=id) for id in "abc")
    collection = LabelledCollection(documents, {"1": "", "2": "", "3": ""}, {"1": {"a": 1}, "2": {"b": 1}, "3": {}})
    found = {"1": [("a", 0.9), ("b", 0.4)], "2": [("c", 0.3), ("b", 0.2)], "3": [("c", 0.1)]}
    figures = measure("ours", collection, found, 0.35)
    assert figures.ndcg == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert (figures.precision, figures.answered) == (0.5, 0.5)
    assert (figures.nothing_precision, figures.nothing_recall) == (0.5, 1.0)
    assert figures.calibration_error == pytest.approx((0.1 + 0.4 + 0.3 + 0.8 + 0.1) / 5)
    assert [(one.relevance, one.share, one.documents) for one in figures.bins][-1] == (0.9, 1.0, 1)
    ranks = measure("reciprocal rank", collection, found, None)
    assert ranks.calibration_error is None
    assert (ranks.threshold, ranks.precision) == (0.9, 1.0), "0.9 and 0.2 both have an F1 of 2/3"
    nothing = measure("none", collection, {"1": [], "2": [], "3": []}, 0.35)
    assert (nothing.precision, nothing.answered) == (None, 0.0)
    assert nothing.nothing_precision == pytest.approx(1 / 3)


def test_what_was_not_judged_is_passed_over() -> None:
    documents = tuple(Document(id, text=id) for id in "abc")
    collection = LabelledCollection(documents, {"1": "", "2": ""}, {"1": {"b": 1}, "2": {}}, {"1": ["b", "c"], "2": []})
    figures = measure("ours", collection, {"1": [("a", 0.9), ("b", 0.8), ("c", 0.1)], "2": [("a", 0.9)]}, 0.35)
    assert figures.ndcg == pytest.approx(1 / math.log2(3)), "rankings are of all documents"
    assert (figures.precision, figures.answered, figures.nothing_recall) == (1.0, 1.0, 1.0)
    assert figures.calibration_error == pytest.approx((0.2 + 0.1) / 2)


def test_all_ways_are_compared_on_each_collection(tmp_path: Path) -> None:
    captions = tmp_path / "captions.jsonl"
    rows = [("a.jpg", ["a dog in the snow", "a snowy dog"]), ("b.jpg", ["a blue car", "the car is blue"])]
    captions.write_text("".join(json.dumps({"file": name, "captions": texts}) + "\n" for name, texts in rows))
    flags = ["--cisi", str(write_cisi(tmp_path / "cisi")), "--captions", str(captions), "--scenes", "20"]
    found = tables(main, "--encoder", "mock:", *flags)
    (title, _), (_, bins), _, _, (_, scenes), _ = found.items()
    assert "CISI, mock:: 3 documents, 2 queries with an answer, 120 without" in title
    assert sum(int(row["documents"]) for row in bins) > 0
    ways = {row["way"]: row for row in scenes}
    assert list(ways) == [
        "clip/image alone", "minilm/text alone", "words alone", "reciprocal rank", "min-max", "z-score",
        OURS, f"{OURS}, with feedback", f"{OURS}, without the index's background", f"{OURS}, without a fit",
    ]  # fmt: skip
    errors = [row["calibration error"] for row in ways.values() if row["calibration error"]]
    assert len(errors) == 7
    assert len(set(errors)) > 4, "ways that are measured apart differ"
