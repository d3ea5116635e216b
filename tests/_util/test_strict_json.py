"""JSON from outside is read as the standard says, or refused with a ValueError."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from vlmsearch import ConfigError, ModelUnavailableError
from vlmsearch._util.strict_json import MAX_DEPTH, parse_json
from vlmsearch.bench.llm import read_prompts
from vlmsearch.building.refit import refit_bundle
from vlmsearch.generators.chat import find_chat_template
from vlmsearch.tensorrt_llm.repository import read_engine
from vlmsearch.triton.client.protocol import Deployment


@pytest.mark.parametrize("value", [None, 1, -1.5, "a", [], {}, {"a": [1, {"b": None}]}, ["[" * 99]])
def test_json_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[1,{"a":', "}]")])
def test_what_is_nested_too_deeply_is_refused_at_any_depth(opening: str, closing: str) -> None:
    assert parse_json(opening * 30 + "1" + closing * 30)
    for depth in (MAX_DEPTH + 1, 500, 950, 60_000):
        with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
            parse_json(opening * depth + "1" + closing * depth)


@pytest.mark.parametrize("text", ["", "{", "[1] 2", "NaN", '{"a": Infinity}', "-Infinity", "'a'", "9" * 5000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        parse_json(text)


def test_bytes_and_what_python_writes_beyond_json_are_read_where_asked_for() -> None:
    assert parse_json('{"a": "é"}'.encode("utf-16")) == {"a": "é"}
    assert parse_json("[NaN, -Infinity]", with_nan=True)[1] == float("-inf")
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'"\xff"')


@pytest.mark.parametrize(
    ("name", "read", "error"),
    [
        (
            "tokenizer_config.json",
            lambda path: find_chat_template(path.parent, Tokenizer(BPE())),
            ModelUnavailableError,
        ),
        ("config.json", lambda path: read_engine(path.parent), ConfigError),
        ("bundle.json", lambda path: refit_bundle(path.parent), ModelUnavailableError),
        ("prompts.json", read_prompts, ConfigError),
        ("parameters.json", lambda path: Deployment.from_json(path.read_text()), ConfigError),
    ],
)
def test_deep_json_of_others_is_an_error_of_its_reader(
    tmp_path: Path, name: str, read: Callable[[Path], object], error: type[Exception]
) -> None:
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(error):
        read(tmp_path / name)
