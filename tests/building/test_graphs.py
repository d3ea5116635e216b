"""The exported graphs compute what transformers computes, for every kind of checkpoint that is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.checkpoints import edit_json, make_bert, make_clip
from tests.support.graphs import assert_same, export, export_fused, feeds_of
from tests.support.siglip import make_siglip
from tests.support.text_models import TEXT_FAMILIES, make_text_model
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.fetch import text_input
from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.inputs import Feeds, open_session, pixel_feeds, run
from vlmsearch.building.load import load_checkpoint
from vlmsearch.models.bundle import UNPADDED, Tower, padded_length
from vlmsearch.types import Vectors

TEXTS = ["a red star", "", "two large striped circles above a small heart on a meadow", "x", "ring", "star " * 60]
RNG = np.random.default_rng(0)


def texts_of(checkpoint: Checkpoint, batch: int = 4) -> tuple[Vectors, Vectors]:
    """Vectors of the exported float32 text tower, and the reference's, of the same batches."""
    from vlmsearch.building.torch import load_reference

    feeds = feeds_of(checkpoint, TEXTS, batch)
    reference = load_reference(checkpoint.folder)
    session = open_session(export(checkpoint, "text"))
    ours = [session.run(["embedding"], feed)[0] for feed in feeds.batches]
    theirs = [
        reference.texts(feed["input_ids"].astype(np.int32), feed["attention_mask"].astype(np.int32))
        for feed in feeds.batches
    ]
    return np.concatenate(ours), np.concatenate(theirs)


@pytest.mark.parametrize(
    ("act", "old_end", "patch", "size", "width", "heads", "dim"),
    [
        ("quick_gelu", False, 8, 32, 48, 3, 32),
        ("gelu", True, 16, 32, 64, 2, 64),
        ("quick_gelu", True, 7, 28, 32, 4, 40),
        ("gelu", False, 4, 20, 48, 6, 24),
    ],
)
def test_clip_variants_match_transformers(
    tmp_path: Path, act: str, old_end: bool, patch: int, size: int, width: int, heads: int, dim: int
) -> None:
    from vlmsearch.building.torch import load_reference

    folder = make_clip(tmp_path, act=act, old_end=old_end, patch=patch, size=size, width=width, heads=heads, dim=dim)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.dim == dim
    assert_same(*texts_of(checkpoint))
    pixels = RNG.integers(0, 256, (9, size, size, 3), np.uint8)
    pixels[1:4] //= 8
    ours, _ = run(export(checkpoint, "image"), pixel_feeds(pixels, 4))
    assert_same(ours, load_reference(folder).images(pixels))


def test_new_pooling_setting_is_read(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 48, "pooling_mode": "cls"}))
    checkpoint = load_checkpoint(folder)
    assert_same(*texts_of(checkpoint))


def test_settings_of_old_configurations_count(tmp_path: Path) -> None:
    folder = make_clip(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    old = config["text_config"]
    edit_json(folder / "config.json", text_config={"hidden_size": 7}, text_config_dict=old)
    assert_same(*texts_of(load_checkpoint(folder)))


def test_image_settings_inside_the_processor_are_read(tmp_path: Path) -> None:
    folder = make_clip(tmp_path)
    before = load_checkpoint(folder)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    assert load_checkpoint(folder).preprocess == before.preprocess
    assert load_checkpoint(folder).digest() == before.digest()


def test_padding_changes_nothing(tmp_path: Path) -> None:
    for folder in (make_clip(tmp_path / "clip"), make_bert(tmp_path / "bert")):
        checkpoint = load_checkpoint(folder)
        alone, _ = texts_of(checkpoint, batch=1)
        together, _ = texts_of(checkpoint, batch=6)
        np.testing.assert_allclose(alone, together, atol=2e-6)


@pytest.mark.parametrize("half", [False, True])
def test_texts_as_long_as_the_model_reads_can_be_padded(tmp_path: Path, half: bool) -> None:
    """77 tokens have 80 columns where lengths are multiples of 8; here 29 have 32."""
    checkpoint = load_checkpoint(make_clip(tmp_path, positions=29))
    ids = RNG.integers(3, 800, (5, 29)).astype(np.int32)
    ids[:, -1] = text_input(checkpoint).suffix[-1]
    session = open_session(export(checkpoint, "text", np.float16 if half else np.float32))

    def encode(columns: int) -> Vectors:
        filler = ((0, 0), (0, columns - 29))
        feed = {"input_ids": np.pad(ids, filler), "attention_mask": np.pad(np.ones_like(ids), filler)}
        vectors: Vectors = session.run(["embedding"], feed)[0]
        return vectors

    assert padded_length(29) == 32
    np.testing.assert_allclose(encode(32), encode(29), atol=2e-3 if half else 1e-5)
    assert np.std(encode(29) @ encode(29).T) > 0.01


@pytest.mark.parametrize("make", [make_clip, make_bert, make_siglip])
def test_inputs_and_outputs_are_as_designed(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    checkpoint = load_checkpoint(make(tmp_path))
    for tower in checkpoint.towers:
        for dtype in (np.float32, np.float16):
            model = onnx.load_from_string(export(checkpoint, tower, dtype))
            inputs = {value.name: value.type.tensor_type for value in model.graph.input}
            expected = (
                {"pixels": TensorProto.UINT8}
                if tower == "image"
                else dict.fromkeys(("input_ids", "attention_mask"), TensorProto.INT32)
            )
            assert {name: value.elem_type for name, value in inputs.items()} == expected
            assert all(value.shape.dim[0].dim_param == "batch" for value in inputs.values())
            (output,) = model.graph.output
            assert output.name == "embedding"
            assert output.type.tensor_type.elem_type == TensorProto.FLOAT
            assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
            assert not any(node.domain for node in model.graph.node)
            weights = [t for t in model.graph.initializer if np.prod(t.dims, dtype=int) > 64]
            big = {t.data_type for t in weights if not t.name.startswith("order")}
            assert big == {TensorProto.FLOAT if dtype is np.float32 else TensorProto.FLOAT16}


@pytest.mark.parametrize("make", [make_clip, make_siglip])
def test_fused_layers_and_float16_stay_near(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    checkpoint = load_checkpoint(make(tmp_path))
    for tower in checkpoint.towers:
        feeds = small_feeds(checkpoint, tower)
        plain, _ = run(export(checkpoint, tower), feeds)
        half, _ = run(export(checkpoint, tower, np.float16), feeds)
        fused, _ = run(export_fused(checkpoint, tower), feeds)
        assert (plain * fused).sum(axis=1).min() > 0.99999
        assert (plain * half).sum(axis=1).min() > 0.9999


def small_feeds(checkpoint: Checkpoint, tower: Tower) -> Feeds:
    if tower == "image":
        assert checkpoint.image is not None
        side = checkpoint.image.size
        return pixel_feeds(RNG.integers(0, 256, (6, side, side, 3), np.uint8))
    return feeds_of(checkpoint, TEXTS)


def test_the_table_of_tokens_is_half_as_large_for_a_cpu(tmp_path: Path) -> None:
    model = onnx.load_from_string(export_fused(load_checkpoint(make_bert(tmp_path)), "text"))
    (tokens,) = (t for t in model.graph.initializer if t.name == "tokens")
    assert numpy_helper.to_array(tokens).dtype == np.float16


def test_long_texts_go_without_a_mask_on_a_cpu_where_none_is_padded(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(make_bert(tmp_path, tokens=UNPADDED + 16))
    model = onnx.load_from_string(export_fused(checkpoint, "text"))
    choices = [node for node in model.graph.node if node.op_type == "If"]
    assert len(choices) == 2, "one a layer"
    for choice in choices:
        then, other = (attribute.g.node[0] for attribute in choice.attribute)
        assert (then.input[4], other.input[4]) == ("", "attention_mask")

    (condition,) = {choice.input[0] for choice in choices}
    model.graph.output.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, None))
    fused, plain = open_session(model.SerializeToString()), open_session(export(checkpoint, "text"))
    for length, padded, expected in (
        (UNPADDED, 0, True),
        (UNPADDED + 3, 0, True),
        (UNPADDED + 3, 3, False),
        (UNPADDED - 1, 0, False),
    ):
        mask = np.ones((3, length), np.int32)
        mask[1, length - padded :] = 0
        feed = {"input_ids": RNG.integers(5, 60, (3, length)).astype(np.int32), "attention_mask": mask}
        vectors, is_whole = fused.run(["embedding", condition], feed)
        assert bool(is_whole.all()) == expected
        assert (vectors * plain.run(["embedding"], feed)[0]).sum(axis=1).min() > 0.99999


def test_a_written_model_is_an_ordinary_file(tmp_path: Path) -> None:
    data = export(load_checkpoint(make_clip(tmp_path)), "text")
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    again = onnx.load_from_string(model.SerializeToString())
    assert again == model
    assert len(data) - model.ByteSize() < 1000, "lengths that are known only later take up to four bytes more"


def test_a_mistake_in_a_graph_is_noticed() -> None:
    graph = OnnxGraph("wrong")
    x = graph.input("x", TensorProto.FLOAT, ["n"])
    graph.output(graph.op("NoSuchOperator", x, scope="here"), "y", TensorProto.FLOAT, ["n"])
    with pytest.raises(onnx.checker.ValidationError, match="NoSuchOperator"):
        graph.to_bytes()


@pytest.mark.parametrize(
    "make",
    [
        make_clip,
        *(
            partial(make_text_model, family=family, pooling=name)
            for family in TEXT_FAMILIES
            for name in ("mean", "cls")
        ),
    ],
)
def test_a_mask_is_never_for_a_single_query(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """TensorRT 8.6 gives such a mask to the first row of a batch alone; it has no Trilu, ScatterND, CumSum or Where."""
    checkpoint = load_checkpoint(make(tmp_path))
    proto = onnx.shape_inference.infer_shapes(onnx.load_from_string(export(checkpoint, "text")))
    assert not {"CumSum", "ScatterND", "Trilu", "Where"} & {node.op_type for node in proto.graph.node}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in proto.graph.value_info}
    makers = {node.output[0]: node for node in proto.graph.node}
    scores = [node.input[0] for node in proto.graph.node if node.op_type == "Softmax"]
    assert len(scores) == checkpoint.text.transformer.layers
    for name in scores:
        assert makers[name].op_type == "Add"
        assert shapes[makers[name].input[0]][2].dim_value != 1
