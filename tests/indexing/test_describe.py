"""Descriptions of pictures: what is described, what searches find, what stays, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks import MockGenerator

from vlmsearch import ConfigError, DescribeReport, Document, GenerationOptions, Picture, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    InvalidBatchError,
    InvalidInputError,
    VlmsearchError,
)
from vlmsearch.indexing.copy import copy as copy_index
from vlmsearch.indexing.describe import FIELDS_BY, plain_description
from vlmsearch.indexing.reindex import reindex
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.types import DESCRIBED_BY


class Seeing(MockGenerator):
    """Says of each picture what its middle looks like, and counts the pictures that it saw."""

    def __init__(self, say: Callable[[str], str] = lambda colour: f"A zebra on {colour} ground.") -> None:
        super().__init__("none", pictures=4)
        self.say = say
        self.seen = 0
        self._guard = threading.Lock()

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        [picture] = [part for part in parts if isinstance(part, Picture)]
        red, green, blue = picture.image.resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
        with self._guard:
            self.seen += 1
        if on_usage:
            on_usage(100)
        yield self.say("red" if red > max(green, blue) else "other")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(6):
        make_scene(number).draw(96).save(pictures / f"{number}.png")
    return pictures


@pytest.fixture
def pipeline(folder: Path) -> Iterator[Pipeline]:
    store = f"sqlite:{folder.parent}/index"
    with Pipeline.open(encoder="onnx:demo", store=store, generator=None) as pipeline:
        pipeline.generator = Seeing()
        pipeline.index(folder)
        pipeline.add(Document("captioned", text="a caption of its own", image=folder / "0.png"))
        pipeline.add(Document("words", text="no picture"))
        yield pipeline


def described(pipeline: Pipeline) -> dict[str, Document]:
    return {Path(document.id).name: document for document in pipeline.documents()}


def test_pictures_without_a_text_are_described_and_found(pipeline: Pipeline) -> None:
    assert len(pipeline.search("zebra")) == 0
    report = pipeline.describe()
    assert (report.described, report.unchanged, report.left, report.rejects) == (6, 0, 0, ())
    assert report.prompt_tokens == 600
    documents = described(pipeline)
    assert documents["captioned"].text == "a caption of its own"
    assert DESCRIBED_BY not in documents["captioned"].metadata
    texts = {documents[f"{number}.png"].text for number in range(6)}
    assert texts <= {"A zebra on red ground.", "A zebra on other ground."}
    by = documents["1.png"].metadata[DESCRIBED_BY]
    assert isinstance(by, str)
    assert by.startswith("mock: ")
    found = pipeline.search("zebra", limit=20)
    assert {Path(match.document.id).name for match in found} == {f"{number}.png" for number in range(6)}
    fields = found[0].fields.keys()
    assert {"clip/image", "minilm/text", "words"} <= fields


def test_what_is_described_is_not_described_again_unless_prompt_or_picture_change(
    pipeline: Pipeline, folder: Path
) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    pipeline.describe()
    assert pipeline.describe() == _about(DescribeReport(unchanged=6))
    assert generator.seen == 6
    assert pipeline.index(folder).unchanged == 6, "a description does not make a file another one"
    assert pipeline.describe(prompt="What colour is it?").described == 6
    make_scene(77).draw(96).save(folder / "3.png")
    report = pipeline.index(folder)
    assert (report.updated, report.unchanged) == (1, 5)
    assert described(pipeline)["3.png"].text is None
    assert pipeline.describe(prompt="What colour is it?").described == 1


def _about(report: DescribeReport) -> object:
    """The report without its seconds."""

    class About:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, DescribeReport) and all(
                getattr(other, name) == getattr(report, name) for name in ("described", "unchanged", "left", "rejects")
            )

        __hash__ = None  # type: ignore[assignment]

    return About()


def test_descriptions_travel_with_their_documents(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.describe()
    with open_store(f"sqlite:{tmp_path}/copy") as copy:
        copy_index(pipeline.store, copy)
        records = {record.document.id: record for record in copy.records(list(copy.ids()))}
    ours = described(pipeline)
    assert all(record.document.text == ours[Path(id).name].text for id, record in records.items())
    with open_encoder("onnx:demo-clip") as clip, open_store(f"sqlite:{tmp_path}/copy") as copy:
        assert reindex(copy, clip).encoded == 8
        records = {record.document.id: record for record in copy.records(list(copy.ids()))}
    assert all(record.document.text == ours[Path(id).name].text for id, record in records.items())


def test_a_run_that_is_interrupted_keeps_what_is_done(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.indexing.describe._PAGE", 3)
    generator = pipeline.generator
    assert isinstance(generator, Seeing)

    def say(_: str) -> str:
        if generator.seen == 5:
            raise BackendUnavailableError("the engine died")
        return "A zebra."

    generator.say = say
    with pytest.raises(BackendUnavailableError, match="the engine died"):
        pipeline.describe()
    before = sum(document.text == "A zebra." for document in described(pipeline).values())
    assert 2 <= before <= 4
    generator.say = lambda _: "A zebra."
    assert pipeline.describe().described == 6 - before


def test_what_others_write_meanwhile_stays(pipeline: Pipeline, folder: Path) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    ids = sorted(document.id for document in pipeline.documents() if document.text is None)

    def say(_: str) -> str:
        if generator.seen == 1:
            pipeline.delete(ids[0])
            metadata = pipeline.get(ids[1])[0].metadata
            pipeline.add(Document(ids[1], text="a caption meanwhile", image=folder / "1.png", metadata=metadata))
        return "A zebra."

    generator.say = say
    assert pipeline.describe().described == 4
    assert pipeline.get(ids[:2]) == [pipeline.get(ids[1])[0]]
    assert pipeline.get(ids[1])[0].text == "a caption meanwhile"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("", "empty"),
        ("I'm sorry, I cannot help with that.", "invalid"),
        ("  \n", "empty"),
        ("A fine \ud83d thing.", "invalid"),
        ("A \0 zebra.", "invalid"),
        ("A \x1b[31mzebra.", "invalid"),
        ("zebra " * 10_000, "too_long"),
    ],
)
def test_refusals_and_empty_texts_are_rejected_and_not_asked_again(pipeline: Pipeline, said: str, code: str) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    generator.say = lambda colour: said if colour == "red" else "A zebra."
    report = pipeline.describe()
    refused = len(report.rejects)
    assert 0 < refused < 6
    assert {reject.code for reject in report.rejects} == {code}
    assert {reject.id for reject in pipeline.rejects()} == {reject.id for reject in report.rejects}
    assert pipeline.check().clean
    generator.say = lambda _: "A zebra."
    assert pipeline.describe().unchanged == 6
    assert pipeline.index(Path(report.rejects[0].id).parent).unchanged == 6
    assert pipeline.describe(retry_rejects=True).described == refused
    assert pipeline.rejects() == []


@pytest.mark.parametrize("error", [BackendError("failed (500: no)"), ConfigError("refused (400: content policy)")])
def test_an_error_of_the_server_about_a_picture_is_its_reject(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, error: VlmsearchError
) -> None:
    monkeypatch.setattr("vlmsearch.indexing.describe._PAGE", 3)
    generator = pipeline.generator
    assert isinstance(generator, Seeing)

    def say(_: str) -> str:
        if generator.seen in failing:
            raise error
        return "A zebra."

    generator.say, failing = say, range(1, 8)
    with pytest.raises(type(error), match=r"no|policy"):  # of all pictures of a page: nothing is on the list
        pipeline.describe()
    assert pipeline.rejects() == []
    generator.seen, failing = 0, range(1, 2)
    report = pipeline.describe()
    assert (report.described, [reject.code for reject in report.rejects]) == (5, ["invalid"])
    assert str(error) in report.rejects[0].message
    assert pipeline.describe().unchanged == 6
    failing = range(generator.seen + 1, generator.seen + 2)
    with pytest.raises(type(error)):  # which may be that of any picture
        pipeline.describe(retry_rejects=True)
    assert pipeline.describe(retry_rejects=True).described == 1


def test_a_description_that_the_encoder_refuses_is_a_reject_and_the_others_keep_theirs(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    generator.say = lambda _: f"Zebra {generator.seen}."
    encode = pipeline.encoder.encode_texts

    def refusing(texts: Sequence[str], **options: Any) -> Any:
        if bad := [item for item, text in enumerate(texts) if "2" in text]:
            raise InvalidBatchError({item: InvalidInputError("too_long", "it is too long") for item in bad})
        return encode(texts, **options)

    monkeypatch.setattr(pipeline.encoder, "encode_texts", refusing)
    report = pipeline.describe()
    assert (report.described, [reject.code for reject in report.rejects]) == (5, ["too_long"])
    texts = [described(pipeline)[f"{number}.png"].text for number in range(6)]
    assert texts == ["Zebra 1.", None, "Zebra 3.", "Zebra 4.", "Zebra 5.", "Zebra 6."]


def test_a_dry_run_says_how_long_it_will_take_and_writes_nothing(pipeline: Pipeline) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)

    def slowly(_: str) -> str:
        time.sleep(0.05)
        return "A zebra."

    generator.say = slowly
    report = pipeline.describe(dry_run=True)
    assert (report.described, report.left, generator.seen) == (0, 6, 3)
    assert report.seconds_left > 0.2
    assert report.prompt_tokens_left == 600
    assert all(document.text != "A zebra." for document in pipeline.documents())
    report = pipeline.describe(limit=2)
    assert (report.described, report.left) == (2, 4)
    assert pipeline.describe(where={"type": "png"}, concurrency=3).described == 4


def test_fields_fill_metadata_and_are_checked(pipeline: Pipeline) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    generator.say = lambda colour: (
        f'Here it is: {{"colour": "{colour}", "count": {3 if colour == "red" else "[]"}, "large": true}} Done.'
    )
    report = pipeline.describe(fields=["colour", "count:whole", "large:yes-no"])
    assert 0 < report.described < 7
    assert {reject.code for reject in report.rejects} == {"invalid"}
    assert "'count' is [] and not of the type whole" in report.rejects[0].message
    reds = pipeline.search("a", where={"colour": "red", "count": 3, "large": True}, min_score=0, limit=20)
    assert len(reds) == report.described
    assert all(FIELDS_BY in match.document.metadata for match in reds)
    for odd in ('{"colour": "\\ud83d"', '{"colour": "a\\u0000b"', '{"colour": "red", "deep": ' + "[" * 2000):
        generator.say = lambda _, odd=odd: f'{odd}, "count": 1, "large": true}}'  # type: ignore[misc]
        again = pipeline.describe(fields=["colour", "count:whole", "large:yes-no"], retry_rejects=True)
        assert (again.described, {reject.code for reject in again.rejects}) == (0, {"invalid"})
    generator.say = lambda _: "no object"
    again = pipeline.describe(fields=["colour", "count:whole", "large:yes-no"], retry_rejects=True)
    assert all("there is no JSON object" in reject.message for reject in again.rejects)


def test_metadata_of_the_source_are_never_overwritten(pipeline: Pipeline) -> None:
    generator = pipeline.generator
    assert isinstance(generator, Seeing)
    generator.say = lambda _: '{"type": "a scene"}'
    with pytest.raises(ConfigError, match="has 'type' in its metadata: choose another field"):
        pipeline.describe(fields=["type"])
    assert all(document.metadata.get("type") != "a scene" for document in pipeline.documents())


def test_wrong_options_and_blind_generators_are_refused(pipeline: Pipeline) -> None:
    for wrong, said in (
        ({"prompt": " "}, "`prompt` is empty"),
        ({"fields": "colour"}, "is a list of strings"),
        ({"fields": ["count:integer"]}, "has the type 'integer'"),
        ({"fields": ["$x"]}, "are keys of metadata"),
        ({"limit": 0}, "`limit` is at least 1, not 0"),
        ({"concurrency": 0}, "`concurrency` is from 1 to 32, not 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            pipeline.describe(**wrong)
    pipeline.generator = MockGenerator()
    with pytest.raises(ConfigError, match="sees no pictures"):
        pipeline.describe()
    pipeline.generator = None
    with pytest.raises(ConfigError, match="has no generator"):
        pipeline.describe()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Here is a detailed description of the image: two stars.", "Two stars."),
        ('Sure! Here\'s the description:\n\n"A red star." ', "A red star."),
        ("Description: a star [1].", "A star."),
        ("a star\non a beach", "A star on a beach"),
        ("", ""),
    ],
)
def test_a_description_says_what_is_shown_and_nothing_before(text: str, plain: str) -> None:
    assert plain_description(text) == plain
