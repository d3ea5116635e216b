import dataclasses

import pytest

from vlmsearch import Document, Field, InvalidInputError, Space
from vlmsearch.types import check_id, check_metadata


@pytest.mark.parametrize("text", ["clip/image", "minilm/text", "my/space/text"])
def test_a_field_reads_what_it_writes(text: str) -> None:
    assert str(Field.parse(text)) == text


@pytest.mark.parametrize("text", ["", "clip", "clip/", "/image", "clip/audio"])
def test_a_field_refuses_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="not a field"):
        Field.parse(text)


def test_fields_of_a_space_have_the_image_first() -> None:
    space = Space("clip", 512, frozenset(("text", "image")))
    assert [str(field) for field in space.fields] == ["clip/image", "clip/text"]


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Document("a").id = "b"  # type: ignore[misc]


@pytest.mark.parametrize("id", ["a", "é" * 512, "a b/c#d", "写真.jpg", "👨‍👩‍👧", "9\u202fAM.png"])
def test_ids_that_every_store_can_keep(id: str) -> None:
    check_id(id)


@pytest.mark.parametrize("id", ["", "a\nb", "a\x00", "x" * 1025, "é" * 513, "\ud800", 7, None])
def test_ids_that_are_refused(id: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_id(id)  # type: ignore[arg-type]
    assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    "metadata",
    [{"": 1}, {"$where": 1}, {"a\x00": 1}, {"k" * 129: 1}, {"a": None}, {"a": [1]}, {"a": float("nan")},
     {"a": float("inf")}, {"a": 2**63}, {1: "a"}],
)  # fmt: skip
def test_metadata_that_is_refused(metadata: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_metadata(metadata)
    assert caught.value.code == "invalid"


def test_metadata_that_is_kept() -> None:
    check_metadata({"a": "", "b": True, "c": -(2**63) + 1, "d": 0.5, "a.b": "c", "größe": 1})


def test_metadata_are_limited() -> None:
    check_metadata({f"k{i}": i for i in range(1000)})
    check_metadata({"k": "é" * (2**19 - 1)})
    for metadata in ({f"k{i}": i for i in range(1001)}, {"k": "é" * 2**19}, {"k": "\ud800" * 400_000}):
        with pytest.raises(InvalidInputError) as caught:
            check_metadata(metadata)
        assert caught.value.code == "too_large"
