"""What every encoder has to do, as tests."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from vlmsearch.encoders.base import Encoder, MeasuresTexts, PreparesImages, compared_spaces
from vlmsearch.errors import InvalidBatchError, InvalidInputError, TextTruncatedWarning
from vlmsearch.types import Role, Vectors
from vlmsearch_mocks.contracts.records import once_a_class

TEXTS = ["a red star above the sea", "two dogs", "ένα σπίτι", "\U0001f436", "a", "x" * 300, "line\na\ttab", "\u202eabc"]


def pictures(count: int = 4) -> list[PIL.Image.Image]:
    """Images of several sizes that differ."""
    rng = np.random.default_rng(7)
    shapes = [(40 + 13 * i, 60 - 7 * i, 3) for i in range(count)]
    coarse = [rng.integers(0, 256, (5, 5, 3), dtype=np.uint8) for _ in range(count)]
    return [PIL.Image.fromarray(c).resize(shape[:2], PIL.Image.Resampling.BICUBIC) for c, shape in zip(coarse, shapes)]


class EncoderContract(ABC):
    """A suite in which every sentence of `Encoder` is a test.

    Subclass it as ``Test...`` and say how an encoder is made.

    ``parity`` is the least cosine of two vectors of one input, which differ where arithmetic depends on the batch.
    """

    parity = 0.999

    @abstractmethod
    def make_encoder(self) -> Encoder:
        """Return an encoder, always the same one."""

    @pytest.fixture
    def encoder(self, request: pytest.FixtureRequest) -> Encoder:
        """Return one encoder for all tests of the class."""
        return once_a_class(request, self.make_encoder)

    def same(self, expected: dict[str, Vectors], given: dict[str, Vectors]) -> None:
        """Check that two answers are equal, as far as ``parity`` asks."""
        assert expected.keys() == given.keys()
        for name, rows in expected.items():
            assert rows.shape == given[name].shape
            assert (np.sum(rows * given[name], axis=1) >= self.parity).all()

    def check_arrays(self, encoder: Encoder, answer: dict[str, Vectors], modality: str, count: int) -> None:
        """Check spaces, shapes and types of an answer."""
        spaces = {space.name: space for space in encoder.spaces if modality in space.modalities}
        assert answer.keys() == spaces.keys()
        for name, rows in answer.items():
            assert rows.shape == (count, spaces[name].dim)
            assert rows.dtype == np.float32

    def check(self, encoder: Encoder, answer: dict[str, Vectors], modality: str, count: int) -> None:
        """Check spaces, shapes, types and lengths of an answer."""
        self.check_arrays(encoder, answer, modality, count)
        for rows in answer.values():
            assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(count), abs=1e-3)

    def test_it_says_what_it_is(self, encoder: Encoder) -> None:
        assert encoder.fingerprint
        assert encoder.spaces
        assert len({space.name for space in encoder.spaces}) == len(encoder.spaces)
        assert all(space.dim > 0 and space.modalities <= {"text", "image"} for space in encoder.spaces)
        kinds = {(space.name, modality) for space in encoder.spaces for modality in space.modalities}
        assert encoder.relevance.keys() <= kinds

    def test_the_same_model_has_the_same_fingerprint(self, encoder: Encoder) -> None:
        with self.make_encoder() as again:
            assert (again.fingerprint, again.spaces) == (encoder.fingerprint, encoder.spaces)
            self.same(again.encode_texts(TEXTS[:2]), encoder.encode_texts(TEXTS[:2]))

    def test_what_is_given_is_not_changed(self, encoder: Encoder) -> None:
        texts, images = [*TEXTS[::-1], "0"], pictures()
        encoder.encode_texts(texts)
        encoder.encode_images(images)
        assert texts == [*TEXTS[::-1], "0"]
        assert [image.tobytes() for image in images] == [image.tobytes() for image in pictures()]

    def test_arrays_are_float32_with_a_row_for_each_input(self, encoder: Encoder) -> None:
        self.check_arrays(encoder, encoder.encode_texts(TEXTS), "text", len(TEXTS))
        self.check_arrays(encoder, encoder.encode_images(pictures()), "image", 4)

    def test_texts_give_unit_vectors_in_every_space_with_text(self, encoder: Encoder) -> None:
        self.check(encoder, encoder.encode_texts(TEXTS), "text", len(TEXTS))
        self.check(encoder, encoder.encode_texts(TEXTS, role="query"), "text", len(TEXTS))

    def test_images_give_unit_vectors_in_every_space_with_images(self, encoder: Encoder) -> None:
        self.check(encoder, encoder.encode_images(pictures()), "image", 4)

    def test_an_empty_batch_gives_no_rows(self, encoder: Encoder) -> None:
        self.check(encoder, encoder.encode_texts([]), "text", 0)
        self.check(encoder, encoder.encode_images([]), "image", 0)

    def test_a_vector_does_not_depend_on_the_batch_it_came_in(self, encoder: Encoder) -> None:
        together, images = encoder.encode_texts(TEXTS), encoder.encode_images(pictures())
        for i, text in enumerate(TEXTS):
            self.same(encoder.encode_texts([text]), {name: rows[i : i + 1] for name, rows in together.items()})
        for i, image in enumerate(pictures()):
            self.same(encoder.encode_images([image]), {name: rows[i : i + 1] for name, rows in images.items()})

    def test_different_inputs_have_different_vectors(self, encoder: Encoder) -> None:
        for answer in (encoder.encode_texts(TEXTS[:3]), encoder.encode_images(pictures())):
            for rows in answer.values():
                assert (rows @ rows.T - 2 * np.eye(len(rows)) < 0.9999).all()

    def test_a_path_bytes_and_an_image_are_the_same_input(self, encoder: Encoder, tmp_path: Path) -> None:
        path = tmp_path / "a picture.png"
        image = pictures()[1]
        image.save(path)
        expected = encoder.encode_images([image])
        self.same(encoder.encode_images([path]), expected)
        self.same(encoder.encode_images([path.read_bytes()]), expected)
        if isinstance(encoder, PreparesImages):
            self.same(encoder.encode_images([encoder.prepare_image(path)]), expected)

    @pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "I;16"])
    def test_an_image_may_have_any_mode(self, encoder: Encoder, mode: str) -> None:
        grey = mode in ("L", "1", "I;16")
        image = pictures()[0].convert("L").convert("I").convert(mode) if mode == "I;16" else pictures()[0].convert(mode)
        self.check(encoder, encoder.encode_images([image]), "image", 1)
        assert grey or image.mode == mode

    @pytest.mark.parametrize("bad", [b"", b"not an image", b"\x89PNG\r\n\x1a\n", Path("no such file.png")])
    def test_all_images_that_cannot_be_used_are_named_at_once(self, encoder: Encoder, bad: bytes | Path) -> None:
        if not any("image" in space.modalities for space in encoder.spaces):
            assert encoder.encode_images([bad]) == {}
            return
        good = pictures(6)
        for batch, places in (([good[0], bad, b"also bad", *good[1:], bad], [1, 2, 8]), ([bad], [0])):
            with pytest.raises(InvalidBatchError) as caught:
                encoder.encode_images(batch)
            assert list(caught.value.items) == places
            assert caught.value.code == caught.value.items[places[0]].code
            if caught.value.vectors is not None:
                self.same(dict(caught.value.vectors), encoder.encode_images(good[: len(batch) - len(places)]))
        if isinstance(encoder, PreparesImages):
            with pytest.raises(InvalidInputError):
                encoder.encode_images([encoder.prepare_image(bad)])

    def test_all_texts_that_are_not_valid_unicode_are_named_at_once(self, encoder: Encoder) -> None:
        if not any("text" in space.modalities for space in encoder.spaces):
            assert encoder.encode_texts(["\ud800"]) == {}
            return
        roles: tuple[Role, ...] = ("document", "query")
        for role in roles:
            with pytest.raises(InvalidBatchError) as caught:
                encoder.encode_texts(["a", "half \ud83d", "b", "\udc36"], role=role)
            assert {item: error.code for item, error in caught.value.items.items()} == {1: "invalid", 3: "invalid"}
            if caught.value.vectors is not None:
                self.same(dict(caught.value.vectors), encoder.encode_texts(["a", "b"], role=role))

    def test_a_long_document_is_cut_without_a_word(self, encoder: Encoder) -> None:
        start = "a red star " * 20_000
        with warnings.catch_warnings():
            warnings.simplefilter("error", TextTruncatedWarning)
            answer = encoder.encode_texts([start, start + "penguins and volcanoes " * 400])
        self.check(encoder, answer, "text", 2)
        self.same({name: rows[:1] for name, rows in answer.items()}, {name: rows[1:] for name, rows in answer.items()})

    def test_it_reads_as_many_tokens_as_it_says(self, encoder: Encoder) -> None:
        if not isinstance(encoder, MeasuresTexts):
            return
        assert encoder.text_tokens([]) == []
        with pytest.raises(InvalidBatchError):
            encoder.text_tokens(["a", "\ud83d"])
        names = [space.name for space in compared_spaces(encoder.spaces)]
        if not names:
            assert encoder.text_window == 0
            return
        single, double = encoder.text_tokens(["star", "star star"])
        times = encoder.text_window // (double - single)
        whole = "star " * times
        fits, longer = encoder.text_tokens([whole, f"{whole}star"])
        assert single < fits <= encoder.text_window < longer
        cut = encoder.encode_texts([f"{whole}{'dog ' * times}", f"{whole}{'house ' * times}"])
        read = encoder.encode_texts([whole, whole.replace("star", "dog", times // 2)])
        assert any(cut[name][0] @ cut[name][1] >= self.parity > read[name][0] @ read[name][1] for name in names)

    def test_a_long_query_is_cut_and_says_so(self, encoder: Encoder) -> None:
        if not any("text" in space.modalities for space in encoder.spaces):
            assert encoder.encode_texts(["a red star"], role="query") == {}
            return
        with pytest.warns(TextTruncatedWarning):
            answer = encoder.encode_texts(["a red star " * 20_000], role="query")
        self.check(encoder, answer, "text", 1)

    def test_it_can_be_used_from_several_threads(self, encoder: Encoder) -> None:
        texts, images = encoder.encode_texts(TEXTS), encoder.encode_images(pictures())
        with ThreadPoolExecutor(4) as pool:
            by_text = [pool.submit(encoder.encode_texts, TEXTS[i:]) for i in range(6)]
            by_image = [pool.submit(encoder.encode_images, pictures()[i % 4 :]) for i in range(6)]
            for i in range(6):
                self.same(by_text[i].result(), {name: rows[i:] for name, rows in texts.items()})
                self.same(by_image[i].result(), {name: rows[i % 4 :] for name, rows in images.items()})

    def test_it_can_be_closed_twice(self) -> None:
        encoder = self.make_encoder()
        encoder.close()
        encoder.close()
