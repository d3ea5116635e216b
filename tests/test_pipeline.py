"""The pipeline on the demo models and an embedded index."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import ConfigError, Document, Field, IndexMismatchError, InvalidInputError, Pipeline, Query
from vlmsearch.answers.stream import NOTHING_FOUND
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import RejectedDocumentsWarning, TextTruncatedWarning
from vlmsearch.indexing.reindex import reindex
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Role, Vectors

SEED = 15_000_000
SCENES = 120


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("pipeline")
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{folder / 'index'}") as opened:
        scenes = [make_scene(SEED + i) for i in range(SCENES)]
        opened.add(
            Document(f"scene-{i}", image=scene.draw(160), metadata={"background": scene.background, "number": i})
            for i, scene in enumerate(scenes)
        )
        opened.add(Document(f"caption-{i}", text=scene.caption()) for i, scene in enumerate(scenes[:20]))
        yield opened


def test_a_caption_finds_its_scene(pipeline: Pipeline) -> None:
    hits = 0
    for i in range(SCENES):
        found = pipeline.search(make_scene(SEED + i).caption(), limit=10)
        hits += f"scene-{i}" in [match.document.id for match in found]
    assert hits >= 0.9 * SCENES


def test_a_paraphrase_finds_the_caption_through_minilm(pipeline: Pipeline) -> None:
    field = "minilm/text"
    right = 0
    for i in range(20):
        text = make_scene(SEED + i).captions(1, seed=3, style="full")[0]
        found = [match for match in pipeline.search(text, limit=40, min_score=0) if field in match.fields]
        right += min(found, key=lambda match: match.fields[field].rank or 99).document.id == f"caption-{i}"
    assert right >= 16


def test_an_image_finds_itself_and_its_caption(pipeline: Pipeline) -> None:
    found = pipeline.search(image=make_scene(SEED + 3).draw(200), limit=30)
    ids = [match.document.id for match in found]
    assert ids.index("scene-3") <= 1
    assert found[ids.index("scene-3")].fields["clip/image"].rank == 1
    assert "caption-3" in ids


def test_text_and_image_together_ask_all_fields(pipeline: Pipeline) -> None:
    found = pipeline.search("a red star", image=make_scene(SEED).draw(200), limit=100)
    assert {name for match in found for name in match.fields} == {"clip/image", "clip/text", "minilm/text", "words"}


def test_a_query_image_that_is_none_is_refused_without_an_index(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as empty:
        assert not empty.search(image=make_scene(SEED).draw(50))
        for query in (Query(image=b"this is no image"), Query("a", without=[Query(image=b"this is no image")])):
            with pytest.raises(InvalidInputError, match="no format"):
                empty.search_many([query])


def test_a_query_that_is_too_long_is_reported_and_a_short_one_is_not(pipeline: Pipeline) -> None:
    with pytest.warns(TextTruncatedWarning, match="demo-clip reads"):
        assert pipeline.search("a red star " * 200, min_score=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pipeline.search("a red star")


def test_searching_from_many_threads_gives_what_one_gives(pipeline: Pipeline) -> None:
    queries = [make_scene(SEED + i).caption() for i in range(40)]
    alone = [pipeline.search(query, limit=5) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: pipeline.search(query, limit=5), queries)) == alone


def test_an_answer_quotes_and_cites_what_was_found(pipeline: Pipeline) -> None:
    answer = pipeline.ask(make_scene(SEED + 4).caption())
    assert "caption-4" in {citation.id for citation in answer.citations}
    assert make_scene(SEED + 4).caption() in answer.text
    for citation in answer.citations:
        assert f"[{citation.number}]" in answer.text
        assert answer.matches[citation.number - 1].document.id == citation.id


def test_an_answer_is_made_of_what_a_search_shows(pipeline: Pipeline) -> None:
    question = make_scene(SEED + 4).caption()
    answer = pipeline.ask(question, limit=100)
    shown = pipeline.search(question, limit=100)
    assert {match.document.id for match in answer.matches} == {match.document.id for match in shown}
    assert 0 < len(shown) < 100
    assert min(match.score for match in shown) >= shown.threshold == 0.3
    assert len(pipeline.search(question, limit=100, min_score=0)) == 100


def test_an_index_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'none'}") as pipeline:
        assert list(pipeline.search("anything")) == list(pipeline.search(like=["a"], facets=["year"])) == []
        assert list(map(len, pipeline.search_many(["a", "b"]))) == [0, 0]
        assert pipeline.ask("anything").text == NOTHING_FOUND
        assert list(pipeline.label(["dog"])) == []
    assert not (tmp_path / "none").exists()


def test_what_was_opened_is_closed_when_the_rest_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    for kind in (MockEncoder, MemoryStore):
        monkeypatch.setattr(kind, "close", lambda self: closed.append(self))
    with pytest.raises(ConfigError, match="no generator 'nonsense:'"):
        Pipeline.open(encoder="mock:", store="mock:", generator="nonsense:")
    assert [type(part) for part in closed] == [MockEncoder, MemoryStore]


def test_asking_without_a_generator_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="extractive:"):
        Pipeline(MockEncoder(), MemoryStore()).ask("what?")


def test_paths_may_be_strings_and_one_of_a_kind_needs_no_list(tmp_path: Path) -> None:
    make_scene(1).draw(96).save(tmp_path / "scene.png")
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        assert pipeline.index(str(tmp_path)).added == 1
        assert pipeline.index(tmp_path).unchanged == 1
        assert pipeline.index([str(tmp_path)]).unchanged == 1
        assert pipeline.add(Document("one", text="a star")).added == 1
        assert pipeline.delete("one") == 1
        pipeline.add([Document("one", text="a star"), Document("two", text="a ring")])
        assert pipeline.delete(id for id in ("one", "two")) == 2
        assert [match.document.id for match in pipeline.search("a star", min_score=0)] == [str(tmp_path / "scene.png")]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (Document("one", text=1.5), "one: the text is a string, not float"),  # type: ignore[arg-type]
        (
            Document("one", image=1),  # type: ignore[arg-type]
            "one: an image is a path, bytes, a PIL image or an array of pixels, not int: read a file with .read()",
        ),
        (Document("one", text="a", metadata=[]), "one: the metadata are a mapping, not list"),  # type: ignore[arg-type]
    ],
)
def test_a_document_of_wrong_types_is_rejected_and_the_others_are_indexed(document: Document, said: str) -> None:
    warned = pytest.warns(RejectedDocumentsWarning, match=f"1 of 2 documents cannot be used; the first is {said}")
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline, warned:
        report = pipeline.add([document, Document("two", text="a star")])
    assert report.added == 1
    assert [(reject.code, reject.message) for reject in report.rejects] == [("invalid", said)]


def test_what_is_no_document_no_query_and_no_back_end_is_a_type_error_that_says_what_is() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        with pytest.raises(TypeError, match="a table is added, not str: write Document"):
            pipeline.add("a star")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the id of a document is a string, not 5"):
            pipeline.add([Document(5, text="a star")])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not Image; a picture goes into image="):
            pipeline.search(make_scene(1).draw(96))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Pipeline\.open\(encoder='onnx:demo'\) opens one by its URL"):
        Pipeline("onnx:demo", MemoryStore())  # type: ignore[arg-type]


def test_half_a_surrogate_pair_stops_neither_indexing_nor_a_query(pipeline: Pipeline) -> None:
    other = Pipeline(pipeline.encoder, MemoryStore(), pipeline.generator)
    report = other.add([Document("half", text="a red star \ud83d"), Document("whole", text="a blue ring")])
    assert (report.added, report.rejects) == (2, ())
    assert other.search("a red star \ud83d", limit=1)[0].document.id == "half"
    assert other.ask("Where is the \ud83d red star?").citations[0].id == "half"


def test_another_index_in_the_same_store_is_checked_again(tmp_path: Path) -> None:
    another = MockEncoder()
    another.fingerprint = "another@1"
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add([Document("one", text="a star")])
        assert pipeline.search("a star")
        reindex(pipeline.store, another)
        with pytest.raises(IndexMismatchError, match="another@1"):
            pipeline.search("a star")


def test_closing_goes_on_past_a_part_that_fails() -> None:
    closed = []

    class Broken(MockEncoder):
        def close(self) -> None:
            raise RuntimeError("the GPU is gone")

    class Noted(MemoryStore):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(RuntimeError, match="the GPU is gone"):
        Pipeline(Broken(), Noted()).close()
    assert len(closed) == 1


@pytest.mark.parametrize(
    "weights",
    [
        {"clip/image": float("nan")},
        {"clip/image": float("inf")},
        {"words": 1e308},
        {Field("clip", "image"): 2.0},
        {"sound/text": 1.0},
    ],
)
def test_weights_are_numbers_of_fields_that_there_are(pipeline: Pipeline, weights: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"weights are numbers from 0 to 1,000,000|no field .* there are clip/image.*, words"
    ):
        pipeline.search("a star", weights=weights)


def test_a_field_that_counts_nothing_is_not_asked() -> None:
    class Silent(MockEncoder):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            assert role == "document", "no field is asked"
            return super().encode_texts(texts, role=role)

    vectors = {"clip/image": 0, "minilm/text": 0}
    with Pipeline(Silent(), MemoryStore(language="none")) as pipeline:
        pipeline.add([Document("a", text="a star"), Document("b", text="a ring")])
        assert [match.document.id for match in pipeline.search("ring", weights=vectors)] == ["b"]
        assert list(pipeline.search("moon", weights=vectors)) == []
        with pytest.raises(ConfigError, match=r"weights are numbers from 0 to 1,000,000 and not all 0, not \{"):
            pipeline.search("ring", weights=vectors | {"words": 0})
    with Pipeline(MockEncoder(), MemoryStore(language="none")) as pipeline:
        pipeline.add([Document("a", text="a star"), Document("b", text="a ring")])
        matches = pipeline.search("a ring", weights={"words": 0})
        assert [set(match.fields) for match in matches] == [{"minilm/text"}] * 2


def test_a_generator_of_ids_leaves_no_vectors_behind(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add([Document("one", text="a star"), Document("two", text="a ring")])
        assert pipeline.delete(id for id in ("one", "two")) == 2
        assert pipeline.check().clean


def test_after_a_fork_a_pipeline_says_so_instead_of_waiting(pipeline: Pipeline) -> None:
    pipeline.search("a star")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            pipeline.search("a star")
        except ConfigError as exc:
            os.write(writer, str(exc).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert told.read() == f"this pipeline was opened in process {os.getpid()}: open another after a fork"
    os.waitpid(child, 0)


def test_the_models_send_nothing_about_their_use(tmp_path: Path) -> None:
    code = "from vlmsearch.encoders.onnx import OnnxEncoder; OnnxEncoder('demo').encode_texts(['a star'])"
    told = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in told} | {"HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_its_length_is_its_count_and_an_empty_one_is_true() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        assert (len(pipeline), pipeline.count(), bool(pipeline)) == (0, 0, True)
        pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        assert (len(pipeline), pipeline.count()) == (2, 2)
        assert [document.text for document in pipeline.get("a")] == ["a dog"]
