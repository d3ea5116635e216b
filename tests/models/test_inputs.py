"""How long texts are split, and their chunks pooled, on every runtime."""

import numpy as np
import pytest

from vlmsearch.models.bundle import TextInput
from vlmsearch.models.inputs import BatchLimits, chunk_lengths, pad_texts, pool_chunks, split_batches


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


def batches(lengths: list[int], limits: BatchLimits) -> list[list[int]]:
    return [lengths[place] for place in split_batches(lengths, limits)]


def test_batches_hold_so_many_texts_and_so_many_tokens_with_their_padding() -> None:
    assert batches([], BatchLimits(2)) == []
    assert batches([1, 2, 3, 4, 5], BatchLimits(2)) == [[1, 2], [3, 4], [5]]
    assert batches([2, 3, 3, 4, 9, 30], BatchLimits(32, tokens=12)) == [[2, 3, 3], [4], [9], [30]]


def test_texts_are_dealt_out_among_the_cores_unless_there_are_too_few() -> None:
    assert batches([5] * 8, BatchLimits(32, tokens=256, cores=4)) == [[5, 5]] * 4
    assert batches([5] * 3, BatchLimits(32, tokens=256, cores=4)) == [[5] * 3]


def test_long_texts_are_together_with_those_of_their_length_alone() -> None:
    limits = BatchLimits(32, tokens=1000, unpadded=8)
    assert batches([6, 7, 7, 8, 8, 9, 11, 11], limits) == [[6, 7, 7], [8, 8], [9], [11, 11]]


@pytest.mark.parametrize(("length", "expected"), [(1, 8), (8, 8), (9, 16), (64, 64), (65, 80), (70, 80), (77, 80)])
def test_lengths_are_rounded_up_to_few(length: int, expected: int) -> None:
    ids = np.full((3, length), 9, np.int32)
    longer, seen = pad_texts(ids, np.ones_like(ids), TextInput(77, (0,), (1,), pad=2))
    assert longer.shape == seen.shape == (3, expected)
    assert (longer[:, :length] == 9).all()
    assert (longer[:, length:] == 2).all()
    assert (seen.sum(axis=1) == length).all()
