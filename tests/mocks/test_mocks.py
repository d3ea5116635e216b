"""The mocks pass the suites, do what they are told, and are at hand in a user's own tests."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator
from vlmsearch_mocks.contracts import EncoderContract, GeneratorContract

from vlmsearch import ConfigError, Document, Pipeline
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import TextTruncatedWarning
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.registry import open_encoder, open_generator, open_store
from vlmsearch.types import ImageSource, Modality, Role, Vectors

pytest_plugins = ["pytester"]


def picture(seed: int) -> PIL.Image.Image:
    return PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8))


class TestMockEncoder(EncoderContract):
    def make_encoder(self) -> Encoder:
        return MockEncoder()


class TestPlantedMockEncoder(EncoderContract):
    def make_encoder(self) -> Encoder:
        return MockEncoder(neighbours={"two dogs": [picture(1), "a"], "a cat": [picture(2), picture(1)]})


class OneModality(MockEncoder):
    """Knows texts or images alone."""

    def __init__(self, modality: Modality) -> None:
        super().__init__()
        taken = (replace(space, modalities=space.modalities & {modality}) for space in self.spaces)
        self.spaces = tuple(space for space in taken if space.modalities)
        self._modality = modality
        if modality == "image":
            self.text_window = 0
        kinds = {(space.name, kind) for space in self.spaces for kind in space.modalities}
        self.relevance = {kind: fit for kind, fit in self.relevance.items() if kind in kinds}

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        return super().encode_texts(texts, role=role) if self._modality == "text" else {}

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        return super().encode_images(images) if self._modality == "image" else {}


class TestEncoderOfImagesAlone(EncoderContract):
    def make_encoder(self) -> Encoder:
        return OneModality("image")


class TestEncoderOfTextsAlone(EncoderContract):
    def make_encoder(self) -> Encoder:
        return OneModality("text")


class TestMockGenerator(GeneratorContract):
    def make_generator(self) -> Generator:
        return MockGenerator("It shows a red star [1], and nothing else.")


class TestMockGeneratorWithAFunction(GeneratorContract):
    def make_generator(self) -> Generator:
        return MockGenerator(lambda prompt: f"You said: {prompt}")


class TestExtractiveGenerator(GeneratorContract):
    def make_generator(self) -> Generator:
        return ExtractiveGenerator()


# ---- the encoder


def test_planted_neighbours_come_first_and_in_their_order(tmp_path: Path) -> None:
    images = [picture(seed) for seed in range(6)]
    images[3].save(tmp_path / "three.png")
    neighbours: dict[str, list[str | ImageSource]] = {
        "a dog": [tmp_path / "three.png", images[1], "a hound", images[5]],
        "a cat": [images[5], "a hound", images[0]],
    }
    encoder = MockEncoder(neighbours=neighbours)
    texts = encoder.encode_texts(["a dog", "a cat", "a hound", "A dog!", "a dog and a cat"])["clip"]
    items = np.concatenate([encoder.encode_images(images)["clip"], texts[2:]])
    by_dog, by_cat = items @ texts[0], items @ texts[1]
    assert [int(i) for i in np.argsort(-by_dog)[:4]] == [3, 1, 6, 5]
    assert [int(i) for i in np.argsort(-by_cat)[:3]] == [5, 6, 0]
    assert by_dog[5] > 0.3
    assert by_dog[[0, 2, 4, 7, 8]] == pytest.approx(0.0)


def test_an_item_can_be_the_neighbour_of_three_texts() -> None:
    texts = [f"text number {i}" for i in range(12)]
    images = [picture(i) for i in range(12)]
    neighbours = {text: [images[(i + j) % 12] for j in (0, 4, 8)] for i, text in enumerate(texts)}
    encoder = MockEncoder(neighbours=neighbours)
    rows = encoder.encode_texts(texts)["clip"]
    items = np.concatenate(
        [encoder.encode_images(images)["clip"], encoder.encode_texts([t.upper() for t in texts])["clip"]]
    )
    for i, row in enumerate(rows):
        assert [int(j) for j in np.argsort(-(items @ row))[:3]] == [i, (i + 4) % 12, (i + 8) % 12]


@pytest.mark.parametrize(
    ("neighbours", "message"),
    [
        ({"a": ["x", "x"]}, "neighbours of 'a' must be distinct"),
        ({"a": ["b"], "b": ["c"]}, "no neighbours of their own"),
        ({key: ["x"] for key in "abcd"}, "of 3 texts, not of 4"),
    ],
)
def test_neighbours_that_cannot_be_kept_are_refused(neighbours: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MockEncoder(neighbours=neighbours)


def test_texts_are_near_by_the_words_they_share() -> None:
    rows = MockEncoder().encode_texts(["a red star over the sea", "A red star, over a lake", "two dogs", "a red star"])
    for vectors in rows.values():
        cosines = vectors @ vectors.T
        assert cosines[0, 1] > cosines[0, 3] > cosines[0, 2] + 0.3


def test_images_are_near_by_their_colours() -> None:
    colours = [(250, 10, 10), (235, 30, 20), (10, 10, 250)]
    images = [PIL.Image.new("RGB", (20, 20), colour) for colour in colours]
    vectors = MockEncoder().encode_images(images)["clip"]
    assert vectors[0] @ vectors[1] > 0.95 > 0.5 > vectors[0] @ vectors[2]


def test_other_neighbours_are_another_encoder() -> None:
    prints = {MockEncoder(neighbours=plan).fingerprint for plan in (None, {"a": ["b"]}, {"a": ["c"]}, {"b": ["a"]})}
    assert len(prints) == 4
    assert MockEncoder(neighbours={"a": ["b"]}).fingerprint in prints


def test_neighbours_planted_in_another_order_are_the_same_encoder() -> None:
    one = MockEncoder(neighbours={"a dog": ["puppy", "hound"], "a cat": ["kitten"]})
    other = MockEncoder(neighbours={"a cat": ["kitten"], "a dog": ["puppy", "hound"]})
    assert one.fingerprint == other.fingerprint
    texts = ["a dog", "a cat", "puppy", "hound", "kitten", "a bird"]
    assert np.array_equal(one.encode_texts(texts)["clip"], other.encode_texts(texts)["clip"])


def test_a_cut_text_is_the_text_of_what_was_read() -> None:
    words = [f"w{i}" for i in range(500)]
    encoder = MockEncoder()
    with pytest.warns(TextTruncatedWarning, match="200 of 500 words"):
        cut = encoder.encode_texts([" ".join(words)], role="query")
    expected = encoder.encode_texts([" ".join(words[:200])])["minilm"]
    np.testing.assert_array_equal(cut["minilm"], expected)
    np.testing.assert_array_equal(encoder.encode_texts([" ".join(words)])["minilm"], expected)
    assert encoder.text_tokens([" ".join(words), "", "A dog."]) == [500, 0, 2]


def test_ranking_through_a_pipeline_follows_the_plan() -> None:
    images = [picture(seed) for seed in range(20)]
    encoder = MockEncoder(neighbours={"a dog in the snow": [images[i] for i in (7, 3, 11)]})
    with Pipeline(encoder, MemoryStore()) as pipeline:
        pipeline.add(Document(f"photo-{i}", image=image) for i, image in enumerate(images))
        found = pipeline.search("a dog in the snow", limit=3)
        assert [match.document.id for match in found] == ["photo-7", "photo-3", "photo-11"]
        assert pipeline.search(image=images[5], limit=1)[0].fields["clip/image"].score > 0.9999


# ---- the generator


def test_replies_come_in_order_and_the_last_stays() -> None:
    generator = MockGenerator(["one", "two words", "three"])
    assert [generator.generate(f"prompt {i}") for i in range(5)] == ["one", "two words", "three", "three", "three"]
    assert generator.prompts == [f"prompt {i}" for i in range(5)]


def test_a_token_is_a_word_with_the_space_before_it() -> None:
    generator = MockGenerator("one  two\nthree four ")
    assert list(generator.stream("p")) == ["one", "  two", "\nthree", " four", " "]
    assert generator.count_tokens("one  two\nthree") == 3
    assert generator.generate("p", GenerationOptions(max_tokens=2)) == "one  two"
    assert [options.max_tokens for options in generator.options] == [256, 2]


def test_it_says_how_much_of_a_reply_was_read() -> None:
    generator = MockGenerator("one two three")
    stream = generator.stream("p")
    assert generator.pieces == [0]
    assert (next(stream), next(stream)) == ("one", " two")
    assert generator.pieces == [2]


def test_stop_and_bad_words_hold_for_replies() -> None:
    generator = MockGenerator("one two three four")
    assert generator.generate("p", GenerationOptions(stop=("ree",))) == "one two th"
    assert generator.generate("p", GenerationOptions(bad_words=("two",))) == "one three four"


def test_a_function_sees_the_prompt() -> None:
    assert MockGenerator(lambda prompt: prompt.upper()).generate("abc") == "ABC"


# ---- by URL and as fixtures


def test_the_mocks_are_back_ends_by_url() -> None:
    assert isinstance(open_encoder("mock:"), MockEncoder)
    assert isinstance(open_store("mock:"), MemoryStore)
    assert open_store("mock:here").name == "mock:here"
    assert open_generator("mock:yes").generate("?") == "yes"
    limited = open_generator("mock:yes?context=100")
    assert isinstance(limited, CountsTokens)
    assert limited.context == 100


def test_a_line_in_a_conftest_gives_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["vlmsearch_mocks.fixtures"]')
    pytester.makepyfile(
        """
        import pytest
        from vlmsearch import Document
        from vlmsearch_mocks import MockEncoder, MockGenerator

        def test_pipeline(vlmsearch_pipeline, vlmsearch_store, vlmsearch_generator):
            vlmsearch_pipeline.add([Document("a", text="a red star"), Document("b", text="two dogs")])
            assert len(vlmsearch_store) == 2
            assert vlmsearch_pipeline.search("red star", limit=1)[0].document.id == "a"
            assert vlmsearch_pipeline.ask("a red star?").citations[0].id == "a"
            assert "a red star" in vlmsearch_generator.prompts[0]

        def test_every_test_has_its_own(vlmsearch_store, vlmsearch_encoder):
            assert len(vlmsearch_store) == 0
            assert vlmsearch_encoder.spaces

        class TestOverridden:
            @pytest.fixture
            def vlmsearch_encoder(self):
                return MockEncoder(neighbours={"a query": ["the answer"]})

            @pytest.fixture
            def vlmsearch_generator(self):
                return MockGenerator(["first", "second"])

            def test_overridden(self, vlmsearch_pipeline):
                vlmsearch_pipeline.add([Document("x", text="a question"), Document("y", text="the answer")])
                assert vlmsearch_pipeline.search("a query", limit=1)[0].document.id == "y"
                assert vlmsearch_pipeline.ask("a query").text == "first"

        def test_faults_can_be_planted(vlmsearch_pipeline, vlmsearch_faults):
            vlmsearch_faults.fail("mongo", "bulk_write")
            vlmsearch_pipeline.add([Document("a", text="a red star")])
            assert vlmsearch_faults.calls.count("mongo.bulk_write") > 1
            assert vlmsearch_pipeline.search("red star")[0].document.id == "a"
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


@pytest.mark.slow
def test_without_the_drivers_all_but_the_mock_servers_work(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys
        sys.modules |= dict.fromkeys(("bson", "chromadb", "pgvector", "psycopg", "pymongo"))
        pytest_plugins = ["vlmsearch_mocks.fixtures"]
        """
    )
    pytester.makepyfile(
        r"""
        import pytest
        from vlmsearch import Document, MissingDependencyError, Pipeline

        def test_the_fixtures(vlmsearch_pipeline):
            vlmsearch_pipeline.add([Document("a", text="a red star")])
            assert vlmsearch_pipeline.search("red star")[0].document.id == "a"

        def test_the_urls():
            with Pipeline.open(encoder="mock:", store="mock:", generator="mock:") as pipeline:
                assert pipeline.add([Document("a", text="a red star")]).added == 1

        def test_the_mock_servers_say_what_to_install():
            with pytest.raises(MissingDependencyError, match=r"MockStore needs .*install '.*\[chroma,mongodb\]'"):
                from vlmsearch_mocks import MockStore

        @pytest.mark.parametrize(
            ("url", "extras"),
            [
                ("chroma://h/x", "chroma"),
                ("mongodb://h/x", "mongodb"),
                ("mongodb+chroma://h/x?chroma=http://h", "chroma,mongodb"),
                ("postgresql://h/x", "postgresql"),
            ],
        )
        def test_stores_say_what_to_install(url, extras):
            with pytest.raises(MissingDependencyError, match=rf"pip install '.*\[{extras}\]'"):
                Pipeline.open(encoder="mock:", store=url)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=7)


def test_a_store_of_ones_own_can_be_held_to_the_suite(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from vlmsearch_mocks import MemoryStore
        from vlmsearch_mocks.contracts import StoreContract

        class Forgetful(MemoryStore):
            def delete(self, ids):
                return len(ids)

        class TestForgetful(StoreContract):
            def make_store(self, tmp_path):
                return Forgetful()
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q", "-k", "deleted and not come_back or cosines")
    result.assert_outcomes(passed=1, failed=3, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*assert store.delete(*", "E*assert 12 == 10*"])
