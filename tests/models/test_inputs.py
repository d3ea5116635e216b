"""How texts are cut and put into batches, on every runtime."""

import numpy as np
import pytest

from vlmsearch.models.bundle import TextInput, TextPrompt
from vlmsearch.models.inputs import BatchLimits, pad_texts, split_batches, tower_ids
from vlmsearch.types import Role


@pytest.mark.parametrize("role", ["query", "document"])
def test_a_text_is_cut_to_what_fits_beside_its_prompt(role: Role) -> None:
    prompt = TextPrompt("query: ", (7, 8))
    form = TextInput(9, (0,), (1,), pad=2, query=prompt)
    ids = list(range(10, 30))
    given = [*prompt.ids, *ids] if role == "query" else ids
    assert tower_ids(given, form, role) == [0, *given[:7], 1]
    assert tower_ids(given[:3], form, role) == [0, *given[:3], 1]


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
