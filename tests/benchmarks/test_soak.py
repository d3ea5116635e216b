"""A server at full load, whose memory is watched."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.soak import grown, main
from tests.support.triton_server import Running


def test_growth_is_that_of_the_settled_time() -> None:
    assert grown([0.0] * 4 + [100.0] * 8 + [105.0] * 8) == pytest.approx(0.05)


def test_a_soak_watches_memory(triton: Running) -> None:
    options = ["--seconds", "4", "--concurrency", "4", "--count", "16"]
    result = CliRunner().invoke(main, [triton.url, *options], catch_exceptions=False)
    requests, _, rest = result.stdout.partition(" requests, 0 errors, ")
    assert int(requests) > 0
    assert "memory since it settled: server" in rest
