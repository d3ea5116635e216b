"""`cohere:` against the service, and against a server that is strict and goes wrong in every way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockReranker
from vlmsearch_mocks.contracts import RerankerContract

from tests.support.cli import ok
from tests.support.model_server import MAX_WORDS, MODEL, REFUSED_SIZE, ModelServer, Script, decoded
from tests.support.service import serving
from vlmsearch import BackendError, ConfigError, Document, Pipeline
from vlmsearch.errors import InvalidInputError, TextTruncatedWarning
from vlmsearch.registry import open_reranker
from vlmsearch.rerankers.base import Reranker
from vlmsearch.rerankers.cohere import CohereReranker
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.types import RemoteImage

DOCUMENTS = [Document("a", text="a red star"), Document("b", text="two blue circles"), Document("c", text="red")]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The service with the demonstration re-ranker."""
    index = IndexSettings("mock:", "mock:", generator="", reranker="onnx:demo-reranker")
    with serving(ServerSettings(indexes={"default": index})) as running:
        yield running.url


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Stand-ins by their form."""
    with ModelServer(Script("cohere")) as cohere, ModelServer(Script("tei")) as tei:
        yield {"cohere": cohere.url, "tei": tei.url}


class TestOurService(RerankerContract):
    @pytest.fixture(autouse=True)
    def _service(self, service: str) -> None:
        self.url = service

    def make_reranker(self) -> Reranker:
        return open_reranker(f"cohere:{self.url}/v2?model=default")


class AgainstStandIn(RerankerContract):
    form, options = "cohere", ""

    @pytest.fixture(autouse=True)
    def _server(self, servers: dict[str, str]) -> None:
        self.url = servers[self.form]

    def make_reranker(self) -> Reranker:
        return open_reranker(f"cohere:{self.url}?{self.options}")


class TestVllm(AgainstStandIn):
    options = f"model={MODEL}&images=true"


class TestTeiStandIn(AgainstStandIn):
    form, options = "tei", "form=tei"


@pytest.mark.parametrize("form", ["/v2?model=default", "/v1?model=default", "", "?form=tei"])
def test_scores_are_those_of_the_re_ranker_in_process(service: str, form: str) -> None:
    with open_reranker("onnx:demo-reranker") as here, open_reranker(f"cohere:{service}{form}") as there:
        assert there.score("a red star", DOCUMENTS) == pytest.approx(here.score("a red star", DOCUMENTS), abs=1e-5)


def test_a_search_is_re_ranked_over_http(service: str, tmp_path: Path) -> None:
    store, reranker = f"sqlite:{tmp_path / 'index'}", f"cohere:{service}/v2?model=default"
    texts = {"ring": "a blue star beside a red ring", "star": "a large red star in the centre"}
    with Pipeline.open(encoder="onnx:demo", store=store) as pipeline:
        pipeline.add(Document(id, text=text) for id, text in texts.items())
        plain = pipeline.search("a red star")
        here = pipeline.search("a red star", rerank="onnx:demo-reranker", rerank_seconds=60)
        there = pipeline.search("a red star", rerank=reranker, rerank_seconds=60)
        judged = pipeline.explain("a red star", "star", rerank=reranker, rerank_seconds=60)
    assert [match.document.id for match in there] == [match.document.id for match in here]
    assert there[0].score == pytest.approx(here[0].score, abs=1e-4)
    assert there[0].score != pytest.approx(plain[0].score, abs=1e-4)
    assert judged.outcome == "shown"
    assert judged.judged == pytest.approx(0.98, abs=0.1)
    flags = ("--encoder", "onnx:demo", "--store", store, "--rerank", reranker, "--rerank-seconds", "60")
    assert ok("search", "a red star", *flags).split()[:2] == [f"{there[0].score:.4f}", "star"]


# ---- what is sent


def score(script: Script, documents: list[Document], query: str = "red star", **options: Any) -> list[float | None]:
    """What a re-ranker gives, with a server that follows a script."""
    with ModelServer(script) as server, CohereReranker(server.url, **{"model": MODEL, **options}) as reranker:
        return reranker.score(query, documents)


def test_requests_have_the_form_of_the_server() -> None:
    script, tei = Script(), Script("tei")
    assert score(script, DOCUMENTS) == pytest.approx(score(tei, DOCUMENTS, form="tei"))
    texts = [document.text for document in DOCUMENTS]
    assert script.requests == [{"model": MODEL, "query": "red star", "documents": texts, "top_n": 3}]
    assert tei.requests == [{"query": "red star", "texts": texts, "raw_scores": False, "truncate": True}]


def test_documents_have_their_images_where_the_model_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    PIL.Image.new("RGB", (800, 200), "red").save(path)
    documents = [
        Document("both", text="a star", image=path),
        Document("image", image=PIL.Image.new("RGB", (50, 100), "blue")),
        Document("gone", image=tmp_path / "gone.png"),
        Document("gone text", text="a red star", image=tmp_path / "gone.png"),
        Document("elsewhere", image=RemoteImage("http://localhost:1", "default", "a", "a.png")),
    ]
    script = Script()
    scores = score(script, documents, images=True, image_size=400)
    assert [place for place, given in enumerate(scores) if given is None] == [2, 4]
    [body] = script.requests
    both, image, text = [document["content"] for document in body["documents"]]
    assert [part["type"] for part in both] == ["image_url", "text"]
    assert decoded(both[0]["image_url"]["url"]).size == (400, 100)
    assert decoded(image[0]["image_url"]["url"]).size == (50, 100)
    assert text == [{"type": "text", "text": "a red star"}]
    assert score(Script(), documents[:2])[1] is None, "without ?images=true it reads texts"


def test_pages_frames_and_regions_are_drawn_upright_and_small(tmp_path: Path) -> None:
    path = tmp_path / "wide.jpg"
    half = PIL.Image.new("RGB", (600, 400), "red")
    half.paste("blue", (300, 0, 600, 400))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # it is shown turned to the right
    half.save(path, exif=exif)
    script = Script()
    documents = [Document("all", image=path), Document("part", image=Path(f"{path}#xywh=0,300,400,300"))]
    assert None not in score(script, documents, images=True, image_size=300)
    turned, part = [decoded(sent["content"][0]["image_url"]["url"]) for sent in script.requests[0]["documents"]]
    assert turned.size == (200, 300)
    assert part.size == (300, 225)
    assert part.convert("RGB").getpixel((150, 100)) == pytest.approx((0, 0, 255), abs=4)


def test_of_a_picture_that_is_refused_the_text_is_judged() -> None:
    broken, good = PIL.Image.new("RGB", REFUSED_SIZE), PIL.Image.new("RGB", (8, 8))
    documents = [
        Document("good", image=good),
        Document("with text", text="a red star", image=broken),
        Document("alone", image=broken),
    ]
    for some in (documents, documents[1:]):
        *others, with_text, alone = score(Script(), some, images=True)
        assert None not in others
        assert with_text == score(Script(), [Document("a", text="a red star")])[0]
        assert alone is None


def test_a_server_that_refuses_pictures_is_told_from_bad_pictures() -> None:
    documents = [Document("a", text="a red star", image=PIL.Image.new("RGB", (8, 8))), DOCUMENTS[1]]
    with pytest.raises(ConfigError, match=r"refuses pictures \(At most 0 image.*leave \?images=true out"):
        score(Script(max_images=0), documents, images=True)
    assert None not in score(Script(max_images=0), documents)


def test_batches_have_their_limits() -> None:
    script, small = Script(), Script(most=3)
    documents = [Document(str(n), text=f"{'red ' * (n % 3)}star {n}") for n in range(8)]
    assert score(script, documents, batch_size=3) == pytest.approx(score(small, documents))
    assert [len(body["documents"]) for body in script.requests] == [3, 3, 2]


def test_of_a_document_that_is_too_long_the_beginning_is_read() -> None:
    begin, end = "red star " * MAX_WORDS, "nothing of it " * MAX_WORDS
    documents = [Document("a", text=begin), Document("b", text=end + begin), Document("c", text="a red star")]
    first, last, short = score(Script(), documents, max_chars=10**6)
    assert first == short
    assert last is not None
    assert last < 0.1
    script = Script()
    score(script, documents, max_chars=100)
    assert max(len(text) for text in script.requests[0]["documents"]) <= 100


def test_a_query_that_is_too_long_is_cut_or_named() -> None:
    with pytest.warns(TextTruncatedWarning, match="its first 8,000 characters"):
        score(Script(), DOCUMENTS, query="red star " * 2000)
    refusing = Script(faults=["400 maximum context length is 9"] * 20)
    with pytest.raises(InvalidInputError, match="finds the query too long") as caught:
        score(refusing, DOCUMENTS[:1])
    assert caught.value.code == "too_long"


def test_a_document_that_the_server_refuses_is_not_judged() -> None:
    documents = [*DOCUMENTS, Document("x", text="a forbidden star")]
    scores = score(Script(refuses="forbidden"), documents)
    assert [given is None for given in scores] == [False, False, False, True]
    assert score(Script(refuses="forbidden"), documents[-1:]) == [None]


def test_a_wrong_option_is_no_fault_of_the_documents() -> None:
    with pytest.raises(ConfigError, match="The model `wrong` does not exist"):
        score(Script(), DOCUMENTS, model="wrong")


def without_zeros(answer: Any) -> Any:
    """The answer of a server behind protobuf, whose scores have TEI's name."""
    ranks = [{"index": rank["index"], "score": rank["relevance_score"]} for rank in answer["results"]]
    return {"results": [{name: value for name, value in rank.items() if value != 0} for rank in ranks]}


def test_an_index_that_is_left_out_is_0() -> None:
    texts = DOCUMENTS[::-1]
    assert score(Script(change=without_zeros), texts) == score(Script(), texts)


# ---- what goes wrong


def changed(**changes: Any) -> Any:
    return lambda answer: {"results": [{**rank, **changes} for rank in answer["results"]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda answer: {"results": answer["results"][1:]}, "not a list of 3 scores, one for each index"),
        (lambda answer: {"results": [*answer["results"], answer["results"][0]]}, "a list of 3 scores"),
        (changed(index=0), "a list of 3 scores"),
        (changed(index=7), "a list of 3 scores"),
        (changed(index="0"), "a list of 3 scores"),
        (changed(index=[0]), "a list of 3 scores"),
        (changed(relevance_score="high"), "finite numbers"),
        (changed(relevance_score=None), "finite numbers"),
        (changed(relevance_score=True), "finite numbers"),
        (changed(relevance_score=10**400), "finite numbers"),
        (changed(relevance_score=3.2), r"probabilities \(3.2 is none; \?scores=logit takes logits\)"),
        (changed(relevance_score=-0.1), "probabilities"),
        (changed(index=None), "a list of 3 scores"),
        (lambda _: {"results": None}, "not a list of scores"),
        (lambda _: {"results": 3}, "not a list of scores"),
        (lambda _: [], "a list of 3 scores"),
        (lambda _: b" " * 2**20, "more than"),
    ],
)
def test_what_is_no_answer_is_an_error_of_the_server(change: Any, message: str) -> None:
    with pytest.raises(BackendError, match=message) as caught:
        score(Script(change=change), DOCUMENTS)
    assert type(caught.value) is BackendError


def test_logits_become_probabilities() -> None:
    given = score(Script(logits=True), DOCUMENTS, scores="logit")
    assert given == pytest.approx(score(Script(), DOCUMENTS))
    with pytest.raises(BackendError, match=r"\?scores=logit takes logits"):
        score(Script(logits=True), DOCUMENTS)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("cohere:http://localhost?batch_size=0", "`batch_size` is from 1 to 16,777,216, not 0"),
        ("cohere:http://localhost?form=tei&images=true", r"\?form=tei has no place for images"),
        ("cohere:http://localhost?scores=raw", "is one of probability, logit"),
    ],
)
def test_a_wrong_url_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_reranker(url)


def test_nothing_is_sent_without_documents_to_judge() -> None:
    script = Script()
    assert score(script, [Document("a"), Document("b", text=" ")]) == [None, None]
    assert script.requests == []


def test_the_mock_agrees_with_the_stand_in() -> None:
    with ModelServer() as server, Pipeline(MockEncoder(), MemoryStore(), reranker=MockReranker()) as pipeline:
        pipeline.add(DOCUMENTS)
        here = pipeline.search("red star", rerank=True)
        there = pipeline.search("red star", rerank=f"cohere:{server.url}?model={MODEL}", rerank_seconds=60)
        assert [match.document.id for match in here] == [match.document.id for match in there]
