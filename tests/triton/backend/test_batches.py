"""How requests to Triton are formed."""

from vlmsearch.triton.client.batches import batches, split_location


def test_requests_are_bounded_in_items_and_bytes() -> None:
    assert list(batches([4, 5, 6], [1, 1, 1], 2)) == [[4, 5], [6]]
    assert list(batches([1, 2, 3], [9 * 2**20] * 3, 8)) == [[1], [2], [3]]
    assert list(batches([], [], 8)) == []


def test_locations() -> None:
    assert split_location("//[::1]:8001/vlm") == ("[::1]:8001", "vlm")
