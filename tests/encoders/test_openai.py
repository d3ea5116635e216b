"""`openai:` as an encoder: against the service, and against a server that is strict and goes wrong in every way."""

from __future__ import annotations

import base64
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder
from vlmsearch_mocks.contracts import EncoderContract

from tests.support.model_server import _READERS, DIM, MAX_WORDS, MODEL, ModelServer, Script, decoded
from tests.support.service import serving
from vlmsearch import (
    BackendError,
    ConfigError,
    Document,
    IndexMismatchError,
    Pipeline,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.openai.encoder import OpenAIEncoder
from vlmsearch.encoders.openai.forms import vectors_of
from vlmsearch.errors import InvalidBatchError, TextTruncatedWarning
from vlmsearch.registry import open_encoder
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.types import Role

FORMS = ("openai", "vllm", "infinity", "nim", "jina", "tei")
WITH_IMAGES = ("vllm", "infinity", "nim", "jina")


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The service with the demonstration models: ``clip`` for images and texts, ``minilm`` for texts."""
    index = IndexSettings("mock:", "onnx:demo", generator="")
    with serving(ServerSettings(indexes={"default": index})) as running:
        yield f"{running.url}/v1"


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """A stand-in for each form, by its name."""
    with ExitStack() as stack:
        yield {form: stack.enter_context(ModelServer(Script(form))).url for form in FORMS}


class TestServiceWithImages(EncoderContract):
    @pytest.fixture(autouse=True)
    def _service(self, service: str) -> None:
        self.url = service

    def make_encoder(self) -> Encoder:
        return open_encoder(f"openai:{self.url}?model=default/clip&form=infinity&images=true")


class TestServiceWithTexts(EncoderContract):
    @pytest.fixture(autouse=True)
    def _service(self, service: str) -> None:
        self.url = service

    def make_encoder(self) -> Encoder:
        return open_encoder(f"openai:{self.url}?model=minilm&query_role=query&document_role=document&dim=96")


class StandIn(EncoderContract):
    form = ""

    @pytest.fixture(autouse=True)
    def _server(self, servers: dict[str, str]) -> None:
        self.url = servers[self.form]

    def make_encoder(self) -> Encoder:
        images = self.form in WITH_IMAGES
        return open_encoder(f"openai:{self.url}?model={MODEL}&form={self.form}&images={images}&dim={DIM}")


@pytest.mark.slow
class TestOpenAI(StandIn):
    form = "openai"


class TestVllm(StandIn):
    form = "vllm"


@pytest.mark.slow
class TestInfinity(StandIn):
    form = "infinity"


@pytest.mark.slow
class TestNim(StandIn):
    form = "nim"


@pytest.mark.slow
class TestJina(StandIn):
    form = "jina"


class TestTei(StandIn):
    form = "tei"


def test_vectors_are_those_of_the_model_in_process(service: str) -> None:
    scenes = [make_scene(seed).draw(64) for seed in range(5)]
    here, texts = open_encoder("onnx:demo"), ["a red star", "two blue hearts on a meadow"]
    with open_encoder(f"openai:{service}?model=clip&form=infinity&images=true") as there, here:
        assert there.encode_texts(texts)["clip"] == pytest.approx(here.encode_texts(texts)["clip"], abs=1e-5)
        cosines = np.sum(there.encode_images(scenes)["clip"] * here.encode_images(scenes)["clip"], axis=1)
    assert cosines.min() > 0.97, "JPEG costs little"


def test_a_pipeline_finds_images_and_texts_over_http(service: str, tmp_path: Path) -> None:
    for seed in range(12):
        make_scene(seed).draw(64).save(tmp_path / f"{seed}.png")
    url = f"openai:{service}?model=clip&form=infinity&images=true"
    with Pipeline.open(encoder=url, store="mock:") as pipeline:
        report = pipeline.index(tmp_path)
        assert (report.added, report.rejects) == (12, ())
        found = pipeline.search(image=tmp_path / "3.png", limit=1)
        assert Path(found[0].document.id).name == "3.png"
        assert pipeline.info()["fingerprint"].startswith("openai:clip?dim=")


# ---- what is sent


def ask(script: Script, *, texts: list[str], role: Any = "document", **options: Any) -> Any:
    """What an encoder with some options makes of texts, with a server that follows a script."""
    with ModelServer(script) as server:
        options = {"model": MODEL, "form": script.form, **options}
        with OpenAIEncoder(server.url, **options) as encoder:
            return encoder.encode_texts(texts, role=role)["model-1"]


def test_nothing_is_sent_before_it_is_needed() -> None:
    with ModelServer() as server:
        encoder = OpenAIEncoder(server.url, model=MODEL, dim=DIM)
        assert (encoder.spaces[0].dim, encoder.spaces[0].name) == (DIM, "model-1")
        assert encoder.fingerprint == f"openai:{MODEL}?dim={DIM}"
        assert server.script.requests == []
        lazy = OpenAIEncoder(server.url, model=MODEL)
        assert server.script.requests == []
        assert lazy.spaces[0].dim == DIM
        assert lazy.fingerprint == encoder.fingerprint
        assert len(server.script.requests) == 1


@pytest.mark.parametrize("form", FORMS)
def test_texts_have_the_form_of_the_server(form: str) -> None:
    script = Script(form)
    ask(script, texts=["a dog"], role="query", dim=DIM, query_prompt="find: ")
    plain = {"model": MODEL, "encoding_format": "float", "dimensions": DIM}
    text = "find: a dog"
    chat = [
        {"role": "system", "content": [{"type": "text", "text": "find: "}]},
        {"role": "user", "content": [{"type": "text", "text": "a dog"}]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
    ]
    expected: dict[str, dict[str, object]] = {
        "openai": {**plain, "input": [text]},
        "vllm": {**plain, "messages": chat, "continue_final_message": True, "add_special_tokens": True},
        "infinity": {**plain, "input": [text], "modality": "text"},
        "nim": {**plain, "input": [text], "modality": "text", "input_type": "query", "truncate": "NONE"},
        "jina": {"model": MODEL, "dimensions": DIM, "input": [{"text": text}], "task": "retrieval.query"},
        "tei": {"inputs": [text], "normalize": True, "truncate": False, "dimensions": DIM},
    }
    assert script.requests == [expected[form]]


@pytest.mark.parametrize("form", WITH_IMAGES)
def test_images_are_small_when_they_are_sent(form: str) -> None:
    script = Script(form)
    image = PIL.Image.new("RGB", (900, 300), "red")
    ask_images(script, [image])
    [body] = script.requests
    if form == "vllm":
        url = body["messages"][0]["content"][0]["image_url"]["url"]
    else:
        url = f"data:image/jpeg;base64,{body['input'][0]['image']}" if form == "jina" else body["input"][0]
    sent = decoded(url)
    assert sent.size == (300, 100)
    assert body.get("input_type", "passage") == "passage"


def ask_images(script: Script, images: list[PIL.Image.Image]) -> None:
    options: dict[str, Any] = {"model": MODEL, "form": script.form, "images": True, "dim": DIM, "image_size": 300}
    with ModelServer(script) as server, OpenAIEncoder(server.url, **options) as encoder:
        encoder.encode_images(images)


@pytest.mark.parametrize(
    ("form", "place"), [("openai", "input_type"), ("tei", "prompt_name"), ("jina", "task"), ("vllm", "role")]
)
def test_roles_are_told_where_the_form_has_their_place(form: str, place: str) -> None:
    script = Script(form)
    options: dict[str, Any] = {"form": form, "dim": DIM, "query_role": "asks", "document_role": "says"}
    roles: tuple[Role, ...] = ("query", "document")
    for role in roles:
        try:
            ask(script, texts=["a dog"], role=role, **options)
        except ConfigError:
            assert form in ("openai", "jina"), "the stand-in is strict"
    sent = [body["messages"][0] if form == "vllm" else body for body in script.requests]
    told = [body[place] for body in sent]
    assert told[0] == "asks"
    assert told[-1] == "says"


def test_the_fingerprint_names_what_vectors_depend_on_and_no_host() -> None:
    def fingerprint(url: str = "http://localhost:1/v1", **options: Any) -> str:
        return OpenAIEncoder(url, **{"model": "a/b", "dim": 8, **options}).fingerprint

    assert fingerprint() == fingerprint("https://elsewhere.example/api/v1", batch_size=3) == "openai:a/b?dim=8"
    others = [
        fingerprint(model="a/c"),
        fingerprint(dim=9),
        fingerprint(query_prompt="find: "),
        fingerprint(document_prompt="find: "),
        fingerprint(query_role="q"),
        fingerprint(document_role="q"),
        fingerprint(form="vllm"),
        fingerprint(form="infinity", images=True),
        fingerprint(form="nim"),
    ]
    assert len({fingerprint(), *others}) == len(others) + 1
    assert fingerprint(query_prompt="a + b\n") == "openai:a/b?dim=8&query_prompt=a%20%2B%20b%0A"


def test_an_index_takes_no_vectors_with_another_instruction() -> None:
    store = MemoryStore()
    with ModelServer() as server:
        with Pipeline(OpenAIEncoder(server.url, model=MODEL), store) as pipeline:
            pipeline.add(Document("a", text="a dog"))
        other = OpenAIEncoder(server.url, model=MODEL, document_prompt="passage: ")
        with pytest.raises(IndexMismatchError, match="document_prompt=passage"), Pipeline(other, store) as pipeline:
            pipeline.add(Document("b", text="a cat"))


def test_batches_and_requests_at_a_time_have_their_limits() -> None:
    script = Script(wait=threading.Barrier(3))
    texts = [f"text {number}" for number in range(12)]
    rows = ask(script, texts=texts, dim=DIM, batch_size=2, concurrency=3)
    assert [len(body["input"]) for body in script.requests] == [2] * 6
    assert script.at_once == 3
    assert rows == pytest.approx(MockEncoder().encode_texts(texts)["clip"], abs=1e-5)


# ---- length of the vectors


@pytest.mark.parametrize("dims", [(DIM, 32), ()], ids=["cut by the server", "cut here"])
def test_shorter_vectors_have_length_one(dims: tuple[int, ...]) -> None:
    script = Script(dims=dims)
    rows = ask(script, texts=["a dog in the snow", "two cats and a car"], dim=32)
    whole = MockEncoder().encode_texts(["a dog in the snow", "two cats and a car"])["clip"][:, :32]
    assert rows == pytest.approx(whole / np.linalg.norm(whole, axis=1, keepdims=True), abs=1e-5)
    assert script.requests[0]["dimensions"] == 32


def test_a_model_that_cannot_be_cut_is_used_whole_or_not_at_all() -> None:
    script = Script(dims=(1,))
    assert ask(script, texts=["a", "b"], dim=DIM, batch_size=1).shape == (2, DIM)
    assert [body.get("dimensions") for body in script.requests][-1] is None
    with pytest.raises(ConfigError, match=rf"has vectors of {DIM} numbers, not of 32; .*does not support matryoshka"):
        ask(Script(dims=(1,)), texts=["a"], dim=32)
    with pytest.raises(ConfigError, match=rf"has vectors of {DIM} numbers, not of 4096"):
        ask(Script(dims=()), texts=["a"], dim=4096)


def test_another_model_in_the_middle_is_noticed() -> None:
    script = Script()
    with ModelServer(script) as server, OpenAIEncoder(server.url, model=MODEL) as encoder:
        encoder.encode_texts(["a"])
        script.change = lambda answer: shorter(answer)
        with pytest.raises(BackendError, match=rf"sent vectors of {DIM} numbers before and sends 5 now"):
            encoder.encode_texts(["a"])


def shorter(answer: Any) -> Any:
    return {"data": [{**entry, "embedding": entry["embedding"][:5]} for entry in answer["data"]]}


# ---- what is too long, or refused


@pytest.mark.parametrize("form", ["openai", "vllm", "tei"])
def test_a_text_that_the_model_finds_too_long_is_cut(form: str) -> None:
    long = " ".join(f"word{number}" for number in range(3 * MAX_WORDS))
    texts, script = ["a dog", long, "a cat"], Script(form)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TextTruncatedWarning)
        rows = ask(script, texts=texts, dim=DIM, max_chars=10**6)
    assert rows == pytest.approx(MockEncoder().encode_texts(texts)["clip"], abs=1e-5)
    sent = [len(text.split()) for request in script.requests for text in _READERS[form](request)[1]]
    assert max(count for count in sent if count <= MAX_WORDS) > MAX_WORDS // 2
    with pytest.warns(TextTruncatedWarning):
        cut = ask(Script(form), texts=[long], dim=DIM, role="query", max_chars=10**6)
    assert cut[0] == pytest.approx(rows[1], abs=1e-5)


def test_a_batch_that_is_too_large_for_the_server_is_made_smaller() -> None:
    script = Script(most=3)
    texts = [f"text {number}" for number in range(8)]
    rows = ask(script, texts=texts, dim=DIM)
    assert rows == pytest.approx(MockEncoder().encode_texts(texts)["clip"], abs=1e-5)


def test_a_text_that_the_server_refuses_is_named_and_the_others_are_encoded() -> None:
    texts = ["a dog", "a forbidden cat", "a car", "a forbidden sofa"]
    with pytest.raises(InvalidBatchError, match="refused by policy") as caught:
        ask(Script(refuses="forbidden"), texts=texts, dim=DIM)
    assert {place: error.code for place, error in caught.value.items.items()} == {1: "invalid", 3: "invalid"}
    assert caught.value.vectors is not None
    good = MockEncoder().encode_texts(["a dog", "a car"])["clip"]
    assert caught.value.vectors["model-1"] == pytest.approx(good, abs=1e-5)


def test_indexing_puts_what_the_server_refuses_on_the_reject_list() -> None:
    documents = [Document("a", text="a dog"), Document("b", text="a forbidden cat")]
    with (
        ModelServer(Script(refuses="forbidden")) as server,
        Pipeline(OpenAIEncoder(server.url, model=MODEL), MemoryStore()) as pipeline,
    ):
        report = pipeline.add(documents)
    assert (report.added, [reject.id for reject in report.rejects]) == (1, ["b"])


def test_a_wrong_option_is_no_fault_of_the_texts() -> None:
    script = Script()
    with pytest.raises(ConfigError, match=r"refused the request \(400: The model `wrong` does not exist"):
        ask(script, texts=["a", "b", "c", "d"], dim=DIM, model="wrong")
    assert len(script.requests) == 2, "one more, to see whose fault it is"
    with ModelServer() as server, pytest.raises(ConfigError, match="does not exist"):
        _ = OpenAIEncoder(server.url, model="wrong").spaces


def test_an_image_that_the_server_refuses_is_named() -> None:
    script = Script("infinity", faults=["", "400 aspect ratio", "400 aspect ratio", ""])
    images = [PIL.Image.new("RGB", (20, 20), colour) for colour in ("red", "green")]
    with (
        ModelServer(script) as server,
        OpenAIEncoder(server.url, model=MODEL, form="infinity", images=True, dim=DIM) as encoder,
    ):
        encoder.encode_images(images)
        with pytest.raises(InvalidBatchError, match="aspect ratio") as caught:
            encoder.encode_images(images)
    assert {place: error.code for place, error in caught.value.items.items()} == {0: "unsupported"}


# ---- answers of other servers


def in_base64(numbers: list[float]) -> Any:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: {name: value for name, value in entry.items() if name != "index" or value},
        lambda entry: {**entry, "index": entry["index"] or None},
        lambda entry: {**entry, "embedding": in_base64(entry["embedding"])},
    ],
    ids=["protobuf", "null", "base64"],
)
def test_vectors_are_in_the_order_of_their_indexes(change: Any) -> None:
    texts = ["a dog", "a cat", "a car"]
    script = Script(change=lambda answer: {"data": [change(entry) for entry in answer["data"][::-1]]})
    assert ask(script, texts=texts) == pytest.approx(MockEncoder().encode_texts(texts)["clip"], abs=1e-5)


@pytest.mark.parametrize("index", [{}, {"index": None}], ids=["missing", "null"])
def test_vectors_without_an_index_are_in_the_order_of_the_texts(index: dict[str, None]) -> None:
    vectors = vectors_of({"data": [{"embedding": [number, 0], **index} for number in (1, -2)]}, "openai", 2)
    assert vectors.tolist() == [[1, 0], [-1, 0]]


# ---- what goes wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda answer: {"data": answer["data"][:1]}, "not a list of 2 vectors, one for each index"),
        (lambda answer: {"data": answer["data"][1:]}, "not a list of 2 vectors"),
        (lambda answer: {"data": [*answer["data"], answer["data"][0]]}, "not a list of 2 vectors, one for each index"),
        (lambda answer: {"data": answer["data"][:1] * 2}, "not a list of 2 vectors, one for each index"),
        (lambda answer: {"data": []}, "not a list of 2 vectors"),
        (lambda answer: {"data": [{**entry, "index": True} for entry in answer["data"]]}, "one for each index"),
        (lambda answer: {"data": "x"}, "not a list of vectors"),
        (lambda answer: [], "not a list of 2 vectors"),
        (lambda answer: replaced(answer, [None] * 3), "not a list of vectors"),
        (lambda answer: replaced(answer, ["1.0"]), "not a list of vectors"),
        (lambda answer: replaced(answer, []), "not a list of vectors"),
        (lambda answer: replaced(answer, "AAAAAAA="), "not a list of vectors"),
        (lambda answer: replaced(answer, in_base64([float("nan")])), "finite and not zero"),
        (lambda answer: {"data": [{**entry, "index": -1} for entry in answer["data"]]}, "one for each index"),
        (lambda answer: {"data": [{"embedding": [1.0]}, {"embedding": [1.0], "index": 0}]}, "one for each index"),
        (lambda answer: replaced(answer, [1.0, 2.0], only=0), "not a list of vectors of one length"),
        (lambda answer: replaced(answer, [0.0] * DIM), "finite and not zero"),
        (lambda answer: replaced(answer, [1e300] * DIM), "finite and not zero"),
        (lambda answer: replaced(answer, [10**400] * DIM), "vectors of one length"),
        (lambda answer: b" " * (4 * 2**20), "more than 3,145,728 bytes"),
    ],
)
def test_what_is_no_answer_is_an_error_of_the_server(change: Any, message: str) -> None:
    with pytest.raises(BackendError, match=message) as caught:
        ask(Script(change=change), texts=["a dog", "a cat"])
    assert type(caught.value) is BackendError
    assert len(str(caught.value)) < 400


def replaced(answer: Any, embedding: Any, only: int | None = None) -> Any:
    rows = [{**entry, "embedding": embedding} if only in (None, entry["index"]) else entry for entry in answer["data"]]
    return {"data": rows}


def test_a_list_of_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="a list of 2 vectors"):
        vectors_of([[1.0]], "tei", 2)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("openai:http://localhost/v1", r"needs \?model="),
        ("openai:http://localhost/v1?model=m&dim=0", "`dim` is from 1 to 16,777,216, not 0"),
        ("openai:http://localhost/v1?model=m&batch_size=0", "`batch_size` is from 1 to 16,777,216, not 0"),
        ("openai:http://localhost/v1?model=m&concurrency=-1", "`concurrency` is from 1 to"),
        ("openai:http://localhost/v1?model=m&images=true", "these have one: vllm, infinity, nim, jina"),
        ("openai:http://localhost/v1?model=m&form=tei&images=true", "these have one: vllm, infinity, nim, jina"),
        ("openai:http://localhost/v1?model=m&form=vllm&query_role=", "query_role and document_role are not empty"),
        ("openai:http://localhost/v1?model=m&form=other", "is one of openai, vllm"),
    ],
)
def test_a_wrong_url_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_encoder(url)


@pytest.mark.parametrize(("form", "hint"), [("openai", "usually ends in /v1"), ("tei", "ends before /embed")])
def test_a_wrong_path_is_explained(form: str, hint: str) -> None:
    with ModelServer(Script(form)) as server, pytest.raises(ConfigError, match=hint):
        _ = OpenAIEncoder(f"{server.root}/wrong", model=MODEL, form=form).spaces  # type: ignore[arg-type]
