"""What one request may cost the baseline, and all others who wait."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest

from tests.support.llm_servers import post, stream_raw
from tests.support.triton_server import Running
from vlmsearch.errors import ConfigError
from vlmsearch.triton.repository.transformers import LlmOptions, make_config, write_repository


def refused(running: Running, **body: object) -> str:
    """The error of a request that the server answers."""
    with pytest.raises(HTTPError) as caught:
        post(running, "ensemble/generate", **({"text_input": "a star", "max_tokens": 3} | body))
    return str(json.loads(caught.value.read())["error"])


def test_one_prompt_a_request(llm: Running) -> None:
    given = {"text_input": np.array([[b"a"], [b"b"]], np.object_), "max_tokens": np.full((2, 1), 3, np.int32)}
    with pytest.raises(AssertionError, match="send one prompt a request, not 2"):
        stream_raw(llm, "ensemble", **given)
    assert "the prompt is 0 tokens" in refused(llm, text_input="")


@pytest.mark.parametrize("where", ["text_input", "stop_words", "bad_words"])
def test_a_prompt_that_would_be_split_for_long_is_refused(llm: Running, where: str) -> None:
    long: object = "a star " * 2**17
    said = refused(llm, **{where: long if where == "text_input" else [long]})
    assert "bytes; this server takes 524,288" in said


def test_the_limits_are_parameters_of_the_model(tmp_path: Path) -> None:
    config = make_config("x", LlmOptions(max_sequences=4, max_text_bytes=99))
    assert config.parameters["max_num_sequences"].string_value == "4"
    assert config.parameters["max_text_bytes"].string_value == "99"
    with pytest.raises(ConfigError, match="at least 1"):
        write_repository("demo-gpt2", tmp_path / "R", LlmOptions(max_text_bytes=0))
