"""Several plans in one file: what goes in comes out, and nothing stays where one of them cannot be loaded."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.gpu import PretendGpu
from tests.support.tensorrt_standin.models import SIZE, image_tower
from tests.support.tensorrt_standin.plans import image_ranges, make_plan
from vlmsearch.errors import BackendError
from vlmsearch.tensorrt.engine.plans import join_plans, split_plans


@pytest.fixture
def gpu() -> Iterator[PretendGpu]:
    with standing_in("8.6") as state:
        yield state


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4))
def test_plans_come_out_as_they_went_in(plans: list[bytes]) -> None:
    assert split_plans(join_plans(plans)) == plans


def test_one_plan_stays_as_it_is() -> None:
    assert join_plans([b"ftrt plan"]) == b"ftrt plan"


def test_memory_is_free_again_where_the_last_of_them_cannot_be_loaded(gpu: PretendGpu) -> None:
    trt, module = (importlib.import_module(name) for name in ("tensorrt", "vlmsearch.tensorrt.engine.runtime"))
    first = make_plan(trt, image_tower(), [image_ranges(SIZE, 1, 1, 1)])
    with pytest.raises(BackendError, match="cannot load the plan"):
        module.Program(join_plans([first, b"damaged"]))
    gc.collect()
    assert gpu.used == 0


def test_a_batch_runs_in_the_plan_that_has_its_profile(gpu: PretendGpu) -> None:
    trt, engines = (importlib.import_module(name) for name in ("tensorrt", "vlmsearch.tensorrt.engine.engine"))
    model = image_tower()
    parts = [[image_ranges(SIZE, 1, 1, 1), image_ranges(SIZE, 8, 8, 8)], [image_ranges(SIZE, 1, 4, 8)]]
    one = make_plan(trt, model, [profile for part in parts for profile in part])
    several = join_plans([make_plan(trt, model, part) for part in parts])
    pixels = np.random.default_rng(0).integers(0, 256, (20, SIZE, SIZE, 3), np.uint8)
    with engines.Engine(one) as whole, engines.Engine(several) as apart:
        assert apart.max_batch == whole.max_batch == 8
        for rows in (1, 3, 8, 20):
            assert np.array_equal(apart.run({"pixels": pixels[:rows]}), whole.run({"pixels": pixels[:rows]}))
        assert apart.graphs == whole.graphs
    assert gpu.used == 0
