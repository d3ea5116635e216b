"""Whether two stores hold the same index."""

import numpy as np

from vlmsearch.stores.base import Store, reject_list_of


def assert_equal_stores(one: Store, two: Store, *, within: float = 0.0) -> None:
    """The same documents, stamps, vectors and reject lists; vectors may differ by ``within``."""
    ids = sorted(one.ids())
    assert ids == sorted(two.ids())
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        for a, b in zip(one.records(some), two.records(some), strict=True):
            assert (a.document, a.stamp, a.vectors.keys()) == (b.document, b.stamp, b.vectors.keys())
            for field, vector in a.vectors.items():
                np.testing.assert_allclose(vector, b.vectors[field], rtol=0, atol=within)
    assert reject_list_of(one).rejects() == reject_list_of(two).rejects()
