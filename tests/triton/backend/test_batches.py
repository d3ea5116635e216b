"""How requests to Triton are formed, and what becomes of the pieces of long texts."""

import numpy as np
import pytest

from vlmsearch.errors import InvalidInputError
from vlmsearch.triton.client.batches import Piece, batches, piece_lengths, pooled, split_location, utf8


@pytest.mark.parametrize("room", [1, 7, 75])
def test_texts_are_cut_as_in_process(room: int) -> None:
    for tokens in (1, room, room + 1, 3 * room, 3 * room + 2, 1000):
        parts = np.array_split(np.arange(tokens), -(-tokens // room))
        assert piece_lengths(tokens, room) == [len(part) for part in parts]


def test_pieces_are_weighted_by_their_length() -> None:
    rows = np.eye(3, dtype=np.float32)
    found = pooled([Piece(0, 3, rows[0]), Piece(0, 4, rows[1]), Piece(2, 5, rows[2])], 3, 3)
    assert np.allclose(found, np.array([[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1]]))
    assert pooled([], 0, 5).shape == (0, 5)


def test_requests_are_bounded_in_items_and_bytes() -> None:
    assert list(batches([4, 5, 6], [1, 1, 1], 2)) == [[4, 5], [6]]
    assert list(batches([1, 2, 3], [9 * 2**20] * 3, 8)) == [[1], [2], [3]]
    assert list(batches([], [], 8)) == []


def test_locations_and_texts() -> None:
    assert split_location("//[::1]:8001/vlm") == ("[::1]:8001", "vlm")
    assert (utf8(0, "é"), utf8(0, "")) == ("é".encode(), b" ")
    with pytest.raises(InvalidInputError, match="text 3 is not valid Unicode"):
        utf8(3, "\ud800")
