"""What is recorded of the writers of graphs is what a comparison with transformers gives, and decides what is said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import make_bert, make_clip
from tests.support.paths import ENGINES
from tests.support.proofs import MAKERS, pixels_of, prove, prove_cross_encoder
from tests.support.siglip import make_siglip
from vlmsearch.building import verify
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.proof import configuration, proof_without_transformers, recorded_pixels
from vlmsearch.building.verify import verify_pixels
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import PROFILES
from vlmsearch.models.recipe import Gates, RecordedProof, find_any_recipe, recorded_proofs

RECORDED = {
    name: recipe.proof for name in MAKERS if (recipe := find_any_recipe(name)) is not None and recipe.proof is not None
}


def test_the_models_of_the_profiles_are_proven() -> None:
    assert {name for profile in ("default", "clip") for name in PROFILES[profile]} <= set(RECORDED)
    assert all(proof.cosine is None or proof.cosine >= Gates().float32 for proof in RECORDED.values())


def same(made: RecordedProof, recorded: RecordedProof | None) -> None:
    assert recorded is not None
    assert made.configuration == recorded.configuration
    if made.cosine is not None and recorded.cosine is not None:
        assert made.cosine == pytest.approx(recorded.cosine, abs=2e-6)
    if made.difference is not None and recorded.difference is not None:
        assert made.difference < 1e-4
        assert recorded.difference < 1e-4


def test_a_recorded_proof_is_what_a_comparison_gives(tmp_path: Path) -> None:
    same(prove(MAKERS["all-minilm-l6-v2"], tmp_path), RECORDED["all-minilm-l6-v2"])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_all_recorded_proofs_are_what_comparisons_give(name: str, tmp_path: Path) -> None:
    compare = prove_cross_encoder if name == "ms-marco-minilm-l6-v2" else prove
    same(compare(MAKERS[name], tmp_path), RECORDED[name])


def test_a_configuration_says_what_decides_a_graph_and_not_its_vocabulary(tmp_path: Path) -> None:
    one, other = (load_checkpoint(make_bert(tmp_path / name, tokens=size)) for name, size in (("a", 32), ("b", 48)))
    assert configuration(one) == configuration(other) == "Bert 48 2 3 gelu 1e-12 mean; 48 numbers"
    different = {
        configuration(load_checkpoint(make_bert(tmp_path / "cls", pooling="cls_token"))),
        configuration(load_checkpoint(make_clip(tmp_path / "old", old_end=True))),
        configuration(load_checkpoint(make_clip(tmp_path / "new"))),
        configuration(load_checkpoint(make_clip(tmp_path / "gelu", act="gelu"))),
        configuration(load_checkpoint(make_clip(tmp_path / "patch", patch=16))),
        configuration(one),
    }
    assert len(different) == 6


def test_what_is_not_recorded_is_known_by_its_family_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load_checkpoint(make_bert(tmp_path))
    assert proof_without_transformers(checkpoint) == "family"
    known = recorded_proofs() | {configuration(checkpoint)}
    monkeypatch.setattr("vlmsearch.building.proof.recorded_proofs", lambda: known)
    assert proof_without_transformers(checkpoint) == "configuration"


@pytest.mark.parametrize(
    ("second", "size"), [(True, 256), (True, 224), (False, 224)], ids=["bilinear 256", "bilinear 224", "bicubic 224"]
)
def test_recorded_pixels_are_those_of_transformers(tmp_path: Path, second: bool, size: int) -> None:
    ((way, theirs),) = pixels_of(make_siglip(tmp_path, second=second, size=size, patch=32)).items()
    assert np.abs(np.subtract(theirs, recorded_pixels()[way])).max() <= 1
    preprocess = load_checkpoint(tmp_path).preprocess
    assert preprocess is not None
    (check,) = verify_pixels(preprocess, Gates())
    assert check.passed


def test_pixels_that_are_prepared_in_another_way_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Preprocess(256, crop=False, interpolation="bilinear")
    (check,) = verify_pixels(right, Gates())
    assert (check.name, check.passed) == ("pixels.recorded", True)
    wrong = dataclasses.replace(right, interpolation="bicubic")
    monkeypatch.setattr(verify, "preprocess_name", lambda _: "256 bilinear whole")
    (check,) = verify_pixels(wrong, Gates())
    assert not check.passed


def test_no_pixels_are_recorded_for_a_way_that_nobody_has() -> None:
    assert verify_pixels(Preprocess(99), Gates()) == []
    assert json.loads((ENGINES / "pixels.json").read_text()) == recorded_pixels()
