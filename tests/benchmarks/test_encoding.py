"""A model is timed beside sentence-transformers and transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.encoding import main
from tests.support.checkpoints import make_clip
from tests.support.paths import ENGINES
from tests.support.tables import table
from vlmsearch.building.fetch import checkpoint_of
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import find_bundles


def test_texts_are_timed_beside_sentence_transformers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a red star","a blue ring",4.5\n"two hearts, small","x",1\n' * 8)
    rows = table(main, "demo-minilm", "--texts", str(tmp_path / "t.csv"), "--rounds", "1")
    rates = {row["who"]: float(row["items/s"]) for row in rows}
    assert {"vlmsearch int8", "vlmsearch fp32", "sentence-transformers float32"} <= rates.keys()
    assert min(rates.values()) > 0


@pytest.mark.slow
def test_images_are_timed_beside_transformers() -> None:
    rows = table(main, "demo-clip", "--count", "12", "--rounds", "1")
    assert {row["task"] for row in rows} == {"pixels to vectors", "JPEG to vectors", "short texts"}
    assert {row["who"] for row in rows if row["task"] == "JPEG to vectors"} == {
        "vlmsearch int8",
        "vlmsearch fp32",
        "transformers processor + model",
    }


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    (bundle,) = find_bundles("demo-clip")
    with pytest.raises(ConfigError, match="is not what demo-clip was built from"):
        checkpoint_of(bundle, make_clip(tmp_path))
    assert checkpoint_of(bundle, ENGINES / "demo-clip/checkpoint") == ENGINES / "demo-clip/checkpoint"
