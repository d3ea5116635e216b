"""What becomes of the GPU's memory where a call fails: nothing leaks, and nothing that was given back is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.codec_standin import pretend_gpu
from tests.support.odd_images import picture
from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.gpu import STATE, PretendGpu
from tests.support.tensorrt_standin.models import SIZE, image_tower
from tests.support.tensorrt_standin.plans import image_ranges, make_plan
from tests.support.tensorrt_standin.versions import VERSIONS
from vlmsearch.errors import BackendError
from vlmsearch.media.preprocess import Preprocess


@pytest.fixture(params=VERSIONS)
def gpu(request: pytest.FixtureRequest) -> Iterator[PretendGpu]:
    with standing_in(request.param) as state:
        yield state


def test_a_buffer_that_cannot_be_zeroed_is_given_back(gpu: PretendGpu, monkeypatch: Any) -> None:
    cuda = importlib.import_module("vlmsearch.tensorrt.engine.cuda")
    failed = cuda.runtime.cudaError_t.cudaErrorStreamCaptureImplicit
    monkeypatch.setattr(cuda.runtime, "cudaStreamSynchronize", lambda stream: (failed,))
    with pytest.raises(BackendError, match="CaptureImplicit"):
        cuda.DeviceBuffer(1_000_000)
    assert gpu.used == 0


def test_a_buffer_that_was_given_back_holds_nothing(gpu: PretendGpu) -> None:
    buffer = importlib.import_module("vlmsearch.tensorrt.engine.cuda").DeviceBuffer(1_000)
    buffer.close()
    buffer.close()
    assert (buffer.size, buffer.pointer, gpu.used) == (0, 0, 0)


def test_memory_is_for_every_profile_that_a_batch_can_use(gpu: PretendGpu) -> None:
    profiles = [image_ranges(SIZE, *rows) for rows in ((1, 1, 1), (32, 32, 32), (256, 256, 256), (1, 32, 256))]
    plan = make_plan(importlib.import_module("tensorrt"), image_tower(), profiles)
    with importlib.import_module("vlmsearch.tensorrt.engine.engine").Engine(plan, contexts=1) as engine:
        steps = engine._steps
        for rows in (1, 2, 31, 32, 100, 256):
            sizes = [size for size in (1, 2, 8, 31, 32, 33, 200, 256) if size <= rows]
            used = {steps.find(size, {"pixels": (size, SIZE, SIZE, 3)}, max_rows=rows).profile for size in sizes}
            assert used <= steps.profiles_for(rows)
        assert steps.profiles_for(1) == {0}


def test_what_tensorrt_said_before_is_no_reason_for_what_fails_now(gpu: PretendGpu) -> None:
    trt, module = (importlib.import_module(name) for name in ("tensorrt", "vlmsearch.tensorrt.engine.runtime"))
    module.log().log(trt.ILogger.ERROR, "Error Code 2: OutOfMemory (a tactic that was skipped)")
    with pytest.raises(BackendError) as told:
        module.Program(b"damaged")
    assert type(told.value) is BackendError
    assert "OutOfMemory" not in str(told.value)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def test_after_a_batch_found_no_memory_a_small_one_gets_memory_of_its_own(
    pool: ThreadPoolExecutor, monkeypatch: Any
) -> None:
    with pretend_gpu():
        from vlmsearch.tensorrt.engine import resizing
        from vlmsearch.tensorrt.engine.cuda import OutOfMemoryError
        from vlmsearch.tensorrt.engine.images import GpuImages

        def full(size: int) -> None:
            raise OutOfMemoryError("none left")

        images = GpuImages(Preprocess(64), pool=pool, batch=8)
        expected, _ = images.read([picture(100, 75)] * 2)
        with monkeypatch.context() as patch:
            patch.setattr(resizing, "DeviceBuffer", full)
            with pytest.raises(OutOfMemoryError):
                images.read([picture(100, 75)] * 8)
        found, refused = images.read([picture(100, 75)] * 2)
        assert not refused
        assert (found == expected).all()
        images.close()
        assert STATE.used == 0


def test_closing_goes_on_past_a_gpu_that_is_broken(pool: ThreadPoolExecutor, monkeypatch: Any) -> None:
    with pretend_gpu():
        kernels: Any = importlib.import_module("vlmsearch.tensorrt.engine.resizing")
        from vlmsearch.tensorrt.engine.images import GpuImages

        images = GpuImages(Preprocess(64), pool=pool, batch=2)
        list(images.batches([picture(100, 75)] * 6, {}))
        unload = kernels.driver.cuModuleUnload

        def broken(module: Any) -> tuple[Any]:
            unload(module)
            return (kernels.driver.CUresult.CUDA_ERROR_INVALID_IMAGE,)

        monkeypatch.setattr(kernels.driver, "cuModuleUnload", broken)
        images.close()
        assert STATE.used == 0
