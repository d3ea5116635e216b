"""Engines over the stand-in for TensorRT: same vectors as ONNX Runtime, whatever happens on the GPU."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.gpu import PretendGpu
from tests.support.tensorrt_standin.models import DIM, SIZE, WORDS, image_tower, text_tower
from tests.support.tensorrt_standin.plans import Ranges, image_ranges, make_plan, text_ranges
from tests.support.tensorrt_standin.versions import VERSIONS
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError
from vlmsearch.types import Vectors

if TYPE_CHECKING:
    from vlmsearch.tensorrt.engine.engine import Engine

IMAGE, TEXT = image_tower(), text_tower()
LENGTHS = (2, 16, 30)
MakeEngine = Callable[..., "Engine"]


@pytest.fixture(params=VERSIONS)
def gpu(request: pytest.FixtureRequest) -> Iterator[PretendGpu]:
    with standing_in(request.param) as state:
        yield state


@pytest.fixture
def make(gpu: PretendGpu) -> Iterator[MakeEngine]:
    """Makes engines of the image tower, which are closed afterwards."""
    opened: list[Any] = []

    def make_engine(*profiles: Ranges, model: bytes = IMAGE, **options: Any) -> Any:
        engine = importlib.import_module("vlmsearch.tensorrt.engine.engine")
        plan = make_plan(importlib.import_module("tensorrt"), model, profiles or [image_ranges(SIZE, 1, 16, 64)])
        opened.append(engine.Engine(plan, **options))
        return opened[-1]

    yield make_engine
    for engine in opened:
        engine.close()
    assert gpu.used == 0, "closing frees all memory of the GPU"
    assert not gpu.allocations, "and all pinned memory"
    assert not gpu.objects, "and all streams, events and graphs"


def pixels(rows: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (rows, SIZE, SIZE, 3), dtype=np.uint8)


def texts(rows: int, length: int) -> dict[str, NDArray[np.int32]]:
    ids = np.random.default_rng(length).integers(0, WORDS, (rows, length)).astype(np.int32)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


_REFERENCE = ort.InferenceSession(IMAGE, providers=["CPUExecutionProvider"])
ALL = pixels(200)
EXPECTED: Vectors = _REFERENCE.run(None, {"pixels": ALL})[0]


def check(engine: Engine, *counts: int) -> None:
    for rows in counts:
        found = engine.run({"pixels": ALL[:rows]})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, EXPECTED[:rows], atol=1e-5)


def test_batches_of_any_size_have_the_vectors_of_onnx_runtime(make: MakeEngine) -> None:
    engine = make()
    check(engine, 0, 1, 2, 3, 7, 16, 33, 64, 65, 200, 1)
    assert engine.run({"pixels": ALL[:0]}).shape == (0, DIM)


def test_common_sizes_run_as_graphs_from_the_second_time_on(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make()
    check(engine, 8)
    assert (engine.graphs, gpu.launches, gpu.graph_launches) == (0, 1, 0)
    check(engine, 8, 8)
    assert (engine.graphs, gpu.launches, gpu.graph_launches) == (1, 1, 2)
    check(engine, 7, 5)
    assert (engine.graphs, gpu.launches) == (1, 1), "a few rows more are computed where a graph is there"
    check(engine, 40)
    assert gpu.launches == 2, "but not many"


def test_a_graph_is_right_after_other_shapes_have_run(make: MakeEngine) -> None:
    engine = make()
    check(engine, 4, 4, 4, 1, 1, 1, 40, 50, 4, 1, 16, 16, 4, 40)
    assert engine.graphs == 3


def test_without_graphs_every_batch_is_launched(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make(graphs=())
    check(engine, 1, 1, 1, 8, 8, 3)
    assert (engine.graphs, gpu.launches, gpu.graph_launches) == (0, 6, 0)


def test_what_cannot_be_captured_is_launched_and_that_is_remembered(make: MakeEngine, gpu: PretendGpu) -> None:
    gpu.no_capture = True
    engine = make(contexts=1)
    check(engine, 4, 4, 4)
    assert (engine.graphs, gpu.launches) == (0, 3)
    gpu.no_capture = False
    check(engine, 4, 4)
    assert (engine.graphs, gpu.launches) == (0, 5), "it is not tried again"


def test_nothing_touches_the_default_stream_while_a_graph_is_captured(make: MakeEngine, gpu: PretendGpu) -> None:
    """TensorRT's own streams wait for it, and then the work of other threads would fail."""
    engine = make(contexts=3)
    check(engine, 16)
    cuda = importlib.import_module("vlmsearch.tensorrt.engine.cuda")
    with cuda.Stream() as stream, ThreadPoolExecutor(3) as pool:
        with cuda.Capture(stream) as capture:
            waiting = [pool.submit(check, engine, rows) for rows in (5, 16, 31)]
            waiting.append(pool.submit(lambda: cuda.DeviceBuffer(100).close()))
            time.sleep(0.2)
            assert gpu.captures
            assert not waiting[0].done(), "it needs a context of its own, and waits"
        for future in waiting:
            future.result(60)
        capture.graph.close()


def test_threads_that_start_together_capture_one_after_the_other(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make(contexts=8)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            list(pool.map(lambda rows: check(engine, rows), (1, 2, 4, 8, 16, 32, 3, 50)))
    assert engine.graphs > 0


def test_the_number_of_graphs_is_bounded(make: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.tensorrt.engine.slots._MAX_GRAPHS", 2)
    engine = make(contexts=1)
    check(engine, *[1, 2, 4, 8] * 3, 4, 4, 8, 8, 1, 2)
    assert engine.graphs == 2


def test_the_smallest_profile_that_takes_a_batch_is_used(make: MakeEngine) -> None:
    profiles = [text_ranges((1, n, n), LENGTHS) for n in (1, 8, 32)]
    engine = make(*profiles, model=TEXT)
    find = engine._steps.find
    for rows, profile in ((1, 0), (2, 1), (8, 1), (9, 2), (32, 2)):
        step = find(rows, {name: array.shape for name, array in texts(rows, 5).items()}, max_rows=32)
        assert step.profile == profile
        assert step.rows >= rows
    reference = ort.InferenceSession(TEXT, providers=["CPUExecutionProvider"])
    for rows, length in ((1, 5), (1, 5), (1, 9), (8, 5), (8, 5), (30, 7), (70, LENGTHS[2]), (1, 5), (8, 5)):
        batch = texts(rows, length)
        np.testing.assert_allclose(engine.run(batch), reference.run(None, dict(batch))[0], atol=1e-5)


def test_long_texts_go_in_the_batches_that_a_profile_takes(make: MakeEngine) -> None:
    profiles = [text_ranges((1, 12, 12), LENGTHS), text_ranges((13, 32, 32), (2, 16, 20))]
    engine = make(*profiles, model=TEXT)
    reference = ort.InferenceSession(TEXT, providers=["CPUExecutionProvider"])
    for rows, length in ((11, 30), (11, 30), (12, 21), (13, 30), (32, 30), (32, 20), (70, 21), (30, 5), (11, 30)):
        batch = texts(rows, length)
        np.testing.assert_allclose(engine.run(batch), reference.run(None, dict(batch))[0], atol=1e-5)
    with pytest.raises(BackendError, match="the plan takes"):
        engine.run(texts(3, 31))


def test_a_profile_with_a_least_batch_gets_rows_added(make: MakeEngine) -> None:
    check(make(image_ranges(SIZE, 4, 8, 16), graphs=()), 1, 3, 4, 5, 33)


def test_fewer_rows_than_a_plan_computes_at_least_are_no_way_out(make: MakeEngine, gpu: PretendGpu) -> None:
    profile = image_ranges(SIZE, 16, 16, 40)
    with pytest.raises(ConfigError, match="the plan computes 16 rows at least, not 8"):
        make(profile, max_batch=8)
    row = SIZE * SIZE * 3 + DIM * 4
    gpu.memory = len(IMAGE) + 40 * 4096 + 17 * row
    engine = make(profile)
    assert engine.max_batch == 16
    check(engine, 4, 40)
    engine.close()
    gpu.memory -= 2 * row
    with pytest.raises(BackendError, match="out of memory: the engine computes in"):
        make(profile)
    assert gpu.poison == 0


def test_inputs_that_the_plan_does_not_take_are_refused(make: MakeEngine) -> None:
    engine = make()
    with pytest.raises(BackendError, match="takes pixels, not images"):
        engine.run({"images": ALL})
    with pytest.raises(BackendError, match=r"pixels from \(1, .* not pixels \(1, 7, 7, 3\)"):
        engine.run({"pixels": np.zeros((1, 7, 7, 3), np.uint8)})
    texts_engine = make(text_ranges((1, 4, 8), LENGTHS), model=TEXT)
    batch = texts(3, 5)
    with pytest.raises(BackendError, match="different lengths: 2, 3"):
        texts_engine.run({"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"][:2]})
    with pytest.raises(TypeError):
        engine.run({"pixels": ALL[:1].astype(np.float32)})
    check(engine, 3)


def test_when_memory_runs_out_the_batch_is_halved_and_that_is_remembered(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make()
    gpu.most_rows = 10
    check(engine, 64)
    assert engine.max_batch == 8
    launches = gpu.launches + gpu.graph_launches
    gpu.most_rows = 8
    check(engine, 64)
    assert gpu.launches + gpu.graph_launches == launches + 8
    gpu.most_rows = 0
    with pytest.raises(BackendError, match="out of memory"):
        engine.run({"pixels": ALL[:3]})
    gpu.most_rows = None
    check(engine, 3)


def test_an_engine_fits_itself_into_the_memory_there_is(make: MakeEngine, gpu: PretendGpu) -> None:
    row = SIZE * SIZE * 3 + DIM * 4
    gpu.memory = len(IMAGE) + 64 * 4096 + 20 * row
    engine = make()
    assert engine.max_batch == 16
    assert engine.memory <= gpu.memory
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: check(engine, rows), [1, 20, 64, 3, 40, 100]))
    assert engine.max_batch == 16


def test_a_gpu_that_is_full_is_one_clear_error(make: MakeEngine, gpu: PretendGpu) -> None:
    gpu.memory = len(IMAGE) + 64 * 4096 + 100
    with pytest.raises(BackendError, match=r"out of memory: the engine computes in .* MiB .*--profile 1,8,32"):
        make()
    assert gpu.used == 0
    gpu.memory = 1000
    with pytest.raises(BackendError, match=r"cannot load the plan.*out of memory"):
        make()


def test_threads_share_an_engine_and_its_memory_stays_flat(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make(contexts=3)
    with engine._pool.take(3):
        used, held = gpu.used, engine.memory
    sizes = [1, 64, 3, 100, 8, 17, 1, 40] * 3
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rows: check(engine, rows), sizes))
        list(pool.map(lambda rows: check(engine, rows), sizes))
    assert (gpu.used, engine.memory) == (used, held)


def test_a_large_batch_goes_over_two_contexts(make: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.tensorrt.engine.engine._SPLIT_ROWS", 8)
    monkeypatch.setattr("vlmsearch.tensorrt.engine.engine._SPLIT_BYTES", SIZE * SIZE * 3 * 4)
    engine = make()
    before = engine.memory
    check(engine, 64, 64, 64)
    assert engine.memory > before
    assert engine.graphs == 2


def test_pixels_on_the_gpu_need_no_copy_from_the_host(make: MakeEngine) -> None:
    engine = make()
    cuda, lanes = (
        importlib.import_module("vlmsearch.tensorrt.engine.cuda"),
        importlib.import_module("vlmsearch.tensorrt.engine.slots"),
    )
    batch = pixels(100)
    with cuda.Stream() as stream, cuda.PinnedBuffer(batch.nbytes) as host, cuda.DeviceBuffer(batch.nbytes) as device:
        host.array(batch.shape, np.uint8)[:] = batch
        cuda.copy_to_device(device.pointer, host.pointer, batch.nbytes, stream)
        stream.synchronize()
        found = engine.run_device({"pixels": lanes.DeviceArray(device.pointer, batch.shape)})
    np.testing.assert_allclose(found, EXPECTED[:100], atol=1e-5)


def test_a_batch_is_timed_without_its_copies(make: MakeEngine) -> None:
    engine = make()
    timing = engine.timed({"pixels": ALL[:8]}, runs=5)
    assert (timing.batch, timing.runs, timing.graph) == (8, 5, True)
    assert 0 < timing.latency_ms <= timing.p99_ms
    assert timing.batch_ms > 0
    with pytest.raises(ConfigError, match="1 to 64 can be timed, not of 65"):
        engine.timed({"pixels": ALL[:65]})


def test_after_closing_it_says_so(make: MakeEngine) -> None:
    engine = make()
    engine.close()
    engine.close()
    with pytest.raises(BackendError, match="closed"):
        engine.run({"pixels": ALL[:1]})


def test_a_broken_gpu_is_an_error_that_names_it(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = make()
    gpu.poison = 700
    with pytest.raises(BackendError, match="cudaErrorIllegalAddress: an illegal memory access"):
        engine.run({"pixels": ALL[:1]})
    gpu.poison = 0


def test_what_is_no_plan_of_this_tensorrt_is_refused(make: MakeEngine, gpu: PretendGpu) -> None:
    engine = importlib.import_module("vlmsearch.tensorrt.engine.engine").Engine
    plan = make_plan(importlib.import_module("tensorrt"), IMAGE, [image_ranges(SIZE, 1, 8, 8)])
    with pytest.raises(BackendError, match="magicTagRead"):
        engine(b"no plan")
    with pytest.raises(BackendError, match="not compatible with this version"):
        engine(make_plan(SimpleNamespace(__version__="9.0.0"), IMAGE, [image_ranges(SIZE, 1, 8, 8)]))
    gpu.capability = (8, 0)
    with pytest.raises(BackendError, match="incompatible device"):
        engine(plan)
    assert gpu.used == 0


def test_tensorrt_that_does_not_start_is_an_error(make: MakeEngine, gpu: PretendGpu) -> None:
    gpu.no_context = True
    with pytest.raises(BackendError, match="TensorRT does not start: 6: CUDA initialization failure with error: 2"):
        make()


def test_without_driver_gpu_or_that_gpu_it_says_what_is_missing(make: MakeEngine, gpu: PretendGpu) -> None:
    with pytest.raises(ConfigError, match="no GPU 1: there are 1, numbered from 0"):
        make(device=1)
    gpu.devices = 0
    with pytest.raises(ModelUnavailableError, match=r"no NVIDIA GPU.*CUDA_VISIBLE_DEVICES"):
        make()
    gpu.driver = 11080
    with pytest.raises(ModelUnavailableError, match=r"CUDA 11\.8 at most, .* CUDA 12\.9: .*'cuda-bindings<12'"):
        make()
    gpu.driver = 0
    with pytest.raises(ModelUnavailableError, match="driver is not installed"):
        make()
    with pytest.raises(ConfigError, match="contexts and max_batch are at least 1"):
        make(contexts=0)


def test_another_gpu_is_used_without_changing_the_callers(make: MakeEngine, gpu: PretendGpu) -> None:
    gpu.devices = 2
    engine = make(device=1)
    assert engine.gpu.index == 1
    check(engine, 4, 4, 100)
    assert gpu.device == 0
    assert {found.device for found in gpu.allocations.values()} <= {1, -1}


def test_a_plan_that_shares_no_profiles_is_named(gpu: PretendGpu) -> None:
    engine = importlib.import_module("vlmsearch.tensorrt.engine.engine").Engine
    plan = make_plan(importlib.import_module("tensorrt"), IMAGE, [image_ranges(SIZE, 1, 8, 8)], shared=False)
    with engine(plan) as opened:
        check(opened, 8)
        with pytest.raises(BackendError, match=r"optimization profile 0: .*chosen for another"):
            check(opened, 4)


def test_what_a_gpu_is_can_be_told(gpu: PretendGpu) -> None:
    found = importlib.import_module("vlmsearch.tensorrt.engine.cuda").find_gpu(0)
    assert (found.name, found.architecture, found.memory) == ("NVIDIA Pretend", "sm_90", gpu.memory)
    assert (found.cuda, found.runtime) == ("13.0", "12.9")
    assert importlib.import_module("vlmsearch.tensorrt.engine.runtime").this_machine(0).gpu == "NVIDIA Pretend"
