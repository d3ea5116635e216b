import dataclasses
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from vlmsearch import (
    Answer,
    Citation,
    Document,
    Duplicates,
    Field,
    IndexReport,
    InvalidInputError,
    Match,
    Matches,
    Part,
    Record,
    Reject,
    RemoteImage,
    Space,
    part_of,
)
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
    check_metadata({f"k{i}": i for i in range(1000)} | {"unread": "1 shape value", "unread_count": 1})
    check_metadata({"k": "é" * (2**19 - 1)})
    for metadata in ({f"k{i}": i for i in range(1001)}, {"k": "é" * 2**19}, {"k": "\ud800" * 400_000}):
        with pytest.raises(InvalidInputError) as caught:
            check_metadata(metadata)
        assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    ("part", "id", "name"),
    [
        (Part("/a/r.pdf", page=3), "/a/r.pdf#page=3", "page 3"),
        (Part("/a/f.mp4", seconds=12.48), "/a/f.mp4#t=12.480", "0:12"),
        (Part("/a/f.mp4", seconds=3725.5), "/a/f.mp4#t=3725.500", "1:02:05"),
        (Part("p.jpg", region=(10, 20, 300, 40)), "p.jpg#xywh=10,20,300,40", "10,20,300,40"),
        (Part("r.pdf#page=3", region=(0, 0, 1, 1)), "r.pdf#page=3#xywh=0,0,1,1", "0,0,1,1"),
        (Part("a\n#b", page=1), "a\n#b#page=1", "page 1"),
        (Part("a.eml", attachment=2), "a.eml#attachment=2", "attachment 2"),
        (Part("b.mbox", message=3), "b.mbox#message=3", "message 3"),
        (Part("b.mbox", message=3, attachment=2), "b.mbox#message=3&attachment=2", "message 3, attachment 2"),
    ],
)
def test_a_part_is_written_and_read(part: Part, id: str, name: str) -> None:
    assert str(part) == id
    assert part_of(id) == Document(id).part == part
    assert part.name == name


@pytest.mark.parametrize(
    "id",
    ["/a/r.pdf", "#page=1", "a#page=0", "a#page=01", "a#page=-1", "a#page=1.5", "a#page=1 ", "a#page=1\n", "a#Page=1",
     "a#t=1", "a#t=1.5", "a#t=1.5000", "a#t=-1.500", "a#t=٣.٣٣٣", "a#xywh=1,2,0,4", "a#xywh=1,2,3", "a#xywh=1,2,3,4,5",
     "a#xywh=percent:1,2,3,4", "a#page=3&t=1.000", "a#page=٣", "a#nothing", "a#page=1234567890",
     "a#message=0", "a#message=3&", "a#attachment=2&message=3", "a#message=3&page=2", "#message=1"],
)  # fmt: skip
def test_what_is_nearly_a_fragment_is_none(id: str) -> None:
    assert part_of(id) is None
    assert Document(id).part is None


SHORT = Document("a", text="a dog", image=Path("a.jpg"), metadata={"year": 2024})
MANY = Document(
    "a" * 1024, text="dog " * 10**6, image=b"x" * 10**6, metadata={f"k{n}": "v" * 10**4 for n in range(900)}
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Document("a"), "Document('a')"),
        (SHORT, "Document('a', text='a dog', image='a.jpg', metadata={'year': 2024})"),
        (Document("a", image=b"12345"), "Document('a', image=<5 bytes>)"),
        (Document("a", image=PIL.Image.new("RGB", (4, 3))), "Document('a', image=<image of 4 x 3>)"),
        (Document("a", image=RemoteImage("http://h", "i", "a", "/srv/a.jpg")), "Document('a', image='/srv/a.jpg')"),
        (Record(Document("a"), {Field("m", "text"): np.ones(3, np.float32)}),
         "Record(Document('a'), dimensions of vectors: {'m/text': 3})"),
        (Match(Document("a"), 0.5, {}), "Match(0.500, Document('a'))"),
        (Matches(), "Matches(0, shown from 0)"),
        (Matches((Match(Document("a"), 0.5, {}),), threshold=0.3, total=7),
         "Matches(1 of 7, shown from 0.3)\n  0.500 Document('a')"),
        (Answer("Yes [1].", (Citation(1, "a"),), (Match(Document("a"), 1.0, {}),)),
         "Answer('Yes [1].', citations={'1': 'a'}, 1 sources)"),
        (Duplicates((), 5), "Duplicates(0 groups, 5 compared, 0 unread)"),
        (IndexReport(), "IndexReport(seconds=0.0)"),
        (IndexReport(added=1200, seconds=1.25), "IndexReport(added=1,200, seconds=1.2)"),
        (IndexReport(rejects=(Reject("a", "corrupt", "a is"),)), "IndexReport(rejects=1, seconds=0.0): 'a' corrupt"),
    ],
)  # fmt: skip
def test_reprs_are_short(value: object, expected: str) -> None:
    assert repr(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        MANY,
        Record(MANY, {Field("m", "text"): np.ones(10**6, np.float32)}),
        Match(MANY, 0.5, {}),
        Matches((Match(MANY, 0.5, {}),) * 1000),
        Answer("yes " * 10**5, tuple(Citation(n, "a" * 1024) for n in range(500)), (Match(MANY, 1.0, {}),) * 500),
        IndexReport(rejects=(Reject("a" * 1024, "corrupt", "x" * 10**5),) * 1000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_reprs_of_large_values_are_short(value: object) -> None:
    assert len(repr(value)) < 4000
    assert len(repr(value).splitlines()) <= 7


def test_a_report_counts_fields_that_are_not_zero() -> None:
    report = IndexReport(added=2, pruned=1, rejects=(Reject("a", "corrupt", "a is"),), seconds=3.0)
    assert report.counts() == {"added": 2, "pruned": 1, "rejects": 1}
