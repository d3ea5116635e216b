"""What results are in a notebook: a bounded page of HTML, in which nothing from outside is markup."""

import base64
import dataclasses
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image

from tests.support.markup import parse, text_of
from vlmsearch import (
    Answer,
    BackendUnavailableError,
    CheckReport,
    Citation,
    Document,
    DuplicateGroup,
    Duplicates,
    Evaluation,
    Explanation,
    FieldEvidence,
    FieldScore,
    ImageFile,
    IndexReport,
    Match,
    Matches,
    PassageEvidence,
    Pipeline,
    Regions,
    Reject,
    RemoteImage,
    WordEvidence,
    connect,
)
from vlmsearch.notebook import pictures, to_html
from vlmsearch.search.scores import index_scores

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\x00&amp;\ud800\uffff$x$"
SEEN = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\\u202e\\u001b[31m\\u0000&amp;\\ud800\ufffd$x$"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    Image.new("RGB", (640, 480), "orange").save(path)
    return path


def images(tree: ET.Element) -> Iterator[Image.Image]:
    for element in tree.iter("img"):
        yield Image.open(BytesIO(base64.b64decode(element.attrib["src"].partition(",")[2])))


def hostile_values() -> Iterator[object]:
    document = Document(HOSTILE, text=HOSTILE, image=b"no image", metadata={HOSTILE: HOSTILE, "n": 1})
    match = Match(document, 0.9, {HOSTILE: FieldScore(1, 0.3)}, {HOSTILE: 0.5})
    yield document
    yield match
    yield Matches((match,), cursor=HOSTILE, threshold=0.3, total=5, facets={HOSTILE: {HOSTILE: 2}})
    yield Answer(HOSTILE, (Citation(1, HOSTILE),), (match,), (match,), (7,))
    yield IndexReport(rejects=(Reject(HOSTILE, "corrupt", HOSTILE),))
    yield CheckReport(HOSTILE, 1, {HOSTILE: 1}, orphans=(HOSTILE,))
    file = ImageFile(HOSTILE, Path(HOSTILE.replace("\0", "")), 1, 1, 1, 1.0)
    yield Duplicates((DuplicateGroup((file, file)),), 2, ((HOSTILE, HOSTILE),))
    yield Explanation(
        HOSTILE,
        "shown",
        HOSTILE,
        document,
        0.5,
        fields={HOSTILE: FieldEvidence(1, 0.3, 1.0)},
        lacking=(HOSTILE,),
        words=(WordEvidence(HOSTILE, HOSTILE, 1, 1.0, 1.0),),
        marked=((2, 9),),
        without=((HOSTILE, 0.5),),
        failed=(HOSTILE,),
        notes=(HOSTILE,),
    )
    figure = {"value": 0.5, "low": 0.4, "high": 0.6}
    yield Evaluation(store=HOSTILE, queries=1, fields={HOSTILE: {"measures": {HOSTILE: figure}}})


@pytest.mark.parametrize("value", list(hostile_values()), ids=lambda value: type(value).__name__)
def test_what_is_from_outside_stays_text(value: object) -> None:
    tree = parse(to_html(value))
    assert {"tex2jax_ignore", "mathjax_ignore"} <= set(tree.attrib["class"].split()), "dollars are no formulas"
    said = "".join(tree.itertext())
    assert SEEN in said
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", said)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", repr(value).replace("\n", ""))
    assert len(repr(value)) < 2_000


def test_an_explanation_marks_words_within_text_that_stays_text() -> None:
    text = "<b>a dog</b> & a cat"
    marked = Explanation("a", "shown", "It is shown.", Document("a", text=text), 0.5, marked=((5, 8), (17, 20)))
    tree = parse(marked._repr_html_())
    assert [mark.text for mark in tree.iter("mark")] == ["dog", "cat"]
    assert text in "".join(tree.itertext())
    parts = dataclasses.replace(marked, marked=(), passages=(PassageEvidence(3, 8, 1.0), PassageEvidence(9, 12, 0.0)))
    assert [mark.text for mark in parse(parts._repr_html_()).iter("mark")] == ["a dog"]
    late = Explanation("a", "shown", "", Document("a", text="x " * 50_000 + "dog"), 0.5, marked=((100_000, 100_003),))
    html = late._repr_html_()
    assert [mark.text for mark in parse(html).iter("mark")] == ["dog"]
    assert len(html) < 5_000


def test_matches_have_pictures_scores_texts_and_fields(picture: Path) -> None:
    fields = {
        "clip/image": FieldScore(2, 0.31, 4.9),
        "words": FieldScore(1, 4.7, 1.2),
        "clip/text": FieldScore(None, 0),
    }
    document = Document("a.png", text="an orange square", image=picture, metadata={"year": 2024})
    found = Matches((Match(document, 0.934, fields),), threshold=0.3, total=1)
    tree = parse(found._repr_html_())
    [image] = images(tree)
    assert (image.format, image.size) == ("JPEG", (160, 120))
    said = text_of(tree)
    for part in ("1 of 1 matches, shown from 0.3", "0.934", "an orange square", "a.png", "year: 2024"):
        assert part in said
    assert "words #1 (4.70) clip/image #2 (0.31)" in said
    assert "clip/text" not in said
    assert next(tree.iter("img")).attrib["alt"] == "an orange square"
    empty = text_of(parse(Matches(threshold=0.3)._repr_html_()))
    assert empty == "Nothing matches: min_score=0 shows what comes closest."


def test_many_large_matches_are_bounded(picture: Path) -> None:
    document = Document("a", text="word " * 400_000, image=picture, metadata={f"k{n}": "v" * 9_000 for n in range(100)})
    found = Matches(tuple(Match(document, 0.9, {}) for _ in range(500)))
    html = found._repr_html_()
    assert len(html) < 400_000
    assert html.count("<img") == pictures.MAX_PICTURES
    assert "not drawn" in html
    assert "and 450 more" in text_of(parse(html))
    assert len(repr(found)) < 3_000
    assert len(repr(found).splitlines()) == 7


def test_pictures_are_made_for_a_bounded_time(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_SECONDS", -1.0)
    assert "<img" not in to_html(Document("a", image=picture))


def test_a_picture_that_takes_too_many_bytes_is_left_out(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_BYTES", 100)
    assert "no picture: too_large" in text_of(parse(to_html(Document("a", image=picture))))


def test_an_image_that_cannot_be_read_is_a_box(tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for image, code in (
        (tmp_path / "away.png", "unreadable"),
        (tmp_path / "cut.png", ""),
        (b"no image", "unsupported"),
    ):
        assert f"no picture: {code}" in text_of(parse(to_html(Document("a", image=image))))


def test_the_image_of_a_server_is_fetched_by_the_open_client_alone(picture: Path) -> None:
    jpeg = BytesIO()
    Image.new("RGB", (160, 90), "red").save(jpeg, "JPEG")

    class Client:
        def __init__(self) -> None:
            self.asked: list[tuple[str, int]] = []

        def thumbnail(self, id: str, *, size: int) -> bytes:
            self.asked.append((id, size))
            if id == "down":
                raise BackendUnavailableError("no")
            return jpeg.getvalue()

    def of(id: str) -> Match:
        return Match(Document(id, image=RemoteImage("http://127.0.0.1:1", "photos", id, f"/srv/{id}.jpg")), 0.9, {})

    assert "not here" in to_html(of("a"))
    pipeline = connect("http://127.0.0.1:1", index="photos")
    client = Client()
    pipeline.thumbnail = client.thumbnail  # type: ignore[method-assign, assignment]
    [image] = images(parse(to_html(of("a"))))
    assert (image.size, client.asked) == ((160, 90), [("a", 320)])
    html = to_html(Matches((of("a"), of("down"), of("b"))))
    assert html.count("<img") == 1, "a server that is down is not asked again"
    assert client.asked[1:] == [("a", 160), ("down", 160)]
    other = connect("http://127.0.0.1:1", index="other")
    pipeline.close()
    assert "not here" in to_html(of("a"))
    other.close()


def test_the_best_region_is_framed(picture: Path) -> None:
    regions = Regions(((0.1, 2.5, None), (0.0, 0.2, 0.1), (0.0, 0.0, None)))
    explanation = Explanation("a", "shown", "It is shown.", Document("a", image=picture), 0.9, regions=regions)
    [frame] = [each for each in parse(to_html(explanation)).iter("div") if "aria-label" in each.attrib]
    assert "left:25.0%;top:0.0%;width:50.0%;height:50.0%" in frame.attrib["style"]


def test_real_results_are_shown(picture: Path) -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        report = pipeline.add(
            [
                Document("a", text="a dog in the snow", image=picture),
                Document("b", text="cars"),
                Document("c", image=b"x"),
            ]
        )
        explained = pipeline.explain("dog snow", "a")
        shown = {
            "added 2 rejects 1": report,
            "c: the image": report,
            "a dog in the snow": pipeline.search("dog snow"),
            "It is shown at place 1.": explained,
            f"log-odds {explained.log_odds:+.2f}": explained,
            "[1]": pipeline.ask("Where is the dog?"),
            "in order": pipeline.check(),
            "their own documents (2)": index_scores(pipeline),
        }
        assert "dog" in [mark.text for mark in parse(explained._repr_html_()).iter("mark")]
    for said, value in shown.items():
        assert said in text_of(parse(value._repr_html_())), said


def test_ipython_takes_html_and_a_short_text(picture: Path) -> None:
    formatter: Any = InteractiveShell.instance().display_formatter  # which has no types
    values = [
        Matches((Match(Document("a", text="a dog", image=picture), 0.9, {}),)),
        Document("a"),
        Evaluation(queries=1, fields={"fused": {"measures": {"F1 shown": {"value": 0.5, "low": 0, "high": 1}}}}),
        IndexReport(added=1),
    ]
    for value in values:
        data, _ = formatter.format(value)
        assert sorted(data) == ["text/html", "text/plain"]
        assert data["text/plain"] == repr(value)
        parse(data["text/html"])


def test_values_without_a_picture_of_their_own_are_their_repr() -> None:
    assert text_of(parse(to_html(np.array(["<b>"])))) == "array(['<b>'], dtype='<U3')"


def test_where_nothing_draws_a_value_it_is_its_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    document = Document("<b>", text=HOSTILE)
    assert text_of(parse(document._repr_html_())).startswith("Document('<b>'")
