"""Descriptions and what they add to a search, in small."""

from benchmarks.describing import measure


def test_the_same_queries_are_searched_before_and_after_descriptions() -> None:
    before, after, report = measure("mock:?pictures=1", "onnx:demo", 10, 5)
    assert report.described > 10
    assert report.rejects == ()
    assert 0.2 < before[0] <= 1
    assert 0 < after[0] <= 1
