"""JSON from outside is read as the standard says, or refused with a ValueError."""

import json

import pytest

from vlmsearch._util.strict_json import MAX_DEPTH, parse_json


@pytest.mark.parametrize("value", [None, 1, -1.5, "a", [], {}, {"a": [1, {"b": None}]}, ["[" * 99]])
def test_json_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[1,{"a":', "}]")])
def test_what_is_nested_too_deeply_is_refused_at_any_depth(opening: str, closing: str) -> None:
    assert parse_json(opening * 30 + "1" + closing * 30)
    for depth in (MAX_DEPTH + 1, 500, 950, 60_000):
        with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
            parse_json(opening * depth + "1" + closing * depth)


@pytest.mark.parametrize("text", ["", "{", "[1] 2", "NaN", '{"a": Infinity}', "-Infinity", "'a'", "9" * 5000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        parse_json(text)
