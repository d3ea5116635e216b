"""Answers about pictures, from the search to the citation, in small."""

from benchmarks.seeing import measure


def test_answers_are_counted_by_number_and_citation() -> None:
    figures = measure("onnx:demo-vlm", "onnx:demo", 12, 1)
    assert figures.right <= figures.found <= 1
    assert figures.right_of_found > 0.5
    assert figures.refused > 0.5
