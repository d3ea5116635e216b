"""How a batch is encoded: good items once, whatever is wrong with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import BackendError, Document, Field, InvalidBatchError, InvalidInputError, Pipeline
from vlmsearch.index import add_reported
from vlmsearch.types import ImageSource, Role, Vectors


class Fussy(MockEncoder):
    """Refuses texts with "bad" in them and images of one pixel; with ``computes``, after it encoded the others."""

    def __init__(self, *, computes: bool = False) -> None:
        super().__init__()
        self._computes = computes
        self.given: list[Sequence[Any]] = []

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self._refuse(texts, [i for i, text in enumerate(texts) if "bad" in text], super().encode_texts)
        return super().encode_texts(texts, role=role)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        sizes = [getattr(image, "size", None) for image in images]
        self._refuse(images, [i for i, size in enumerate(sizes) if size == (1, 1)], super().encode_images)
        return super().encode_images(images)

    def _refuse(self, items: Sequence[Any], bad: list[int], encode: Any) -> None:
        self.given.append(items)
        if bad:
            good = encode([item for i, item in enumerate(items) if i not in bad]) if self._computes else None
            raise InvalidBatchError({i: InvalidInputError("unsupported", f"it is number {i}") for i in bad}, good)


def documents() -> list[Document]:
    """Twelve: every third has a bad text, every fourth a bad image."""
    shades = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    pictures = [PIL.Image.fromarray(shade).resize((1, 1) if i % 4 == 3 else (8, 8)) for i, shade in enumerate(shades)]
    texts = [f"bad {i}" if i % 3 == 2 else f"star {i}" for i in range(12)]
    return [Document(f"{i:02}", text, image) for i, (text, image) in enumerate(zip(texts, pictures))]


GOOD = [i for i in range(12) if i % 3 != 2 and i % 4 != 3]


@pytest.mark.parametrize("computes", [False, True])
def test_one_call_tells_what_is_bad_and_good_items_get_their_own_vectors(computes: bool) -> None:
    encoder, plain = Fussy(computes=computes), MockEncoder()
    given = documents()
    with Pipeline(encoder, MemoryStore()) as pipeline:
        report = pipeline.add(given)
        assert report.added == len(GOOD)
        assert {reject.id for reject in report.rejects} == {f"{i:02}" for i in range(12) if i not in GOOD}
        again = 0 if computes else 1
        assert [len(items) for items in encoder.given] == [12, *[9] * again, 9, *[6] * again]
        for i in GOOD:
            document = given[i]
            assert document.text is not None
            assert isinstance(document.image, PIL.Image.Image)
            for field, vectors in (
                (Field("clip", "image"), plain.encode_images([document.image])["clip"]),
                (Field("clip", "text"), plain.encode_texts([document.text])["clip"]),
                (Field("minilm", "text"), plain.encode_texts([document.text])["minilm"]),
            ):
                (hit,) = pipeline.store.search(field, vectors, limit=1)[0]
                assert hit.id == document.id
                assert hit.score == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("computes", [False, True])
def test_a_batch_may_be_bad_as_a_whole(computes: bool) -> None:
    encoder = Fussy(computes=computes)
    with Pipeline(encoder, MemoryStore()) as pipeline:
        report = add_reported(pipeline, [Document("a", "bad"), Document("b", "bad too")])
    assert (report.added, [reject.code for reject in report.rejects]) == (0, ["unsupported"] * 2)
    assert len(encoder.given) == 1


def test_an_encoder_that_names_no_item_ends_the_run() -> None:
    class Vague(MockEncoder):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            raise InvalidInputError("invalid", "something is wrong")

    with (
        Pipeline(Vague(), MemoryStore()) as pipeline,
        pytest.raises(BackendError, match="did not name all of its bad items: something is wrong"),
    ):
        pipeline.add(Document("a", "a star"))


def test_an_error_of_many_items_names_the_first_few() -> None:
    error = InvalidBatchError({i: InvalidInputError("empty", f"no {i}") for i in (9, 2, 5, 7)})
    assert str(error) == "4 items cannot be used: item 2: no 2; item 5: no 5; item 7: no 7; and 1 more"
    assert (list(error.items), error.code, error.vectors) == ([2, 5, 7, 9], "empty", None)
    assert str(InvalidBatchError({3: InvalidInputError("empty", "no text")})) == "no text"
