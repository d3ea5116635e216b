"""`openai:` against a server that follows the protocol strictly, and goes wrong in every way that servers do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from vlmsearch_mocks import MemoryStore, MockEncoder
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.openai_server import OpenAIServer, Script
from tests.support.scripted_http import Answer, scripted_server
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    Document,
    GenerationOptions,
    InvalidInputError,
    Pipeline,
    VlmsearchError,
)
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.generators.base import CountsTokens, Generator
from vlmsearch.generators.openai.generator import OmittedOptionWarning, OpenAIGenerator
from vlmsearch.generators.openai.responses import Api
from vlmsearch.openai_api.http import HttpOptions
from vlmsearch.registry import open_generator


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def shared() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


class TestChat(GeneratorContract):
    @pytest.fixture(autouse=True)
    def _server(self, shared: OpenAIServer) -> None:
        self.url = shared.url

    def make_generator(self) -> Generator:
        return open_generator(f"openai:{self.url}?model=tiny")


class TestCompletions(GeneratorContract):
    @pytest.fixture(autouse=True)
    def _server(self, shared: OpenAIServer) -> None:
        self.url = shared.url

    def make_generator(self) -> Generator:
        return open_generator(f"openai:{self.url}?api=completions")


# ---- what is sent


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_options_have_the_names_of_the_interface(server: OpenAIServer, api: str) -> None:
    options = GenerationOptions(
        max_tokens=7,
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        repetition_penalty=1.2,
        seed=3,
        stop=("a", "b", "c", "d", "e"),
    )
    with open_generator(f"openai:{server.url}?api={api}") as generator:
        generator.generate("Why?", options)
        generator.generate("Why?")
    place = {"messages": [{"role": "user", "content": "Why?"}]} if api == "chat" else {"prompt": "Why?"}
    common = {"model": "tiny", "stream": True} | place
    assert server.script.requests == [
        common | {"max_tokens": 7, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 3,
                  "stop": ["a", "b", "c", "d"]},
        common | {"max_tokens": 256},
    ]  # fmt: skip


def test_a_fifth_stop_word_ends_the_text_here(server: OpenAIServer) -> None:
    options = GenerationOptions(stop=("q", "x", "y", "z", "star"))
    assert OpenAIGenerator(server.url).generate("?", options) == "It shows a red "


def test_newer_names_of_the_limit_are_learnt(server: OpenAIServer) -> None:
    server.script.faults = ["400 Unsupported parameter: use max_completion_tokens"]
    generator = OpenAIGenerator(server.url, options=HttpOptions(retries=0))
    assert generator.generate("?", GenerationOptions(max_tokens=2)) == "It sho"
    assert [request.get("max_completion_tokens") for request in server.script.requests] == [None, 2]
    assert generator.generate("?", GenerationOptions(max_tokens=2)) == "It sho"
    assert len(server.script.requests) == 3


REFUSALS = {
    "OpenAI": "Unsupported value: '{}' does not support 0 with this model. Only the default (1) value is supported.",
    "Gemini": 'Invalid JSON payload received. Unknown name "{}": Cannot find field.',
    "Anthropic": "`{}` is deprecated for this model.",
    "Mistral": "[{{'type': 'extra_forbidden', 'loc': ['body', '{}'], 'msg': 'Extra inputs are not permitted'}}]",
    "vLLM": "[{{'type': 'extra_forbidden', 'loc': ('body', '{}'), 'msg': 'Extra inputs are not permitted'}}]",
    "xAI": "Argument not supported on this model: {}",
    "Moonshot": "invalid {}: only 1 is allowed for this model",
    "Amazon": "This model doesn't support the {} field. Remove it and try again, with or without seed and stop.",
}


@pytest.mark.parametrize("words", REFUSALS.values(), ids=REFUSALS)
def test_what_a_server_refuses_by_its_name_is_left_out_from_then_on(server: OpenAIServer, words: str) -> None:
    names = ["temperature", "max_tokens", "top_p", "max_completion_tokens", "stop", "seed"]
    server.script.faults = [f"{status} {words.format(name)}" for name, status in zip(names, [400, 422, 500] * 2)]
    generator = OpenAIGenerator(server.url, options=HttpOptions(retries=0))
    options = GenerationOptions(max_tokens=9, temperature=0.1, top_p=0.5, stop=(" a",), seed=1)
    with pytest.warns(OmittedOptionWarning) as caught:
        assert generator.generate("?", options) == "It shows"
    told = [str(warning.message).partition(" does not take ")[2].partition(",")[0] for warning in caught]
    assert told == ["temperature", "top_p", "max_completion_tokens", "seed"]
    assert generator.generate("?", options) == "It shows"
    assert [sorted(request) for request in server.script.requests[len(names) :]] == [
        ["messages", "model", "stream"]
    ] * 2


@pytest.mark.parametrize(
    "words",
    [
        "Invalid 'temperature': Expected a value <= 2",
        "temperature must be between 0 and 1",
        "temperature must be in [0, 2], got 3.0",
        "temperature 3 is above the maximum of 2, and is not allowed",
        "max_tokens: 256 > 128, which is the maximum allowed number of output tokens",
        "max_completion_tokens is too large: 256. This model supports at most 128",
        "Unknown parameter: 'top_k'. Did you mean 'temperature'?",
        "content of the prompt 'at what temperature does iron melt' was filtered",
        "bad top_k",
    ],
)
def test_a_value_that_is_out_of_range_is_an_error(server: OpenAIServer, words: str) -> None:
    server.script.faults = [f"400 {words}"]
    with pytest.raises(ConfigError, match=re.escape(words)):
        OpenAIGenerator(server.url).generate("?", GenerationOptions(temperature=3, top_k=1))
    assert len(server.script.requests) == 1


class Together(list[dict[str, Any]]):
    """Requests, of which the first two come at a time, and one of them waits until it may be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.answered = threading.Barrier(2), threading.Event()

    def append(self, request: dict[str, Any]) -> None:
        super().append(request)
        if "max_tokens" in request and self.both.wait(30):
            self.answered.wait(30)


def test_newer_names_of_the_limit_are_learnt_by_several_at_a_time(server: OpenAIServer) -> None:
    server.script.requests = requests = Together()
    server.script.faults = ["400 Unsupported parameter: use max_completion_tokens", ""] * 2
    generator = OpenAIGenerator(server.url, model="tiny", options=HttpOptions(retries=0))
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(generator.generate, "?", GenerationOptions(max_tokens=2)) for _ in range(2)]
        wait(answers, return_when="FIRST_COMPLETED")
        requests.answered.set()
        assert [answer.result(60) for answer in answers] == ["It sho"] * 2


def test_with_a_tokenizer_prompts_are_fitted_to_the_model(server: OpenAIServer, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = f"tokenizer={tmp_path}&context=130"
    chat, bare = (open_generator(f"openai:{server.url}?api={api}&{options}") for api in ("chat", "completions"))
    assert isinstance(chat, CountsTokens)
    assert isinstance(bare, CountsTokens)
    assert (chat.count_tokens("one two"), bare.count_tokens("one two")) == (34, 3)
    with Pipeline(MockEncoder(), MemoryStore(), chat) as pipeline:
        pipeline.add(Document(str(i), text=f"red star {i}") for i in range(6))
        answer = pipeline.ask("red star", limit=6, options=GenerationOptions(max_tokens=20))
    assert answer.matches
    assert answer.dropped
    prompt = server.script.requests[0]["messages"][0]["content"]
    assert chat.count_tokens(prompt) <= 110
    assert not isinstance(OpenAIGenerator(server.url), CountsTokens)
    with pytest.raises(ConfigError, match="one of them is missing"):
        OpenAIGenerator(server.url, context=100)


# ---- what comes back


def test_text_with_every_separator_comes_whole(server: OpenAIServer) -> None:
    server.script.reply = "line one\nline two\u2028three\u0085four\r\n“ünï” 漢字 \U0001f436 [1]"
    assert OpenAIGenerator(server.url).generate("?") == server.script.reply
    assert OpenAIGenerator(server.url, api="completions").generate("?") == server.script.reply


def test_closing_the_stream_closes_the_connection() -> None:
    with OpenAIServer(Script(reply="x" * 3000, delay=0.01)) as server, OpenAIGenerator(server.url) as generator:
        stream = generator.stream("?", GenerationOptions(max_tokens=1000))
        assert next(stream) == "xxx"
        stream.close()  # type: ignore[attr-defined]
        assert server.script.cancelled.wait(60)


def test_a_stop_word_closes_the_connection_too() -> None:
    script = Script(reply="a STOP " + "x" * 3000, delay=0.01)
    with OpenAIServer(script) as server:
        options = GenerationOptions(max_tokens=1000, stop=("1", "2", "3", "4", "STOP"))
        assert OpenAIGenerator(server.url).generate("?", options) == "a "
        assert script.cancelled.wait(60)


@contextmanager
def answering(kind: str, body: str, api: Api = "chat") -> Iterator[OpenAIGenerator]:
    """A generator whose server always answers so."""
    with (
        scripted_server(Answer(200, body.encode(), {"Content-Type": kind})) as server,
        OpenAIGenerator(f"{server.url}/v1", model="m", api=api) as generator,
    ):
        yield generator


PARTS = [{"type": "text", "text": "hi "}, {"type": "thinking", "thinking": []}, {"type": "text", "text": "there"}]


def test_content_may_come_in_parts() -> None:
    event = json.dumps({"choices": [{"delta": {"content": PARTS}, "finish_reason": "stop"}]})
    with answering("text/event-stream", f"data: {event}\n\ndata: [DONE]\n\n") as generator:
        assert generator.generate("?") == "hi there"


def test_thoughts_in_a_field_of_their_own_are_no_text() -> None:
    deltas = [
        {"reasoning_content": "see [2]", "content": None},
        {"reasoning": "or [3]"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "or [4]"}]}]},
        {"content": [{"type": "reasoning", "text": "or [5]"}, {"type": "text", "text": "It is [1]."}]},
    ]
    body = "".join(f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n" for delta in deltas)
    with answering("text/event-stream", f"{body}data: [DONE]\n\n") as generator:
        assert generator.generate("?") == "It is [1]."


def test_thoughts_that_took_the_whole_limit_are_an_error() -> None:
    event = json.dumps({"choices": [{"delta": {"reasoning": "see [2]"}, "finish_reason": "length"}]})
    with (
        answering("text/event-stream", f"data: {event}\n\ndata: [DONE]\n\n") as generator,
        pytest.raises(InvalidInputError, match="ended within its thoughts"),
    ):
        generator.generate("?")


def test_thoughts_without_a_tag_are_held_back_where_the_user_says_so(server: OpenAIServer) -> None:
    server.script.reply = "see [2]\n</think>\n\nIt is [1]."
    with open_generator(f"openai:{server.url}?thinks=true") as generator:
        assert "".join(generator.answer("?")) == "It is [1]."
        server.script.reply = "see [2]"
        with pytest.raises(InvalidInputError, match="ended within its thoughts"):
            generator.generate("?")


def test_events_without_a_choice_are_passed_over() -> None:
    events = ['{"type": "ping"}', '{"choices": null}', '{"choices": [{"delta": {"content": "hi"}}]}', "[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in events)
    with answering("text/event-stream", body) as generator:
        assert generator.generate("?") == "hi"


# ---- what goes wrong


@pytest.mark.parametrize(
    ("api", "choices"),
    [
        ("chat", [None]),
        ("chat", ["x"]),
        ("chat", {"0": {}}),
        ("chat", "text"),
        ("chat", [{"delta": "x"}]),
        ("chat", [{"delta": {"content": 3}}]),
        ("chat", [{"delta": {"content": {"text": "x"}}}]),
        ("chat", [{"delta": {"content": ["x"]}}]),
        ("chat", [{"delta": {"content": [{"text": 3}]}}]),
        ("completions", [{"text": ["x"]}]),
        ("completions", [None]),
    ],
    ids=str,
)
def test_what_is_no_completion_is_named(api: Api, choices: object) -> None:
    data = json.dumps({"choices": choices})
    with answering("text/event-stream", f"data: {data}\n\n", api) as generator, pytest.raises(BackendError) as caught:
        generator.generate("?")
    assert type(caught.value) is BackendError
    assert str(caught.value) == f"{generator.name} sent what is not a completion: {data!r}"


def test_an_answer_that_is_no_stream_is_named() -> None:
    message = r"^openai:http.* sent what is not a stream of events: "
    with answering("application/json", "{}") as generator, pytest.raises(BackendError, match=message):
        generator.generate("?")
    deep = "data: " + "[" * 100_000 + "\n\n"
    with answering("text/event-stream", deep) as generator, pytest.raises(BackendError, match="is not JSON: '\\["):
        generator.generate("?")


@pytest.mark.parametrize("body", ["sk-secret", '["sk-secret"]', '{"choices": ["sk-secret"]}'])
def test_what_is_no_completion_does_not_repeat_the_key(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    message = r"sent what is not .*\*\*\*"
    with answering("application/json", body) as generator, pytest.raises(BackendError, match=message) as caught:
        generator.generate("?")
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("fault", ["429", "429 after 0", "502", "503", "504", "cut 0", "cut 1", "end 0"])
def test_what_passes_is_waited_out(server: OpenAIServer, fault: str) -> None:
    server.script.faults = [fault, fault]
    assert OpenAIGenerator(server.url).generate("?") == server.script.reply
    assert len(server.script.requests) == 3


@pytest.mark.parametrize("fault", ["cut 4", "end 4"])
def test_nothing_is_repeated_after_the_first_token(server: OpenAIServer, fault: str) -> None:
    server.script.faults = [fault]
    pieces = OpenAIGenerator(server.url).stream("?")
    assert [next(pieces) for _ in range(3)] == ["It ", "sho", "ws "]
    with pytest.raises(BackendUnavailableError, match=r"broke the connection|ended its answer in the middle"):
        next(pieces)
    assert len(server.script.requests) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (
            "400 bad top_k",
            ConfigError,
            r"refused the request \(400: 400 bad top_k|refused the request \(400: bad top_k\)",
        ),
        ("400 maximum context length is 9", InvalidInputError, "cannot read a prompt of this length"),
        ("malformed 2", BackendError, "sent what is not JSON: '{no json'"),
        ("error 2", BackendError, "failed while it answered: the engine died"),
    ],
)
def test_errors_say_what_went_wrong(server: OpenAIServer, fault: str, kind: type[VlmsearchError], message: str) -> None:
    server.script.faults = [fault] * 2
    with pytest.raises(kind, match=message) as caught:
        OpenAIGenerator(server.url, options=HttpOptions(retries=1)).generate("?")
    assert type(caught.value) is kind
    assert server.root in str(caught.value)


def test_a_call_that_is_given_up_breaks_the_connection_of_a_silent_server(server: OpenAIServer) -> None:
    server.script.faults = ["slow 2"]
    token, pieces = CancelToken(), list[str]()
    threading.Timer(0.3, token.cancel).start()
    started = time.monotonic()
    with OpenAIGenerator(server.url) as generator, running_under(token), pytest.raises(OperationCancelledError):
        pieces.extend(generator.stream("?"))
    assert time.monotonic() - started < 15, "the server would go on after 20"
    assert len(server.script.requests) == 1


def test_an_answer_that_takes_too_long_ends_after_what_was_shown() -> None:
    pieces = list[str]()
    with (
        OpenAIServer(Script(reply="x" * 9000, delay=0.05)) as server,
        open_generator(f"openai:{server.url}?answer_timeout=0.5&retries=5") as generator,
    ):
        with pytest.raises(BackendUnavailableError, match=r"did not end its answer within 0\.5 seconds"):
            pieces.extend(generator.stream("?", GenerationOptions(max_tokens=3000)))
        assert server.script.cancelled.wait(60)
    assert 0 < len(pieces) < 11
    assert len(server.script.requests) == 1


def test_a_text_is_bounded_by_the_tokens_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.generators.openai.generator._STREAM_BYTES", 10_000)
    with OpenAIServer(Script(reply="x" * 90_000)) as server, OpenAIGenerator(server.url) as generator:
        assert generator.generate("?", GenerationOptions(max_tokens=1000)) == "x" * 3000
    event = f"data: {json.dumps({'choices': [{'delta': {'content': 'x' * 1000}}]})}\n\n"
    with (
        answering("text/event-stream", event * 200) as generator,
        pytest.raises(BackendError, match="more than 14,096"),
    ):
        generator.generate("?", GenerationOptions(max_tokens=1))


def test_without_a_model_the_only_one_is_taken() -> None:
    with OpenAIServer(Script(models=("big", "small"))) as server:
        with pytest.raises(ConfigError, match="has nothing there"):
            OpenAIGenerator(server.url, model="tiny").generate("?")
        with pytest.raises(ConfigError, match=r"has 2 models; add \?model= with one of big, small"):
            OpenAIGenerator(server.url).generate("?")


def test_no_error_of_a_stream_repeats_the_key(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server.script.faults = ["error 2"]
    with pytest.raises(BackendError, match=r"died of \*\*\*"):
        OpenAIGenerator(server.url).generate("?")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("openai:", "needs a location"),
        ("openai:http://host/v1?api=batch", "is one of chat, completions"),
    ],
)
def test_a_wrong_url_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_generator(url)


@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "1e300"])
def test_a_time_that_nothing_can_wait_is_refused_at_once(value: str) -> None:
    for name in ("timeout", "deadline"):
        with pytest.raises(ConfigError, match=rf"^`{name}` is from 0.001 to 1,000,000, not "):
            open_generator(f"triton://host:8001/ensemble?{name}={value}")


def test_other_limits_are_refused_at_once(tmp_path: Path) -> None:
    for url in (f"openai:http://host/v1?tokenizer={tmp_path}&", "triton://host:8001/ensemble?"):
        for context in (0, -100):
            with pytest.raises(ConfigError, match=rf"^`context` is from 1 to 16,777,216, not {context}$"):
                open_generator(f"{url}context={context}")


@pytest.mark.parametrize("options", [GenerationOptions(bad_words=("x",)), GenerationOptions(beam_width=2)])
def test_what_the_interface_does_not_have_is_refused(server: OpenAIServer, options: GenerationOptions) -> None:
    with pytest.raises(ConfigError, match="has no bad_words and no beam_width"):
        OpenAIGenerator(server.url).generate("?", options)
    assert server.script.requests == []


# ---- behind the pipeline and the command line


def indexed(folder: Path, url: str) -> Pipeline:
    pipeline = Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}", generator=f"openai:{url}")
    pipeline.add([Document("star", text="a red star")])
    return pipeline


def test_an_answer_cites_what_was_found(server: OpenAIServer, tmp_path: Path) -> None:
    with indexed(tmp_path, server.url) as pipeline:
        answer = pipeline.ask("a red star?")
        with pipeline.ask("a red star?", stream=True) as stream:
            assert stream.answer() == answer
    assert answer.text == "It shows a red star [1], and nothing else."
    assert [citation.id for citation in answer.citations] == ["star"]
    assert "[1] a red star\n" in server.script.requests[0]["messages"][0]["content"]


def test_ctrl_c_while_an_answer_streams_ends_it_on_the_server_too(tmp_path: Path) -> None:
    with OpenAIServer(Script(reply="x" * 9000, delay=0.02)) as server:
        indexed(tmp_path, server.url).close()
        back_ends = [f"--store=sqlite:{tmp_path / 'index'}", "--encoder=mock:", f"--generator=openai:{server.url}"]
        ask = ["ask", "a red star?", *back_ends, "--stream", "--max-tokens=3000"]
        command = [sys.executable, "-m", "vlmsearch", *ask]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asked:
            assert asked.stdout
            assert asked.stderr
            assert asked.stdout.read(6) == b"xxxxxx"
            asked.send_signal(signal.SIGINT)
            rest, errors = asked.stdout.read(), asked.stderr.read()
            assert asked.wait(60) == 130
        assert rest.strip(b"x") == b""
        assert errors.strip() == b"Interrupted."
        assert server.script.cancelled.wait(60)
