"""INT8: the ranges, the graphs, and the search for what must stay in high precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, numpy_helper

from tests.support.checkpoints import make_bert, make_clip
from tests.support.graphs import calibrate, export, feeds_of, scratch, write
from vlmsearch.building.calibrate import Observation, Spread
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.data import sentences
from vlmsearch.building.inputs import Feeds, open_session, pixel_feeds, run
from vlmsearch.building.layers import quantise_weight
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.quantize import Drift, QuantisationPlan, Subject, describe, drift, neighbour_overlap, quantise
from vlmsearch.models.bundle import Precision, Tower
from vlmsearch.models.recipe import Calibration, TowerGate

RNG = np.random.default_rng(0)


def quiet(step: str, done: int, total: int) -> None:
    pass


_calibrated: dict[tuple[Path, Tower], tuple[Subject[Drift], Mapping[str, Observation]]] = {}


def subject_of(
    checkpoint: Checkpoint, tower: Tower, gate: TowerGate
) -> tuple[Subject[Drift], Mapping[str, Observation]]:
    """Return a tower to quantise, and what its Linears read: calibrated once a checkpoint."""
    place = (checkpoint.folder, tower)
    if place not in _calibrated:
        feeds, held_out = _feeds(checkpoint, tower)
        reference, _ = run(export(checkpoint, tower), held_out)
        subject = Subject(checkpoint, tower, held_out, reference, gate, drift, scratch())
        _calibrated[place] = subject, calibrate(checkpoint, tower, feeds)
    subject, seen = _calibrated[place]
    return dataclasses.replace(subject, gate=gate), seen


def _feeds(checkpoint: Checkpoint, tower: Tower) -> tuple[Feeds, Feeds]:
    if tower == "image":
        assert checkpoint.image is not None
        side = checkpoint.image.size
        pixels = RNG.integers(0, 256, (96, side, side, 3), np.uint8)
        pixels = (pixels * RNG.random((96, 1, 1, 3))).astype(np.uint8)
        return pixel_feeds(pixels[:48]), pixel_feeds(pixels[48:])
    known = sentences()
    return feeds_of(checkpoint, known[:64], 32), feeds_of(checkpoint, known[64:128], 32)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(make_clip(tmp_path_factory.mktemp("clip")))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(make_bert(tmp_path_factory.mktemp("bert")))


@given(st.integers(0, 2**32), st.floats(1e-4, 1e4), st.floats(-3, 3))
@settings(max_examples=30)
def test_streamed_ranges_are_those_of_all_values(seed: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    parts = [(rng.standard_normal((rng.integers(1, 200), 7)) * scale + shift).astype(np.float32) for _ in range(6)]
    spread = Spread()
    for part in parts:
        spread.update(part)
    values = np.concatenate(parts)
    assert spread.range() == (values.min(), values.max())
    np.testing.assert_array_equal(spread.magnitude(), np.abs(values).max(axis=0))
    low, high = spread.range(99.0)
    width = 4 * np.abs(values).max() / 8192
    ranked = np.sort(values, axis=None)
    place = 0.005 * len(ranked)
    assert ranked[max(0, int(place) - 1)] - width <= low <= ranked[int(place) + 1] + width
    assert ranked[-int(place) - 2] - width <= high <= ranked[min(-1, -int(place))] + width
    factors = rng.random(7).astype(np.float32) + 0.5
    scaled = values / factors
    np.testing.assert_allclose(spread.scaled(factors), (scaled.min(), scaled.max()), rtol=1e-6)


def test_weights_are_quantised_per_output_channel() -> None:
    weight = RNG.standard_normal((64, 16)).astype(np.float32) * np.logspace(-3, 3, 16, dtype=np.float32)
    for most in (63, 127):
        integers, scales = quantise_weight(weight, most)
        assert integers.dtype == np.int8
        np.testing.assert_array_equal(np.abs(integers).max(axis=0), most)
        assert np.abs(integers * scales - weight).max(axis=0) == pytest.approx(scales / 2, rel=0.2)


def test_explicit_quantisation_is_what_tensorrt_reads(clip: Checkpoint) -> None:
    for tower in clip.towers:
        subject, seen = subject_of(clip, tower, TowerGate())
        kept = list(seen)[1]
        model = onnx.load(write(subject, "qdq", QuantisationPlan("static", excluded=(kept,)), seen))
        assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
        constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        kinds = [node.op_type for node in model.graph.node]
        assert kinds.count("QuantizeLinear") == len(seen) - 1
        assert kinds.count("DequantizeLinear") == 2 * (len(seen) - 1)
        for node in model.graph.node:
            if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                zero = constants[node.input[2]]
                assert zero.dtype == np.int8
                assert not zero.any(), "TensorRT takes symmetric quantisation only"
        inputs = {node.name: node.input for node in model.graph.node if node.op_type == "MatMul"}
        for name, (left, right) in ((n, (i[0], i[1])) for n, i in inputs.items()):
            layer = name.rpartition("/")[0]
            quantised = layer in seen and layer != kept
            assert ("DequantizeLinear" in left) == quantised, name
            assert ("DequantizeLinear" in right) == quantised, name
        layers = {name.rpartition("/")[0] for name in inputs}
        assert "projection" in layers, "the final projection is there, in high precision"
        if tower == "image":
            assert "image/patches" in layers, "the patch embedding is there, in high precision"


def test_cpu_int8_leaves_a_bit_free_and_quantises_the_linears(clip: Checkpoint) -> None:
    subject, seen = subject_of(clip, "image", TowerGate())
    methods: tuple[Literal["static", "dynamic"], ...] = ("static", "dynamic")
    for method in methods:
        model = onnx.load(write(subject, "int8", QuantisationPlan(method), seen))
        integers = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith("weight_int8")]
        assert len(integers) == len(seen)
        assert max(int(np.abs(array.astype(int)).max()) for array in integers) == 63
        kinds = {node.op_type for node in model.graph.node}
        assert ("DynamicQuantizeMatMul" in kinds) == (method == "dynamic")
        assert ("MatMulIntegerToFloat" in kinds) == (method == "static")


@pytest.mark.parametrize("precision", ["int8", "qdq"])
@pytest.mark.parametrize("smoothing", [None, 0.5])
def test_int8_stays_near_float32(clip: Checkpoint, bert: Checkpoint, precision: Precision, smoothing: float) -> None:
    for checkpoint in (clip, bert):
        for tower in checkpoint.towers:
            subject, seen = subject_of(checkpoint, tower, TowerGate())
            drift = subject.measure(write(subject, precision, QuantisationPlan("static", smoothing=smoothing), seen))
            assert drift.mean_cosine > 0.995


def test_static_ranges_make_vectors_independent_of_the_batch(clip: Checkpoint) -> None:
    subject, seen = subject_of(clip, "image", TowerGate())
    pixels = RNG.integers(0, 256, (8, 32, 32, 3), np.uint8)
    session = open_session(write(subject, "int8", QuantisationPlan("static"), seen))
    together = session.run(["embedding"], {"pixels": pixels})[0]
    alone = np.concatenate([session.run(["embedding"], {"pixels": pixels[i : i + 1]})[0] for i in range(8)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_passing_plain_model_is_taken(bert: Checkpoint) -> None:
    subject, seen = subject_of(bert, "text", TowerGate(0.9, 0.5))
    result = quantise(subject, "int8", seen, Calibration(), quiet, trusted=True)
    assert result.plan is not None
    assert (result.plan.method, result.plan.excluded) == ("static", ())
    assert {plan.method for plan, _ in result.tried} == {"static", "dynamic"}, "both are measured"


def test_without_trusted_data_ranges_are_measured_at_run_time(bert: Checkpoint) -> None:
    subject, seen = subject_of(bert, "text", TowerGate(0.9, 0.5))
    result = quantise(subject, "int8", seen, Calibration(), quiet, trusted=False)
    assert result.plan == QuantisationPlan("dynamic")
    assert quantise(subject, "qdq", seen, Calibration(), quiet, trusted=False).plan is not None


@pytest.mark.parametrize("precision", ["int8", "qdq"])
def test_harmful_linears_stay_in_high_precision_until_the_gate_holds(bert: Checkpoint, precision: Precision) -> None:
    subject, seen = subject_of(bert, "text", TowerGate(2, 2))
    plain = max(
        subject.measure(write(subject, precision, plan, seen)).mean_cosine
        for plan in (
            QuantisationPlan("static"),
            QuantisationPlan("static", 99.999),
            QuantisationPlan("dynamic" if precision == "int8" else "static"),
        )
    )
    gate = TowerGate(1 - (1 - plain) * 0.6, 0.0)
    strict = dataclasses.replace(subject, gate=gate)
    result = quantise(strict, precision, seen, Calibration(max_excluded=1.0), quiet, trusted=True)
    assert result.plan is not None
    assert result.drift.passes(gate)
    assert result.plan.smoothing is not None or 0 < len(result.plan.excluded) < len(seen)
    assert set(result.plan.excluded) <= set(seen)
    tried = [plan for plan, _ in result.tried]
    assert any(plan.smoothing for plan in tried), "SmoothQuant comes first"
    names = {node.name for node in onnx.load(write(subject, precision, result.plan, seen)).graph.node}
    for name in result.plan.excluded:
        assert any(node.startswith(f"{name}/MatMul_") for node in names)


def test_without_a_search_what_passes_first_is_taken_and_no_linear_is_measured(bert: Checkpoint) -> None:
    subject, seen = subject_of(bert, "text", TowerGate(-1.0, 0.0))
    result = quantise(subject, "int8", seen, Calibration(), quiet, trusted=True, search=False)
    assert [plan.method for plan, _ in result.tried] == ["static"]
    hard = dataclasses.replace(subject, gate=TowerGate(1.1, 1.1))
    result = quantise(hard, "int8", seen, Calibration(), quiet, trusted=True, search=False)
    assert not any(plan.excluded for plan, _ in result.tried)


def test_where_nothing_passes_the_nearest_is_given(bert: Checkpoint) -> None:
    gate = TowerGate(1.1, 1.1)
    subject, seen = subject_of(bert, "text", gate)
    result = quantise(subject, "int8", seen, Calibration(max_excluded=0.25), quiet, trusted=True)
    assert not result.drift.passes(gate)
    assert result.drift.mean_cosine == max(drift.mean_cosine for _, drift in result.tried)


def test_one_linear_may_be_all_that_is_allowed(bert: Checkpoint) -> None:
    subject, seen = subject_of(bert, "text", TowerGate(2, 2))
    for share, most in ((0.0, 0), (1 / len(seen), 1)):
        result = quantise(subject, "qdq", seen, Calibration(max_excluded=share), quiet, trusted=True)
        assert max(len(plan.excluded) for plan, _ in result.tried) == most


def test_smoothing_repairs_a_channel_that_stands_out(tmp_path: Path) -> None:
    """A channel of inputs a hundred times larger, with weights as much smaller, is what SmoothQuant is for."""
    checkpoint = load_checkpoint(make_clip(tmp_path))
    weights = {name: array.copy() for name, array in checkpoint.weights.items()}
    for layer in range(2):
        prefix = f"vision_model.encoder.layers.{layer}."
        weights[f"{prefix}layer_norm2.weight"][:3] *= 100
        weights[f"{prefix}layer_norm2.bias"][:3] *= 100
        weights[f"{prefix}mlp.fc1.weight"][:, :3] /= 100
    subject, seen = subject_of(dataclasses.replace(checkpoint, weights=weights), "image", TowerGate())
    plain = subject.measure(write(subject, "qdq", QuantisationPlan("static"), seen)).mean_cosine
    smooth = subject.measure(write(subject, "qdq", QuantisationPlan("static", smoothing=0.5), seen)).mean_cosine
    assert 1 - smooth < (1 - plain) / 3
    half = dataclasses.replace(subject, gate=TowerGate(1 - (1 - plain) / 2, 0.0))
    result = quantise(half, "qdq", seen, Calibration(), quiet, trusted=True)
    assert result.plan is not None
    assert result.plan.smoothing == 0.5
    assert not result.plan.excluded


def test_calibration_skips_padding(bert: Checkpoint) -> None:
    texts = ["a", "a red star and a blue ring on a meadow"]
    together, apart = (calibrate(bert, "text", feeds_of(bert, texts, batch)) for batch in (2, 1))
    for name, observation in together.items():
        np.testing.assert_allclose(observation.inputs.range(), apart[name].inputs.range(), atol=1e-5)


def test_overlap_counts_kept_neighbours() -> None:
    rows = RNG.standard_normal((40, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert neighbour_overlap(rows, rows) == 1
    other = RNG.standard_normal((40, 8)).astype(np.float32)
    assert 0.1 < neighbour_overlap(rows, other) < 0.45
    assert neighbour_overlap(rows, np.full_like(rows, np.nan)) < 0.5


def test_a_gate_needs_both_figures() -> None:
    gate = TowerGate(0.9, 0.8)
    assert Drift(0.9, 0.1, 0.8, 1).passes(gate)
    assert not Drift(0.89, 0.1, 1.0, 1).passes(gate)
    assert not Drift(1.0, 0.1, 0.79, 1).passes(gate)


def test_plans_are_told_in_words() -> None:
    assert describe(QuantisationPlan("dynamic")) == "dynamic"
    assert (
        describe(QuantisationPlan("static", 99.99, 0.5, ("a", "b")))
        == "static, 99.99 %, smoothed by 0.5, 2 Linears in high precision"
    )


def test_float16_has_float32_around_it(clip: Checkpoint) -> None:
    model = onnx.load_from_string(export(clip, "text", np.float16))
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
    kinds = {node.op_type for node in model.graph.node}
    assert "LayerNormalization" in kinds
    assert not kinds & {"QuantizeLinear", "DequantizeLinear"}
