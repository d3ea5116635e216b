"""How long texts are split, and their chunks pooled, on every runtime."""

import numpy as np
import pytest

from vlmsearch.models.inputs import chunk_lengths, pool_chunks


@pytest.mark.parametrize("room", [1, 7, 75])
def test_a_document_is_split_evenly_into_as_few_chunks_as_can_be_and_a_query_is_cut(room: int) -> None:
    for tokens in (1, room, room + 1, 3 * room, 3 * room + 2, 1000):
        lengths = chunk_lengths(tokens, room, "document")
        assert (sum(lengths), len(lengths)) == (tokens, -(-tokens // room))
        assert max(lengths) <= room
        assert max(lengths) - min(lengths) <= 1
        assert chunk_lengths(tokens, room, "query") == [min(tokens, room)]
    assert chunk_lengths(0, room, "document") == chunk_lengths(0, room, "query") == [0]


def test_chunks_are_weighted_by_their_tokens() -> None:
    rows = np.eye(3, dtype=np.float32)
    found = pool_chunks(rows, [0, 0, 2], [3, 4, 0], 3)
    assert np.allclose(found, np.array([[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1]]))
    assert pool_chunks(np.empty((0, 5), np.float32), [], [], 0).shape == (0, 5)


def test_the_bits_do_not_depend_on_the_batches_that_chunks_came_in() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 16)).astype(np.float32)
    texts, tokens = [0, 1, 0, 1, 0, 1, 0, 0, 2], [7, 5, 7, 5, 6, 4, 6, 5, 1]
    by_length = sorted(range(9), key=lambda i: tokens[i])
    again = pool_chunks(rows[by_length], [texts[i] for i in by_length], [tokens[i] for i in by_length], 3)
    np.testing.assert_array_equal(pool_chunks(rows, texts, tokens, 3), again)
