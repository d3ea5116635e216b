"""Filters and metadata, generated."""

from __future__ import annotations

from hypothesis import strategies as st

from vlmsearch import Field, Space

FIELD = Field("clip", "image")


SPACE = Space("clip", 4, frozenset({"image"}))


KEYS = ["a", "b", "c.d"]


numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -0.0, 0.1, 0.1 + 2**-56, 1 / 3, 5e-324, 1.7e308, 2**53, 2**53 + 1, 2**63 - 1, -(2**62)]),
    st.floats(allow_nan=False, allow_infinity=False),
)


strings = st.sampled_from(["", "1", "true", "x", "É", "\U0001f436", "a'b\"", "\0"])


scalars = st.one_of(numbers, st.booleans(), strings)


lists = st.lists(strings, min_size=1, max_size=3, unique=True).map(tuple)


metadata = st.dictionaries(st.sampled_from(KEYS), st.one_of(scalars, lists), max_size=3)


comparisons = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne"]), scalars),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), numbers),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(scalars, min_size=1, max_size=4)),
).map(lambda pair: {pair[0]: pair[1]})


conditions: st.SearchStrategy[dict[str, object]] = st.recursive(
    st.dictionaries(st.sampled_from(KEYS), st.one_of(scalars, comparisons), min_size=1, max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=1
    ),
    max_leaves=5,
)
