"""What a user may ask for, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from vlmsearch import ConfigError, InvalidInputError, Query
from vlmsearch.search.options import SearchOptions
from vlmsearch.search.query import make_query, split_text


@pytest.mark.parametrize(
    ("text", "kept", "excluded"),
    [
        ("a beach -people", "a beach", ["people"]),
        ('-people a beach -"sun shades"', "a beach", ["people", '"sun shades"']),
        ("ein Strand -Übung -人", "ein Strand", ["Übung", "人"]),
        ("AB-4711 at -5 degrees, well-known", "AB-4711 at -5 degrees, well-known", []),
        ("a list\n- of - points -- and --options", "a list\n- of - points -- and --options", []),
        ('years -"2019"', "years", ['"2019"']),
        ('an open -"quote', 'an open -"quote', []),
        ('nothing in -"" or -"  "', 'nothing in -"" or -"  "', []),
    ],
)
def test_a_minus_before_a_word_excludes_it(text: str, kept: str, excluded: list[str]) -> None:
    assert split_text(text) == (kept, excluded)


@given(st.text())
def test_a_text_that_excludes_nothing_stays_as_it_is(text: str) -> None:
    kept, excluded = split_text(text)
    assert excluded or kept == text
    assert all(re.search(rf'-"?{re.escape(each)}', text) for each in excluded)


def test_what_is_left_out_is_a_text_an_image_or_ids() -> None:
    query = make_query("a beach -people", without="dogs")
    assert (query.text, [each.text for each in query.without]) == ("a beach", ["people", "dogs"])
    [ids] = make_query("a beach", without=["a", "b"]).without
    assert (ids.text, ids.like) == (None, ("a", "b"))
    for image in (Path("a.png"), b"bytes"):
        [part] = make_query("a beach", without=image).without
        assert (part.text, part.image, part.like) == (None, image, ())
    assert make_query(None, like="one").like == ("one",)


def test_a_query_takes_its_text_as_it_is() -> None:
    assert Query("ls -la").text == "ls -la"
    assert Query("ls -la").without == ()
    assert Query("half \ud83d").text == "half \N{REPLACEMENT CHARACTER}"
    assert Query("  ", like=["a"]).text is None


@pytest.mark.parametrize("make", [lambda: make_query("-people"), Query, lambda: Query(" "), lambda: make_query(None)])
def test_a_query_asks_for_something(make: Any) -> None:
    with pytest.raises(InvalidInputError, match="needs a text, an image or both, or documents for `like`") as caught:
        make()
    assert caught.value.code == "empty"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": 5}, "the `text` of a query is a string, not int; a picture goes into image="),
        ({"like": "id"}, "`like` is a list of ids, not 'id'"),
        ({"like": [5]}, "`like` is a string or a list of ids, not a list with 5"),
        ({"text": "a", "without": "people"}, "the `without` of a Query is a list of queries, not 'people'"),
        ({"text": "a", "without": Query("people")}, "the `without` of a Query is a list of queries"),
    ],
)
def test_wrong_types_are_type_errors(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Query(**arguments)


def test_what_is_left_out_leaves_nothing_out_itself() -> None:
    with pytest.raises(ConfigError, match="no `without` of its own"):
        Query("a", without=[Query("b", without=[Query("c")])])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "`limit` is from 1 to 10,000, not 0"),
        ({"limit": 10_001}, "`limit` is from 1 to 10,000, not 10001"),
        ({"limit": True}, "`limit` is from 1 to 10,000, not True"),
        ({"limit": 1, "offset": 10_000}, "`offset` is from 0 to 9,999, not 10000"),
        ({"limit": 10, "offset": 9_991}, "with a `limit` of 10, `offset` is from 0 to 9,990, not 9,991"),
        ({"offset": -1}, "`offset` is from 0 to 9,999, not -1"),
        ({"offset": 1, "cursor": "x"}, "a page begins at `offset` or at `cursor`: give one of them"),
        ({"min_score": 1.5}, "`min_score` is from 0 to 1, not 1.5"),
        ({"min_score": float("nan")}, "`min_score` is from 0 to 1, not nan"),
        ({"diversity": -0.1}, "`diversity` is from 0 to 1, not -0.1"),
        ({"diversity": "much"}, "`diversity` is from 0 to 1, not 'much'"),
        ({"sort": ""}, "`sort`: '' is no key of metadata"),
        ({"sort": "-"}, "`sort`: '' is no key of metadata"),
        ({"sort": "year", "diversity": 0.5}, "sorted by a key or chosen for `diversity`, not both"),
        ({"facets": "year"}, r"`facets` is a list of strings, such as \['year'\]"),
        ({"facets": ["year"] * 101}, "`facets` has at most 100 items, not 101"),
        ({"where": {"year": {"$near": 1}}}, "no such operator"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SearchOptions(**options)
