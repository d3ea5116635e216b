"""The stand-in for TensorRT has the names of each version and no others, and is as strict as the real one."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from tests.support.paths import GOLDEN
from tests.support.tensorrt_standin import make_tensorrt, standing_in
from tests.support.tensorrt_standin.fidelity import differences
from tests.support.tensorrt_standin.gpu import ILLEGAL_ADDRESS, INVALID_VALUE
from tests.support.tensorrt_standin.models import SIZE, image_tower
from tests.support.tensorrt_standin.plans import image_ranges, make_plan
from tests.support.tensorrt_standin.versions import FULL, VERSIONS, Version

RECORDED = json.loads((GOLDEN / "tensorrt-8.6.0.json").read_text(encoding="utf-8"))


def test_it_has_the_names_that_the_real_one_was_recorded_with() -> None:
    assert differences(RECORDED) == []


@pytest.mark.parametrize(
    ("where", "name", "value", "said"),
    [
        (("enums",), "BuilderFlag", {}, "BuilderFlag is {}"),
        (("classes", "ICudaEngine"), "num_io_tensors", None, "ICudaEngine.num_io_tensors is None, and here property"),
        (("classes", "IExecutionContext"), "set_device_memory", "memory,size", "here None"),
        (("classes", "IExecutionContext"), "set_input_shape", "index,shape", "here name,shape"),
        (("cuda",), "cudaMemcpyAsync", "dst,src", "cudaMemcpyAsync takes dst,src"),
        (("cuda",), "cudaMalloc", None, "there is no cudaMalloc"),
        (("cuda", "cudaError_t"), "cudaErrorMemoryAllocation", 3, "cudaErrorMemoryAllocation is 3"),
    ],
)
def test_a_difference_is_found(where: tuple[str, ...], name: str, value: object, said: str) -> None:
    changed: Any = copy.deepcopy(RECORDED)
    part = changed
    for key in where:
        part = part[key]
    part[name] = value
    found = differences(changed)
    assert len(found) == 1
    assert said in found[0]


def has(trt: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(trt, name):
            return False
        trt = getattr(trt, name)
    return True


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("BuilderFlag.INT8", {"8.6", "10"}),
        ("BuilderFlag.FP16", {"8.6", "10"}),
        ("BuilderFlag.TF32", {"8.6", "10", "11"}),
        ("NetworkDefinitionCreationFlag.EXPLICIT_BATCH", {"8.6", "10"}),
        ("NetworkDefinitionCreationFlag.STRONGLY_TYPED", {"10", "11"}),
        ("Builder.platform_has_fast_int8", {"8.6", "10"}),
        ("Builder.build_engine", set()),
        ("ICudaEngine.num_bindings", set()),
        ("ICudaEngine.device_memory_size", {"8.6", "10"}),
        ("ICudaEngine.device_memory_size_v2", {"11"}),
        ("ICudaEngine.create_execution_context_without_device_memory", {"8.6", "10"}),
        ("IExecutionContext.execute_async_v3", {"8.6", "10", "11"}),
        ("IExecutionContext.set_device_memory", {"11"}),
        ("ExecutionContextAllocationStrategy.USER_MANAGED", {"10", "11"}),
        ("ILayer.precision", {"8.6", "10"}),
        ("PreviewFeature.PROFILE_SHARING_0806", {"8.6", "10"}),
        ("TacticSource.CUDNN", {"8.6", "10"}),
    ],
)
def test_each_version_has_its_own_names(path: str, versions: set[Version]) -> None:
    assert {version for version in VERSIONS if has(make_tensorrt(version), path)} == versions


def test_numbers_of_flags_differ_between_versions() -> None:
    ten, eleven = make_tensorrt("10"), make_tensorrt("11")
    assert (ten.NetworkDefinitionCreationFlag.STRONGLY_TYPED, ten.BuilderFlag.STRIP_PLAN) == (1, 19)
    assert (eleven.NetworkDefinitionCreationFlag.STRONGLY_TYPED, eleven.BuilderFlag.STRIP_PLAN) == (0, 18)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_network_is_built_only_with_what_its_version_wants(version: Version) -> None:
    with standing_in(version):
        import tensorrt as trt

        def build(flags: int, *builder_flags: str) -> object:
            builder = trt.Builder(trt.Logger(-1))
            network = builder.create_network(flags)
            parser = trt.OnnxParser(network, builder.logger)
            if not parser.parse(image_tower()):
                return parser.get_error(0).desc()
            config = builder.create_builder_config()
            profile = builder.create_optimization_profile()
            profile.set_shape("pixels", *image_ranges(SIZE, 1, 2, 4)["pixels"])
            config.add_optimization_profile(profile)
            for name in builder_flags:
                config.set_flag(getattr(trt.BuilderFlag, name))
            return builder.build_serialized_network(network, config)

        if version == "8.6":
            assert "explicit batch" in str(build(0))
            assert isinstance(build(1, "FP16", "INT8"), bytearray)
        elif version == "10":
            assert isinstance(build(0b01, "FP16"), bytearray)
            assert build(0b11, "FP16") is None, "strongly typed networks take no flags of precision"
            assert isinstance(build(0b11), bytearray)
        else:
            assert isinstance(build(0b1), bytearray)
            with pytest.raises(AttributeError):
                build(0b1, "FP16")


@pytest.mark.parametrize("version", VERSIONS)
def test_shapes_are_tuples_and_loggers_are_made_properly(version: Version) -> None:
    class Forgetful(make_tensorrt(version).ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with standing_in(version):
        import tensorrt as trt

        with pytest.raises(TypeError):
            trt.Runtime(Forgetful())
        engine = trt.Runtime(trt.Logger(-1)).deserialize_cuda_engine(
            make_plan(trt, image_tower(), [image_ranges(SIZE, 1, 2, 4)])
        )
        context = engine.create_execution_context()
        with pytest.raises(TypeError):
            context.set_input_shape("pixels", [1, SIZE, SIZE, 3])
        assert not context.set_input_shape("pixels", (5, SIZE, SIZE, 3)), "outside of the profile"
        assert context.set_input_shape("pixels", (4, SIZE, SIZE, 3))
        assert trt.__version__ == FULL[version]


def test_work_is_done_late_and_wrong_addresses_poison_the_gpu() -> None:
    with standing_in("11") as gpu:
        from cuda.bindings import runtime as cuda

        stream = int(cuda.cudaStreamCreateWithFlags(1)[1])
        host, device = cuda.cudaMallocHost(16)[1], cuda.cudaMalloc(16)[1]
        gpu.bytes_at(host, 16, host=True)[:] = 7
        to_device, to_host = cuda.cudaMemcpyKind.cudaMemcpyHostToDevice, cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        cuda.cudaMemcpyAsync(device, host, 16, to_device, stream)
        assert not np.all(gpu.bytes_at(device, 16) == 7)
        assert cuda.cudaStreamSynchronize(stream) == (0,)
        assert np.all(gpu.bytes_at(device, 16) == 7)
        cuda.cudaMemcpyAsync(host, device, 17, to_host, stream)
        assert cuda.cudaStreamSynchronize(stream) == (ILLEGAL_ADDRESS,)
        assert cuda.cudaMalloc(1) == (ILLEGAL_ADDRESS, None), "nothing works from then on"
        assert cuda.cudaFreeHost(device) == (INVALID_VALUE,)
