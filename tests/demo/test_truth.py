"""The truth of whole batches, which the training scripts of the demonstration models use."""

from __future__ import annotations

import importlib.util

import numpy as np

from tests.support.paths import ENGINES
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import make_scene

_spec = importlib.util.spec_from_file_location("truth", ENGINES / "truth.py")
assert _spec is not None
assert _spec.loader is not None
truth = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(truth)


def test_it_is_what_the_queries_say() -> None:
    scenes = [make_scene(seed) for seed in range(400)]
    texts = [scene.captions(1, style=style)[0] for scene in scenes for style in ("short", "partial", "full")]
    queries = [parse_query(text) for text in texts]
    expected = np.array([[query.fits(scene) for scene in scenes] for query in queries])
    asked = np.array([truth.forbidden(query) for query in queries])
    shown = np.array([truth.marks(scene) for scene in scenes])
    found = truth.fits(asked, shown)
    assert expected.sum() > 3 * len(scenes)
    assert [(texts[i], j) for i, j in np.argwhere(found != expected)] == []
