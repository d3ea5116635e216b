"""`vlmsearch bench llm` against servers whose speed is known."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer, models, pre_tokenizers
from vlmsearch_mocks import MockGenerator

from tests.support.openai_server import OpenAIServer, Script
from vlmsearch import ConfigError, GenerationOptions
from vlmsearch.bench.llm import Level, Percentiles, counter, read_prompts, run, speed_up, with_model
from vlmsearch.cli import cli
from vlmsearch.generators.base import Generator

ROWS = [{"instruction": f"Question {i}?", "input": "Look." if i % 2 else "", "output": "Yes."} for i in range(6)]
OPTIONS = GenerationOptions(max_tokens=100)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS))
    return path


def bench(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(cli, ["bench", "llm", *map(str, arguments)])


class Paced(Generator):
    """So many pieces, so many seconds apart."""

    name = "paced"

    def __init__(self, first: float, each: float, pieces: int) -> None:
        self._times = [first, *[each] * (pieces - 1)]

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        for pause in self._times:
            time.sleep(pause)
            yield "ab "


# ---- what is measured


def test_times_are_those_of_the_stream() -> None:
    level = run(Paced(0.5, 0.02, 6), ["?"], OPTIONS, concurrency=2, requests=4)
    assert (level.requests, level.tokens, level.failed) == (4, 24, 0)
    assert level.first_token.p50 >= 0.5
    assert 0.02 <= level.inter_token.p50 < 0.5
    assert level.first_token.p50 + 0.1 <= level.latency.p50 < 2 * level.first_token.p50
    assert 2 * (0.5 + 5 * 0.02) <= level.seconds < 4 * level.latency.p50  # two at a time
    assert level.tokens_per_second == pytest.approx(24 / level.seconds)
    assert level.requests_per_second == pytest.approx(4 / level.seconds)
    assert level.latency.p50 <= level.latency.p95 <= level.latency.p99


def test_as_many_requests_run_at_a_time_as_asked_for() -> None:
    together = threading.Barrier(4)

    def reply(prompt: str) -> str:
        together.wait(60)  # fails unless four come at a time
        return "one two"

    level = run(MockGenerator(reply), ["?"], OPTIONS, concurrency=4, requests=12)
    assert (level.requests, level.failed) == (12, 0)


def test_the_speed_up_is_above_one_where_the_first_is_better() -> None:
    slow = Level(1, 10, 100, 10.0, Percentiles(0.4, 1, 1), Percentiles(0.02, 1, 1), Percentiles(1.0, 2, 2))
    fast = Level(1, 10, 100, 2.5, Percentiles(0.2, 1, 1), Percentiles(0.01, 1, 1), Percentiles(0.25, 2, 2))
    assert speed_up(fast, slow) == {
        "tokens_per_second": 4.0, "requests_per_second": 4.0, "time_to_first_token": 2.0, "inter_token_latency": 2.0,
        "latency": 4.0,
    }  # fmt: skip


def test_every_prompt_has_its_turn() -> None:
    generator = MockGenerator("one two three")
    level = run(generator, ["a", "b", "c"], OPTIONS, concurrency=1, requests=7)
    assert generator.prompts == ["a", "b", "c", "a", "b", "c", "a"]
    assert level.tokens == 21


def test_no_answer_at_all_gives_zeros() -> None:
    level = run(MockGenerator(""), ["?"], OPTIONS, concurrency=2, requests=3)
    assert (level.requests, level.tokens, level.tokens_per_second) == (3, 0, 0)
    assert level.inter_token == Percentiles()
    assert speed_up(level, level)["tokens_per_second"] == 0


def test_tokens_are_counted_by_the_best_that_there_is(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        count, how = counter(MockGenerator(), place)
        assert count
        assert count("two words") == 9
        assert how == f"the tokenizer {place}"
    count, how = counter(MockGenerator(), None)
    assert count
    assert (count("two words"), how) == (2, "the generator's own tokenizer")
    assert counter(Paced(0, 0, 1), None) == (None, "pieces of the stream")
    with pytest.raises(ConfigError, match="nothing cannot be read: No such file or directory"):
        counter(MockGenerator(), tmp_path / "nothing")


# ---- what is asked


def test_a_dataset_is_json_or_jsonl(tmp_path: Path) -> None:
    expected = [f"Question {i}?" + ("\nLook." if i % 2 else "") for i in range(6)]
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=1))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    assert read_prompts(tmp_path / "a.json") == read_prompts(tmp_path / "a.jsonl") == expected
    (tmp_path / "b.jsonl").write_text('{"input": "only input"}')
    assert read_prompts(tmp_path / "b.jsonl") == ["only input"]
    (tmp_path / "c.jsonl").write_bytes('\ufeff{"input": "two\u2028lines\x85"}\r\n{"input": "b"}\r\n'.encode())
    assert read_prompts(tmp_path / "c.jsonl") == ["two\u2028lines\x85", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "has no rows"),
        ("", "has no rows"),
        ('[{"input": "a"}, {"output": "b"}]', "row 2 of .* has no text in instruction or input"),
        ('["a"]', "row 1 of"),
        ('{"instruction": 5}', "row 1 of"),
        ("{no json", "is neither JSON nor JSONL"),
    ],
)
def test_a_dataset_that_is_none_is_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_prompts(tmp_path / "bad.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("openai:http://h/v1", "openai:http://h/v1?model=m"),
        ("openai:http://h/v1?api=completions", "openai:http://h/v1?api=completions&model=m"),
        ("triton://h:8001", "triton://h:8001/m"),
        ("triton://h:8001/?timeout=5", "triton://h:8001/m?timeout=5"),
        ("onnx:", "onnx:m"),
        ("transformers:?chat=no", "transformers:m?chat=no"),
    ],
)
def test_a_model_has_its_place_in_the_url(url: str, expected: str) -> None:
    assert with_model(url, "m") == expected


@pytest.mark.parametrize("url", ["triton://h:8001/ensemble", "onnx:demo-gpt2"])
def test_a_url_with_a_model_takes_no_other(url: str) -> None:
    with pytest.raises(ConfigError, match="leave out `model`"):
        with_model(url, "m")


# ---- the command


def test_two_models_are_compared(dataset: Path) -> None:
    with OpenAIServer(Script(models=("fast", "slow"))) as server:
        arguments: list[str | Path] = ["--url", f"openai:{server.url}", "--dataset", dataset, "--concurrency", "1,3"]
        done = bench(*arguments, "--model", "fast", "--model", "slow", "--json")
        asked = [request["model"] for request in server.script.requests]
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [contender["name"] for contender in result["contenders"]] == ["fast", "slow"]
    assert asked == ["fast", "slow"] + (["fast"] * 6 + ["slow"] * 6) * 2
    for contender in result["contenders"]:
        assert contender["tokens_counted_by"] == "pieces of the stream"
        for level, number in zip(contender["levels"], (1, 3)):
            assert (level["concurrency"], level["requests"], level["errors"]) == (number, 6, {})
            assert level["tokens"] == 6 * 14
            assert level["tokens_per_second"] == pytest.approx(level["tokens"] / level["total_seconds"], rel=0.01)
            assert 0 < level["time_to_first_token"]["p50_ms"] <= level["latency"]["p50_ms"]
    first, second = (contender["levels"][0]["tokens_per_second"] for contender in result["contenders"])
    assert result["speed_up"]["levels"][0]["tokens_per_second"] == pytest.approx(first / second, rel=0.01)


def test_a_model_in_this_process_is_measured_and_a_table_goes_to_a_pipe_in_columns(dataset: Path) -> None:
    given = ("--url", "onnx:", "--model", "demo-gpt2", "--dataset", dataset, "--concurrency", "2", "--max-tokens", 8)
    done = bench(*given, "--requests", "3")
    assert done.exit_code == 0, done.output
    names, row = [line.split("\t") for line in done.stdout.splitlines()]
    assert (names[:3], names[-1]) == (["model", "concurrency", "requests"], "errors")
    assert (row[:3], row[-1]) == (["demo-gpt2", "2", "3"], "0")
    figures = dict(zip(names, row, strict=True))
    rate, seconds = float(figures["tokens/s"]), float(figures["total s"])  # which the table gives in hundredths
    assert rate * (seconds + 0.005) >= 3
    assert rate * (seconds - 0.005) <= 3 * 8
    assert "tokens counted by the generator's own tokenizer" in done.stderr


def test_failed_requests_are_counted_and_listed_and_not_timed(dataset: Path) -> None:
    with OpenAIServer() as server:
        server.script.faults = ["", "500", "cut 4", "500"]
        done = bench("--url", f"openai:{server.url}", "--dataset", dataset, "--concurrency", "1")
    assert done.exit_code == 0
    row = done.stdout.splitlines()[1].split("\t")
    assert (row[2], row[-1]) == ("3", "3")
    assert "2 times at 1: openai:" in done.stderr
    assert "1 times at 1: openai:" in done.stderr


def test_a_generator_that_does_not_answer_ends_it_at_once(dataset: Path) -> None:
    done = bench("--url", "openai:http://127.0.0.1:9/v1?model=m&retries=0", "--dataset", dataset)
    assert done.exit_code != 0
    assert "cannot be reached" in str(done.exception)


@pytest.mark.slow
def test_ctrl_c_prints_what_was_measured(dataset: Path) -> None:
    with OpenAIServer(Script(delay=0.05)) as server:
        options = ["--concurrency=2,1", "--json", "--requests=6", f"--dataset={dataset}"]
        command = [sys.executable, "-m", "vlmsearch", "bench", "llm", f"--url=openai:{server.url}", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            while len(server.script.requests) < 9:  # one to warm up, six at level 2, and some at level 1
                assert running.poll() is None
                time.sleep(0.02)
            running.send_signal(signal.SIGINT)
            out, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.strip() == "Interrupted."
    first, second = json.loads(out)["contenders"][0]["levels"]
    assert (first["requests"], "interrupted" in first) == (6, False)
    assert second["interrupted"]
    assert second["requests"] < 6
    assert server.script.cancelled.wait(60)


def test_figures_go_to_json_with_their_names() -> None:
    level = Level(2, 4, 40, 2.0, Percentiles(0.1, 0.2, 0.3), Percentiles(), Percentiles(1, 1, 1), (("x", 3),))
    assert level.to_json() == {
        "concurrency": 2,
        "requests": 4,
        "tokens": 40,
        "total_seconds": 2.0,
        "tokens_per_second": 20.0,
        "requests_per_second": 2.0,
        "time_to_first_token": {"p50_ms": 100.0, "p95_ms": 200.0, "p99_ms": 300.0},
        "inter_token_latency": {"p50_ms": 0.0, "p95_ms": 0.0, "p99_ms": 0.0},
        "latency": {"p50_ms": 1000.0, "p95_ms": 1000.0, "p99_ms": 1000.0},
        "errors": {"x": 3},
    }
    assert level.failed == 3
