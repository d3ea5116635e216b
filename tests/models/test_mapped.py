"""Models whose large tensors stay on the disk compute the same, in less memory, and read no other file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vlmsearch._util.ort import ort
from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.inputs import open_session
from vlmsearch.errors import ConfigError, ModelUnavailableError, VlmsearchError
from vlmsearch.models.mapped import ALIGNMENT, map_model
from vlmsearch.models.session import OnnxSession, Place

RNG = np.random.default_rng(0)


def write(path: Path, *, rows: int = 500) -> Path:
    with path.open("w+b") as file:
        graph = OnnxGraph("tiny", file)
        ids = graph.input("ids", TensorProto.INT32, ["n"])
        table = graph.constant(RNG.standard_normal((rows, 48)).astype(np.float16), "table")
        x = graph.op("Cast", graph.op("Gather", table, ids, scope="a"), scope="a", to=int(TensorProto.FLOAT))
        x = graph.op("MatMul", x, graph.constant(RNG.standard_normal((48, 400)).astype(np.float32), "w"), scope="a")
        x = graph.op("Add", x, graph.constant(np.array([1.5], np.float32), "small"), scope="a")
        graph.output(x, "out", TensorProto.FLOAT, ["n", 400])
        graph.finish()
    return path


def test_a_mapped_model_computes_what_the_whole_file_does(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", rows=5000)
    feed = {"ids": np.arange(7, dtype=np.int32)}
    whole = open_session(path.read_bytes()).run(None, feed)[0]
    np.testing.assert_array_equal(open_session(path).run(None, feed)[0], whole)
    np.testing.assert_array_equal(OnnxSession(map_model(path), Place(1), "tiny").run(feed), whole)


def test_large_tensors_lie_where_processors_read_them_best_and_are_left_there(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", rows=5000)
    mapped = map_model(path)
    model = onnx.load_model_from_string(mapped.graph)
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer
    }
    assert places.pop("small") == {}
    assert {int(place["offset"]) % ALIGNMENT for place in places.values()} == {0}
    assert {place["location"] for place in places.values()} == {"model.onnx"}
    data = path.read_bytes()
    for tensor in onnx.load(path).graph.initializer:
        if place := places.get(tensor.name):
            start, size = int(place["offset"]), int(place["length"])
            assert data[start : start + size] == numpy_helper.to_array(tensor).tobytes()
    assert len(mapped.graph) < 2000 < len(data)


def test_a_model_that_names_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(40))
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[10], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret")
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [10])
    inner = helper.make_node("Constant", [], ["out"], value=tensor)
    outer = helper.make_graph([helper.make_node("Identity", ["t"], ["out"])], "g", [], [out], [tensor])
    for graph in (outer, helper.make_graph([inner], "g", [], [out])):
        path = tmp_path / "model.onnx"
        path.write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
        with pytest.raises(ConfigError, match="reads its weights from other files, which no bundle does"):
            map_model(path)


@pytest.mark.parametrize("cut", [1, 5, 50, 1000])
def test_a_file_that_was_cut_is_one_line(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(VlmsearchError, match=r"is no ONNX model|cannot load what was built"):
        open_session(path)


def test_an_empty_or_missing_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    for name in ("empty.onnx", "none.onnx"):
        with pytest.raises(ModelUnavailableError, match="cannot be read"):
            map_model(tmp_path / name)


def test_a_model_of_another_writer_is_taken_as_it_is(tmp_path: Path) -> None:
    table = numpy_helper.from_array(RNG.standard_normal((400, 100)).astype(np.float32), "t")
    node = helper.make_node("Gather", ["t", "ids"], ["out"])
    ids = helper.make_tensor_value_info("ids", TensorProto.INT32, None)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [ids], [out], [table])
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    session: ort.InferenceSession = open_session(path)
    found = session.run(None, {"ids": np.array([3], np.int32)})[0]
    np.testing.assert_array_equal(found[0], numpy_helper.to_array(table)[3])
