"""Descriptions and what they add to a search, in small."""

from benchmarks.describing import measure


def test_the_same_queries_are_searched_before_and_after_descriptions() -> None:
    before, after, report = measure("mock:?pictures=1", "onnx:demo", 30, 20)
    assert (report.described, report.rejects) == (30, ())
    assert 0.2 < before <= 1
    assert 0 < after <= 1
