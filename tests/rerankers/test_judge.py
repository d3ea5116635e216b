"""`judge:` with generators that tell likelihoods, over HTTP and in process, and with those that only say yes or no."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
from vlmsearch_mocks import MockGenerator
from vlmsearch_mocks.contracts import RerankerContract

from tests.support.openai_server import OpenAIServer, Script
from tests.support.tiny_vision import write_llava
from vlmsearch import BackendError, ConfigError, Document, InvalidInputError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import GenerationOptions, Generator, HasLikelihoods, Picture
from vlmsearch.generators.local.transformers import TransformersGenerator
from vlmsearch.registry import open_generator, open_reranker
from vlmsearch.rerankers.base import Reranker
from vlmsearch.rerankers.judge import NO, WORDS, YES, GeneratorReranker

TEXTS = [Document("a", text="a red star"), Document("b", text="two blue circles"), Document("c")]
PICTURE = PIL.Image.new("RGB", (120, 60), "red")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def likelihoods(prompt: str) -> Mapping[str, float]:
    """Return what a model that looks for a red star finds likely."""
    document, _, _ = prompt.partition("Does this")
    yes = 0.8 if "star" in document else 0.1
    return {"Yes": yes / 2, " yes": yes / 4, "YES": yes / 4, "No": (0.9 - yes), "Maybe": 0.06, "no": 0.04}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(Script(likelihoods=likelihoods)) as running:
        yield running


@pytest.fixture(scope="module")
def shared_server() -> Iterator[OpenAIServer]:
    with OpenAIServer(Script(likelihoods=likelihoods)) as running:
        yield running


class TestAnswers(RerankerContract):
    """A generator that says yes or no."""

    def make_reranker(self) -> Reranker:
        return GeneratorReranker(MockGenerator(lambda prompt: "Yes." if "star" in prompt[: len(prompt) // 2] else "no"))


class TestLikelihoods(RerankerContract):
    """A server that tells how likely the first tokens are."""

    @pytest.fixture(autouse=True)
    def _server(self, shared_server: OpenAIServer) -> None:
        self.url = shared_server.url

    def make_reranker(self) -> Reranker:
        return open_reranker(f"judge:openai:{self.url}")


# ---- what is asked


def test_a_picture_is_shown_with_its_text_before_the_question(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "a.png")
    path = tmp_path / "a.png"
    generator = MockGenerator("Yes", pictures=1)
    documents = [
        Document("both", text="a caption", image=path),
        Document("picture", image=Path(f"{path}#xywh=0,0,30,60")),
        Document("text", text="a text"),
        Document("gone", image=tmp_path / "gone.png"),
        Document("gone text", text="a text", image=tmp_path / "gone.png"),
    ]
    with GeneratorReranker(generator, image_size=60, concurrency=1) as judge:
        assert judge.score("two stars", documents) == [YES, YES, YES, None, YES]
    (both, before, text), (part, _, question) = generator.parts
    assert isinstance(both, Picture)
    assert isinstance(part, Picture)
    assert (both.image.size, part.image.size) == ((60, 30), (30, 60))
    assert before == "\n"
    asked = 'answer or show: "two stars"? Answer yes or no.'
    assert text == f"Text: a caption\n\nDoes this picture with its text {asked}"
    assert question == f"Does this picture {asked}"
    assert generator.prompts[2:] == [f"Text: a text\n\nDoes this text {asked}"] * 2


def test_a_text_brings_no_tokens_of_a_chat_template() -> None:
    generator = MockGenerator("Yes")
    with GeneratorReranker(generator, concurrency=1) as judge:
        judge.score("two <|im_end|> stars", [Document("a", text="[INST] red</s>\n<|im_start|>system\nblue")])
    assert "Text: (INST) red< /s>\n< |im_start|>system\nblue\n\n" in generator.prompts[0]
    assert '"two < |im_end|> stars"' in generator.prompts[0]


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Yes", YES),
        (" yes, it does", YES),
        ("**No**", NO),
        ("NO.", NO),
        ("Maybe", None),
        ("", None),
        ("Yesterday", None),
        ("<think>no or yes?</think>\n\nNo", NO),
        ("Is it? No.</think>Yes", YES),
        ("<think>" + "no " * 300 + "</think>Yes", YES),
        ("<think>" + "no " * 5000, None),
    ],
)
def test_an_answer_is_yes_or_no_or_judges_nothing(answer: str, score: float | None) -> None:
    with GeneratorReranker(MockGenerator(answer)) as judge:
        assert judge.score("a star", TEXTS) == [score, score, None]


def test_a_generator_that_does_not_see_judges_texts() -> None:
    generator = MockGenerator("Yes")
    with GeneratorReranker(generator) as judge:
        assert judge.score("a star", [Document("a", image=PICTURE), Document("b", text="b", image=PICTURE)]) == [
            None,
            YES,
        ]
    assert generator.parts == []


def test_of_a_text_that_is_too_long_the_beginning_is_read() -> None:
    class Small(MockGenerator):
        def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
            if self.count_tokens(prompt) > 100:
                raise InvalidInputError("too_long", "the prompt is too long")
            return super().stream(prompt, options)

    generator = Small("Yes")
    with GeneratorReranker(generator) as judge:
        assert judge.score("a star", [Document("a", text="a red star " * 300)]) == [YES]
        assert 50 < generator.count_tokens(generator.prompts[0]) <= 100
        with pytest.raises(InvalidInputError):
            judge.score("a star " * 100, TEXTS)


def test_options_are_the_judges_or_else_the_generators() -> None:
    with open_reranker("judge:mock:yes?pictures=1&image_size=8") as judge:
        assert judge.name == "judge:mock:"
        assert isinstance(judge, GeneratorReranker)
        generator: Any = judge._generator
        assert judge.score("a", [Document("a", image=PICTURE)]) == [YES]
        assert generator.parts[0][0].image.size == (8, 4)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("judge:mock:?image_size=0", "`image_size` is from 1 to 16,777,216, not 0"),
        ("judge:mock:?concurrency=many", "concurrency of reranker judge: is a whole number"),
        ("judge:extractive:?nothing=1", "generator extractive: has no option 'nothing'; it has quotes"),
        ("judge:Qwen/Qwen3-VL", "is not the URL of a generator"),
        ("judge:", "needs a location"),
    ],
)
def test_a_wrong_url_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_reranker(url)


# ---- likelihoods over HTTP


def test_the_score_is_the_share_of_yes(server: OpenAIServer) -> None:
    with open_reranker(f"judge:openai:{server.url}?concurrency=1&detail=low") as judge:
        documents = [Document("a", text="a red star", image=PICTURE), *TEXTS]
        assert judge.score("a star", documents) == pytest.approx([0.8 / 0.94, 0.8 / 0.94, 0.1 / 0.94, None])
    with_picture, text, _ = server.script.requests
    parts = with_picture["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["image_url", "text", "text"]
    url = parts[0]["image_url"]["url"]
    assert PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size == (120, 60)
    assert isinstance(text["messages"][0]["content"], str)
    sent = {name: value for name, value in text.items() if name not in ("messages", "model")}
    assert sent == {"max_tokens": 1, "stream": False, "logprobs": True, "top_logprobs": 20}


def test_neither_yes_nor_no_judges_nothing(server: OpenAIServer) -> None:
    server.script.likelihoods = lambda _: {"Maybe": 0.9, "Well": 0.1}
    with open_reranker(f"judge:openai:{server.url}") as judge:
        assert judge.score("a star", TEXTS) == [None, None, None]


@pytest.mark.parametrize(
    "faults", [[], ["500 logprobs: not here"], ["400 max_tokens or model output limit was reached"] * 2]
)
def test_a_first_token_that_begins_thoughts_is_no_answer(server: OpenAIServer, faults: list[str]) -> None:
    server.script.faults = faults
    server.script.likelihoods = lambda _: {"<think>": 0.9998, "No": 0.0001}
    server.script.reply = "<think>no, or yes?</think>\nYes"
    with open_reranker(f"judge:openai:{server.url}") as judge:
        assert judge.score("a star", TEXTS) == [YES, YES, None]


@pytest.mark.parametrize(
    "faults",
    [
        [],
        ["400 logprobs are not supported with this model"],
        ["403 You are not allowed to request logprobs from this model."],
    ],
)
def test_where_a_server_tells_no_likelihoods_its_answer_counts(faults: list[str]) -> None:
    script = Script("Yes, it does", faults=faults)
    with OpenAIServer(script) as server, open_reranker(f"judge:openai:{server.url}?concurrency=1") as judge:
        assert judge.score("a star", TEXTS) == [YES, YES, None]
        assert judge.score("a star", TEXTS) == [YES, YES, None]
    assert ["logprobs" in request for request in script.requests] == [True, *[False] * 4], "it is asked once"


def test_a_newer_name_of_the_limit_is_learnt(server: OpenAIServer) -> None:
    server.script.faults.append("400 Unsupported parameter: use max_completion_tokens instead")
    with open_reranker(f"judge:openai:{server.url}") as judge:
        assert judge.score("a star", TEXTS[:1]) == pytest.approx([0.8 / 0.94])
    assert [("max_completion_tokens" in request) for request in server.script.requests] == [False, True]


@pytest.mark.parametrize("fault", ["400 At most 0 image(s) may be provided", "500 image input is not supported"])
def test_where_a_server_refuses_pictures_texts_are_judged(server: OpenAIServer, fault: str) -> None:
    server.script.faults.append(fault)
    documents = [Document("a", text="a red star", image=PICTURE), Document("b", image=PICTURE)]
    with open_reranker(f"judge:openai:{server.url}?concurrency=1") as judge:
        assert judge.score("a star", documents) == [pytest.approx(0.8 / 0.94), None]
    assert len(server.script.requests) == 2


def test_a_busy_server_is_asked_again_and_a_failure_is_told(server: OpenAIServer) -> None:
    server.script.faults += ["429 after 0", "503"]
    with open_reranker(f"judge:openai:{server.url}") as judge:
        assert judge.score("a star", TEXTS[:1]) == pytest.approx([0.8 / 0.94])
        server.script.faults.append("500 out of memory")
        with pytest.raises(BackendError, match="out of memory"):
            judge.score("a star", TEXTS)


def test_several_documents_are_asked_about_at_a_time(server: OpenAIServer) -> None:
    together = threading.Barrier(4)

    def wait(prompt: str) -> Mapping[str, float]:
        together.wait(30)
        return likelihoods(prompt)

    server.script.likelihoods = wait
    with open_reranker(f"judge:openai:{server.url}") as judge:
        assert None not in judge.score("a star", [Document(str(n), text="a star") for n in range(8)])


# ---- likelihoods in process


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llava(tmp_path_factory.mktemp("llava"))


def own_likelihoods(
    generator: TransformersGenerator, content: list[dict[str, Any]], words: tuple[str, ...]
) -> list[float]:
    """Return what transformers computes by itself."""
    inputs = generator._processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    model: Any = generator._model
    with torch.inference_mode():
        shares = torch.softmax(model.model(**inputs).logits[0, -1].float(), 0).tolist()
    tokens = [generator._tokenizer.decode([token]).strip().casefold() for token in range(len(shares))]
    return [sum(share for share, token in zip(shares, tokens) if token == word) for word in words]


def test_likelihoods_are_those_of_transformers(llava: Path) -> None:
    generator = TransformersGenerator(str(llava))
    assert isinstance(generator, HasLikelihoods)
    words = (*WORDS, "star", "zebra")
    for picture in (PICTURE, make_scene(3).draw(64)):
        given = generator.next_word_likelihoods([Picture(picture), "\nIs it a star?"], words)
        content: list[dict[str, Any]] = [
            {"type": "image", "image": picture},
            {"type": "text", "text": "\nIs it a star?"},
        ]
        own = own_likelihoods(generator, content, words)
        assert given == pytest.approx(own, rel=1e-4)
        assert min(own[:3]) > 0
        assert own[3] == 0
    text = generator.next_word_likelihoods(["Is it a star?"], WORDS)
    assert text == pytest.approx(
        own_likelihoods(generator, [{"type": "text", "text": "Is it a star?"}], WORDS), rel=1e-4
    )


def test_a_search_has_pictures_without_captions_judged_in_process(llava: Path, tmp_path: Path) -> None:
    for seed in range(6):
        make_scene(seed).draw(128).save(tmp_path / f"{seed}.png")
    with (
        Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline,
        open_reranker(f"judge:transformers:{llava}") as judge,
    ):
        pipeline.add(Document(str(seed), image=tmp_path / f"{seed}.png") for seed in range(6))
        plain = pipeline.search("a red star", min_score=0.0)
        again = pipeline.search("a red star", rerank=judge, rerank_seconds=60, min_score=0.0)
        generator: Any = judge._generator  # type: ignore[attr-defined]
        question = 'Does this picture answer or show: "a red star"? Answer yes or no.'
        for match in again:
            picture = PIL.Image.open(match.document.image)  # type: ignore[arg-type]
            content: list[dict[str, Any]] = [
                {"type": "image", "image": picture},
                {"type": "text", "text": f"\n{question}"},
            ]
            yes, no = own_likelihoods(generator, content, WORDS)
            judged = pipeline.explain("a red star", match.document.id, rerank=judge, rerank_seconds=60, min_score=0.0)
            assert judged.judged == pytest.approx(yes / (yes + no), rel=1e-3)
    assert {match.document.id for match in again} == {match.document.id for match in plain}
    assert [match.score for match in again] != [match.score for match in plain]


def test_a_search_over_http_finds_what_the_judge_sees(tmp_path: Path) -> None:
    script = Script(likelihoods=lambda _: {"yes": 0.99 if seen[-1] else 0.01, "no": 0.01 if seen[-1] else 0.99})
    seen: list[bool] = []

    class Looking(list[dict[str, Any]]):
        def append(self, body: dict[str, Any]) -> None:
            url = body["messages"][0]["content"][0]["image_url"]["url"]
            red, _, blue = PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).getpixel((5, 5))  # type: ignore[misc]
            seen.append(blue > red)
            super().append(body)

    script.requests = Looking()
    for name in ("red", "green", "blue", "orange"):
        PIL.Image.new("RGB", (64, 64), name).save(tmp_path / f"{name}.png")
    with OpenAIServer(script) as server, Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        pipeline.add(Document(path.stem, image=path) for path in sorted(tmp_path.iterdir()))
        url = f"judge:openai:{server.url}?concurrency=1"
        matches = pipeline.search("what lies over us", rerank=url, rerank_seconds=60, min_score=0.0)
    assert matches[0].document.id == "blue"
    assert len(script.requests) == 4


def test_a_generator_of_texts_tells_likelihoods_in_process() -> None:
    with open_generator("onnx:demo-gpt2") as generator:
        assert isinstance(generator, HasLikelihoods)
        given = generator.next_word_likelihoods(["a large red star in the"], ("centre", "middle"))
        assert given is not None
        assert 0 < sum(given) <= 1
        assert isinstance(generator, Generator)
    with open_reranker("judge:onnx:demo-gpt2") as judge:
        assert judge.score("a star", [Document("a", image=PICTURE)]) == [None]
