"""What one request may cost the baseline, and all others who wait."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest

from tests.support.llm_servers import post, stream_raw
from tests.support.triton_server import Running
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.triton.backend.llm_engine import GenerationTask
from vlmsearch.triton.backend.llm_requests import Arrays, read_tasks
from vlmsearch.triton.repository.transformers import LlmOptions, make_configs, write_repository


def refused(running: Running, **body: object) -> str:
    """The error of a request that the server answers."""
    with pytest.raises(HTTPError) as caught:
        post(running, "ensemble/generate", **({"text_input": "a star", "max_tokens": 3} | body))
    return str(json.loads(caught.value.read())["error"])


def test_a_search_has_no_more_beams_than_the_model_allows(llm: Running) -> None:
    assert "beam_width is at most 16 (the model's max_beam_width), not 17" in refused(llm, beam_width=17)
    assert json.loads(post(llm, "ensemble/generate", text_input="a star", max_tokens=3, beam_width=16))["text_output"]


def test_no_prompt_and_one_that_is_not_there_are_errors_at_once(llm: Running) -> None:
    def ask(rows: int, length: int) -> None:
        arrays = {"input_ids": [5, 6, 7], "input_lengths": [length], "request_output_len": [3]}
        given = {name: np.array([value] * rows, np.int32).reshape(rows, len(value)) for name, value in arrays.items()}
        stream_raw(llm, "tensorrt_llm", **given)

    with pytest.raises(AssertionError, match=r"has no prompt|byte size mismatch"):  # of Triton itself, where it looks
        ask(0, 3)
    with pytest.raises(AssertionError, match="the prompt is 0 tokens"):
        ask(1, -1)


class Unanswered:
    """The way back to a client that hears nothing yet."""

    def send(self, arrays: Arrays | None, *, final: bool) -> None:
        raise AssertionError

    def fail(self, message: str) -> None:
        raise AssertionError(message)

    def is_cancelled(self) -> bool:
        return False


def tasks(rows: int, **more: int) -> list[GenerationTask]:
    given = {"input_ids": 5, "input_lengths": 1, "request_output_len": 3, **more}
    return read_tasks(
        {name: np.full((rows, 1), value, np.int32) for name, value in given.items()},
        id="",
        reply=Unanswered(),
        decode=str,
        context=9,
        vocabulary=9,
        most_beams=2,
        exclude=True,
        streams=True,
    )


def test_a_request_of_no_rows_is_refused_for_nothing_would_ever_end_it() -> None:
    assert len(tasks(2, beam_width=2)) == 2
    with pytest.raises(InvalidInputError, match="the request has no prompt"):
        tasks(0)
    with pytest.raises(ConfigError, match="beam_width is at most 2 "):
        tasks(2, beam_width=3)


@pytest.mark.parametrize("where", ["text_input", "stop_words", "bad_words"])
def test_a_prompt_that_would_be_split_for_long_is_refused(llm: Running, where: str) -> None:
    long: object = "a star " * 2**17
    said = refused(llm, **{where: long if where == "text_input" else [long]})
    assert "bytes; this server takes 524,288" in said


def test_the_limits_are_parameters_of_the_models(tmp_path: Path) -> None:
    configs = make_configs("x", LlmOptions(max_beam_width=4, max_text_bytes=99))
    assert configs["tensorrt_llm"].parameters["max_beam_width"].string_value == "4"
    assert configs["preprocessing"].parameters["max_text_bytes"].string_value == "99"
    few = make_configs("x", LlmOptions(max_sequences=3))
    assert few["tensorrt_llm"].parameters["max_beam_width"].string_value == "3"
    for wrong in (LlmOptions(max_beam_width=0), LlmOptions(max_text_bytes=0)):
        with pytest.raises(ConfigError, match="at least 1"):
            write_repository("demo-gpt2", tmp_path / "R", wrong)
