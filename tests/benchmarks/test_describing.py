"""Descriptions and what they add to a search, in small."""

import pytest
from click.testing import CliRunner

from benchmarks.describing import measure
from benchmarks.describing_large import main


def test_the_same_queries_are_searched_before_and_after_descriptions() -> None:
    before, after, report = measure("mock:?pictures=1", "onnx:demo", 10, 5)
    assert report.described > 10
    assert report.rejects == ()
    assert 0.2 < before[0] <= 1
    assert 0 < after[0] <= 1


@pytest.mark.slow
def test_a_large_model_is_timed() -> None:
    done = CliRunner().invoke(main, ["--device", "cpu", "--layers", "2", "--width", "128", "--pictures", "2"])
    assert done.exit_code == 0, done.output
    assert "pictures/s" in done.output
