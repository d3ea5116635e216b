"""What is read of events and answers of servers with OpenAI's interface."""

from __future__ import annotations

import pytest

from vlmsearch.generators.openai.responses import OtherShapeError, likely_tokens, prompt_tokens


@pytest.mark.parametrize("tokens", [True, -5, 10**400, 5.0, float("nan"), "5", None])
def test_a_number_of_tokens_that_no_prompt_has_is_unknown(tokens: object) -> None:
    assert prompt_tokens({"usage": {"prompt_tokens": tokens}}) is None
    assert prompt_tokens({"usage": {"prompt_tokens": 5}}) == 5


@pytest.mark.parametrize("logarithm", [True, 5, 709, -(10**400), float("nan"), "-1", None])
def test_a_logarithm_that_no_probability_has_is_refused(logarithm: object) -> None:
    told = {"content": [{"top_logprobs": [{"token": "yes", "logprob": logarithm}]}]}
    with pytest.raises(OtherShapeError):
        likely_tokens({"choices": [{"logprobs": told}]})
