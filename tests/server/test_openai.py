"""OpenAI's own client against the service."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.checkpoints import make_bert, make_recipe
from tests.support.long_texts import long_record
from tests.support.odd_images import encoded
from tests.support.service import RunningService, serving
from vlmsearch import Document
from vlmsearch.building.bundle import build_bundle
from vlmsearch.demo.scenes import make_scene
from vlmsearch.models.recipe import find_recipe
from vlmsearch.registry import open_encoder
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

TEXTS = ["a red star above a meadow", "two blue hearts"]


@dataclass(frozen=True)
class OpenAIService:
    """A service with the indexes ``gallery``, ``notes`` and ``hidden``, and clients of it by the names of tokens."""

    running: RunningService
    clients: Mapping[str, Any]  # what it takes and gives is typed by what OpenAI's servers do

    @property
    def client(self) -> Any:
        return self.clients["reader"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIService]:
    folder = tmp_path_factory.mktemp("openai")
    tokens = TokenFile(folder / "tokens.json")
    secrets = {
        "reader": tokens.add("reader", role="read", indexes=["gallery", "notes"]),
        "all": tokens.add("all", role="admin"),
    }
    settings = ServerSettings(
        indexes={
            "gallery": IndexSettings(f"sqlite:{folder / 'gallery'}", "onnx:demo", "mock:"),
            "notes": IndexSettings("mock:", "mock:", "extractive:"),
            "hidden": IndexSettings("mock:", "onnx:demo", ""),
        },
        tokens=str(tokens.path),
        uploads=str(folder / "uploads"),
    )
    make_scene(1).draw(64).save(folder / "1.png")
    with serving(settings) as running:
        notes = {"a": "The dog is called Laika.", "b": "The car is blue.", "c": "Cats sleep."}
        running.service.indexes["notes"].pipeline.add(Document(id, text=text) for id, text in notes.items())
        gallery = running.service.indexes["gallery"].pipeline
        gallery.add([Document("star & heart", text=TEXTS[0], image=folder / "1.png"), Document("b", text=TEXTS[1])])
        yield OpenAIService(running, {name: client_of(running.url, secret) for name, secret in secrets.items()})


def client_of(url: str, secret: str) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0)


def data_url(seed: int = 1) -> str:
    return "data:image/png;base64," + base64.b64encode(encoded(make_scene(seed).draw(64), "PNG")).decode()


# ------------------------------------------------------------------------------------------------------- models


def test_models_are_those_that_a_token_may_see(service: OpenAIService) -> None:
    import openai

    seen = {name: [model.id for model in client.models.list()] for name, client in service.clients.items()}
    mine = ["gallery/clip", "gallery/minilm", "notes/clip", "notes/minilm"]
    assert seen["reader"] == [*mine, "gallery", "notes"]
    assert seen["all"] == [*mine, "hidden/clip", "hidden/minilm", "gallery", "notes"]
    assert service.client.models.retrieve("gallery/clip").id == "gallery/clip"
    for hidden in ("hidden/clip", "nowhere"):
        with pytest.raises(openai.NotFoundError) as caught:
            service.client.models.retrieve(hidden)
        assert caught.value.code == "model_not_found"


def test_a_wrong_token_is_refused(service: OpenAIService) -> None:
    import openai

    with pytest.raises(openai.AuthenticationError, match="not in force"):
        client_of(service.running.url, "vlms_wrong").models.list()


# --------------------------------------------------------------------------------------------------- embeddings


def vector_of(given: object) -> np.ndarray:
    """What was sent, either way."""
    return np.frombuffer(base64.b64decode(given), "<f4") if isinstance(given, str) else np.array(given)


@pytest.mark.parametrize("role", ["document", "query"])
@pytest.mark.parametrize("model", ["gallery/minilm", "demo-minilm"])
def test_embeddings_are_the_encoders(service: OpenAIService, model: str, role: str) -> None:
    with open_encoder("onnx:demo") as encoder:
        expected = encoder.encode_texts(TEXTS, role="query" if role == "query" else "document")["minilm"]
        tokens = sum(encoder.count_tokens(TEXTS, space="minilm"))  # type: ignore[attr-defined]
    for given in ("float", "base64"):
        found = service.client.embeddings.create(
            model=model,
            input=TEXTS,
            encoding_format=given,
            extra_body={"input_type": role},
        )
        rows = [vector_of(each.embedding) for each in found.data]
        np.testing.assert_allclose(rows, expected, atol=1e-6)
        assert [each.index for each in found.data] == [0, 1]
        assert (found.model, found.usage.prompt_tokens, found.usage.total_tokens) == (model, tokens, tokens)


def test_what_the_client_asks_for_by_itself_is_decoded(service: OpenAIService) -> None:
    [found] = service.client.embeddings.create(model="gallery/clip", input=TEXTS[0]).data
    with open_encoder("onnx:demo") as encoder:
        np.testing.assert_allclose(found.embedding, encoder.encode_texts(TEXTS[:1])["clip"][0], atol=1e-6)


def test_token_ids_give_the_vectors_of_their_text(service: OpenAIService) -> None:
    with open_encoder("onnx:demo") as encoder:
        rows = encoder._texts["minilm"]._token_ids(TEXTS, ["document"] * len(TEXTS))  # type: ignore[attr-defined]
        expected = encoder.encode_texts(TEXTS)["minilm"]
    several = service.client.embeddings.create(model="gallery/minilm", input=rows)
    np.testing.assert_allclose([each.embedding for each in several.data], expected, atol=1e-6)
    assert several.usage.prompt_tokens == sum(map(len, rows))
    one = service.client.embeddings.create(model="gallery/minilm", input=rows[0])
    np.testing.assert_allclose(one.data[0].embedding, expected[0], atol=1e-6)


def test_images_are_embedded_as_infinity_takes_them(service: OpenAIService) -> None:
    images = [make_scene(seed).draw(64) for seed in (1, 2)]
    with open_encoder("onnx:demo") as encoder:
        expected = encoder.encode_images(images)["clip"]
    found = service.client.embeddings.create(
        model="gallery/clip", input=[data_url(1), data_url(2)], extra_body={"modality": "image"}
    )
    np.testing.assert_allclose([each.embedding for each in found.data], expected, atol=1e-5)
    assert found.usage.prompt_tokens == 0


@pytest.mark.parametrize(
    ("model", "given", "more", "status", "said"),
    [
        ("nowhere", "a", {}, 404, "GET /v1/models lists them"),
        ("hidden/clip", "a", {}, 404, "GET /v1/models lists them"),
        ("clip", "a", {}, 400, "write gallery/clip, notes/clip"),
        ("gallery/minilm", data_url(), {"modality": "image"}, 400, "encodes text, not image"),
        ("gallery/clip", "https://example.com/a.png", {"modality": "image"}, 400, "data URL"),
        ("gallery/clip", "data:image/png;base64,AAAA", {"modality": "image"}, 400, ""),
        ("gallery/clip", "a", {"dimensions": 16}, 400, "what its model was trained for: 64; not 16"),
        ("gallery/clip", "a", {"dimensions": 0}, 422, "dimensions"),
        ("gallery/minilm", [[1, 99_999]], {}, 400, "99999 is not a token of demo-minilm"),
        ("notes/clip", [1, 2], {}, 400, "takes texts, not token ids"),
        ("gallery/clip", [], {}, 422, "input"),
        ("gallery/clip", ["a"] * 2049, {}, 422, "input"),
        ("gallery/clip", "a", {"encoding_format": "hex"}, 422, "encoding_format"),
    ],
)
def test_what_cannot_be_embedded_is_said(
    service: OpenAIService, model: str, given: object, more: dict[str, object], status: int, said: str
) -> None:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        service.client.embeddings.create(model=model, input=given, extra_body=more)
    assert caught.value.status_code == status
    assert said in str(caught.value.message)


@pytest.mark.slow
def test_a_model_for_several_lengths_is_cut(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, make_bert(tmp_path), space="minilm")
    recipe.write_text(f"dims = [8]\n{recipe.read_text()}")
    bundle = build_bundle(find_recipe(str(recipe)), out=tmp_path / "bundle").folder
    settings = ServerSettings(
        indexes={"notes": IndexSettings("mock:", f"onnx:{bundle}/", "")}, uploads=str(tmp_path / "uploads")
    )
    with serving(settings) as running:
        client = client_of(running.url, "none")
        whole = np.array(client.embeddings.create(model="minilm", input=TEXTS[0]).data[0].embedding)
        cut = np.array(client.embeddings.create(model="minilm", input=TEXTS[0], dimensions=8).data[0].embedding)
    assert len(whole) > len(cut) == 8
    np.testing.assert_allclose(cut, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)


# --------------------------------------------------------------------------------------------- chat completions

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the dog called?"}]


def test_an_answer_cites_its_sources(service: OpenAIService) -> None:
    found = service.client.chat.completions.create(model="notes", messages=QUESTION)
    message = found.choices[0].message
    expected = service.running.service.indexes["notes"].pipeline.ask("What is the dog called?")
    assert message.content == expected.text
    assert "“The dog is called Laika.” [1]" in expected.text
    assert len(message.annotations) == expected.text.count("[")
    citation = message.annotations[0].url_citation
    assert message.content[citation.start_index : citation.end_index] == "[1]"
    assert citation.title == "a"
    assert citation.url == f"{service.running.url}/api/v1/indexes/notes/documents?id=a"
    assert [match["id"] for match in found.matches] == [match.document.id for match in expected.matches]
    assert (found.object, found.choices[0].finish_reason, found.usage.total_tokens) == ("chat.completion", "stop", 0)
    headers = {"Authorization": f"Bearer {service.client.api_key}"}
    assert httpx.get(citation.url, headers=headers).json()["documents"][0]["text"] == "The dog is called Laika."


def test_a_cited_passage_can_be_opened(service: OpenAIService) -> None:
    pipeline = service.running.service.indexes["notes"].pipeline
    pipeline.store.upsert([long_record(pipeline.encoder, "handbook")])
    asked = [{"role": "user", "content": "What is the emergency number of the plumber?"}]
    found = service.client.chat.completions.create(model="notes", messages=asked)
    pipeline.store.delete(["handbook"])
    citation = found.choices[0].message.annotations[0].url_citation
    assert citation.title == "handbook"
    assert citation.url.endswith("/documents?id=handbook%23passage%3D3")
    assert found.matches[0]["passage"]["heading"] == "Keys"


def test_a_cited_picture_can_be_opened(service: OpenAIService) -> None:
    asked = [
        {
            "role": "user",
            "content": [{"type": "text", "text": TEXTS[0]}, {"type": "image_url", "image_url": {"url": data_url()}}],
        }
    ]
    found = service.client.chat.completions.create(model="gallery", messages=asked)
    assert found.choices[0].message.content == "A mock reply [1]."
    citation = found.choices[0].message.annotations[0].url_citation
    assert citation.title == "star & heart"
    picture = httpx.get(citation.url, headers={"Authorization": f"Bearer {service.client.api_key}"})
    assert picture.headers["content-type"] == "image/png"


def test_usage_counts_the_prompt_with_its_sources(service: OpenAIService) -> None:
    asked = [{"role": "user", "content": "a red star"}]
    found = service.client.chat.completions.create(model="gallery", messages=asked, max_tokens=2)
    generator = service.running.service.indexes["gallery"].pipeline.generator
    assert found.choices[0].message.content == "A mock"
    assert generator.options[-1].max_tokens == 2  # type: ignore[union-attr]
    assert found.usage.prompt_tokens == len(generator.prompts[-1].split())  # type: ignore[union-attr]
    assert found.usage.completion_tokens == 2


def test_a_stream_gives_the_same_answer_in_pieces(service: OpenAIService) -> None:
    asked = [{"role": "user", "content": "a red star"}]
    stream = service.client.chat.completions.create(
        model="gallery",
        messages=asked,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    pieces = [delta.content for delta in deltas if delta.content]
    assert len(pieces) > 1
    assert "".join(pieces) == "A mock reply [1]."
    [last] = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert last.choices[0].finish_reason == "stop"
    assert last.choices[0].delta.annotations[0]["url_citation"]["title"] == last.matches[0]["id"]
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 4)
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("model", ["notes", "gallery"])
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_a_stream_tells_its_usage_where_it_is_asked_to(
    service: OpenAIService, model: str, options: dict[str, bool] | None
) -> None:
    asked = [{"role": "user", "content": "What is the dog called? A red star?"}]
    whole = service.client.chat.completions.create(model=model, messages=asked)
    chunks = list(
        service.client.chat.completions.create(model=model, messages=asked, stream=True, stream_options=options)
    )
    *others, last = chunks
    is_asked = bool(options and options["include_usage"]) if options else False
    assert [chunk.choices == [] for chunk in chunks] == [False] * len(others) + [is_asked]
    assert all("usage" in chunk.model_fields_set for chunk in chunks) == is_asked
    assert [chunk.usage for chunk in others] == [None] * len(others)
    assert last.usage == (whole.usage if is_asked else None)
    assert (whole.usage.total_tokens > 0) is (model == "gallery")


def test_nothing_found_is_said_without_a_source(service: OpenAIService) -> None:
    found = service.client.chat.completions.create(
        model="notes",
        messages=[{"role": "user", "content": "quantum"}],
        extra_body={"where": {"folder": "nowhere"}},
    )
    assert found.choices[0].message.content == (
        "Nothing in the index matches the question. No document has the key 'folder'; documents have no metadata."
    )
    assert found.choices[0].message.annotations == []


@pytest.mark.parametrize(
    ("model", "more", "status", "said"),
    [
        ("nowhere", {}, 404, "no model 'nowhere'"),
        ("hidden", {}, 404, "no model 'hidden'"),
        ("notes", {"n": 2}, 400, "`n`"),
        ("notes", {"logprobs": True}, 400, "`logprobs`"),
        ("notes", {"response_format": {"type": "json_object"}}, 400, "`response_format`"),
        ("notes", {"tool_choice": "required"}, 400, "`tool_choice`"),
        ("notes", {"messages": [{"role": "system", "content": "a"}]}, 400, "there is none"),
        ("notes", {"messages": []}, 422, "messages"),
        ("notes", {"messages": [{"role": "user", "content": ""}]}, 400, ""),
        ("notes", {"where": {"$no": 1}}, 400, "$no"),
        ("notes", {"temperature": -1}, 422, "temperature"),
        (
            "notes",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b"}}]}]},
            400,
            "data URL",
        ),
    ],
)
def test_what_cannot_be_answered_is_said(
    service: OpenAIService, model: str, more: dict[str, object], status: int, said: str
) -> None:
    import openai

    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as caught:
            service.client.chat.completions.create(model=model, messages=QUESTION, stream=stream, extra_body=more)
        assert caught.value.status_code == status
        assert said in str(caught.value.message)


def test_an_index_without_a_generator_answers_nothing(service: OpenAIService) -> None:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        service.clients["all"].chat.completions.create(model="hidden", messages=QUESTION)
    assert caught.value.status_code == 501


def test_a_client_that_goes_stops_the_generator(service: OpenAIService, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def endless(*_: object) -> Iterator[str]:
        try:
            while True:
                yield "more "
                time.sleep(0.01)
        finally:
            stopped.set()

    monkeypatch.setattr(service.running.service.indexes["gallery"].pipeline.generator, "stream", endless)
    asked = [{"role": "user", "content": "a red star"}]
    with service.client.chat.completions.create(model="gallery", messages=asked, stream=True) as stream:
        for number, _ in enumerate(stream):
            if number == 3:
                break
    assert stopped.wait(60)


def test_an_error_in_the_middle_of_a_stream_reaches_the_client(
    service: OpenAIService, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    from vlmsearch.errors import BackendError

    def broken(*_: object) -> Iterator[str]:
        yield "A mock"
        raise BackendError("the generator broke")

    monkeypatch.setattr(service.running.service.indexes["gallery"].pipeline.generator, "stream", broken)
    stream = service.client.chat.completions.create(
        model="gallery", messages=[{"role": "user", "content": "a red star"}], stream=True
    )
    with pytest.raises(openai.APIError, match="the generator broke"):
        list(stream)
