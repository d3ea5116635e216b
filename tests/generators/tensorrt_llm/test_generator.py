"""`tensorrt_llm:` with stand-ins for the package: what is ours is real, the process, the pipes and the names.

TensorRT-LLM itself needs a GPU of its own and cannot be run here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.paths import TESTS
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    GenerationOptions,
    InvalidInputError,
    MissingDependencyError,
)
from vlmsearch.generators.base import CountsTokens, Generator
from vlmsearch.registry import open_generator

STANDIN = TESTS / "support" / "tensorrt_llm_standin"
LONG = GenerationOptions(max_tokens=200)


class Setting:
    """A folder with a checkpoint, and the environment of the process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "model"
        self.folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        self._patch = monkeypatch
        monkeypatch.setenv("STANDIN_LOG", str(self._log))
        monkeypatch.syspath_prepend(str(STANDIN / "new"))  # to be found in this process, and imported in the other
        self.release("new")

    def release(self, name: str) -> None:
        self._patch.setenv("PYTHONPATH", f"{STANDIN / name}{os.pathsep}{STANDIN / 'core'}")

    def fault(self, name: str, delay: float = 0.0) -> None:
        self._patch.setenv("STANDIN", name)
        self._patch.setenv("STANDIN_DELAY", str(delay))

    def write(self, file: str, config: dict[str, object]) -> None:
        (self.folder / file).write_bytes(b"")
        (self.folder / "config.json").write_text(json.dumps(config))

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()

    def wait_for(self, call: str) -> None:
        for _ in range(100):
            if call in self.calls:
                return
            time.sleep(0.05)
        raise AssertionError(f"{call} is not in {self.calls}")


def opened(setting: Setting, options: str = "") -> Generator:
    return open_generator(f"tensorrt_llm:{setting.folder}?{options}")


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(tmp_path, monkeypatch)


class TestTensorrtLlm(GeneratorContract):
    @pytest.fixture(autouse=True)
    def _setting(self, setting: Setting) -> None:
        self.folder = setting.folder

    def make_generator(self) -> Generator:
        return open_generator(f"tensorrt_llm:{self.folder}")


# ---- what reaches TensorRT-LLM


def test_options_have_the_names_of_the_release(setting: Setting) -> None:
    options = GenerationOptions(
        max_tokens=9, temperature=0.5, top_k=7, top_p=0.9, repetition_penalty=1.2, stop=("x",), bad_words=("y",), seed=3
    )
    with opened(setting) as generator:
        generator.generate("?", options)
        generator.generate("?", GenerationOptions(max_tokens=4))
        generator.generate("?", GenerationOptions(max_tokens=4, beam_width=3))
    load, sampled, greedy, beams, shutdown = setting.calls
    assert load == "load model tokenizer=None {'tensor_parallel_size': 1}"
    assert sampled == (
        "generate SamplingParams(end_id=None, max_tokens=9, bad=['y'], stop=['x'], n=1, best_of=None, "
        "use_beam_search=False, top_k=7, top_p=0.9, seed=3, temperature=0.5, repetition_penalty=1.2, "
        "add_special_tokens=True) streaming=True"
    )
    assert "max_tokens=4, bad=None, stop=None, n=1, best_of=None, use_beam_search=False, top_k=1, top_p=None" in greedy
    assert "n=1, best_of=3, use_beam_search=True, top_k=1" in beams
    assert beams.endswith("streaming=False")
    assert shutdown == "shutdown"


def test_an_old_release_has_its_own_names_and_no_stop_words(setting: Setting) -> None:
    setting.release("old")
    with opened(setting, "context=512") as generator:
        generator.generate("?", GenerationOptions(max_tokens=4, temperature=1.0, seed=3))
        generator.generate("?", GenerationOptions(max_tokens=4, beam_width=2))
        with pytest.raises(ConfigError, match="this release of TensorRT-LLM has no option for bad_words"):
            generator.generate("?", GenerationOptions(bad_words=("x",)))
    assert "max_new_tokens=4" in setting.calls[1]
    assert "random_seed=3" in setting.calls[1]
    assert "beam_width=2" in setting.calls[2]


@pytest.mark.parametrize(
    ("file", "config", "context"),
    [
        ("rank0.engine", {"build_config": {"max_seq_len": 300}}, 300),
        ("rank0.engine", {"build_config": {"max_input_len": 200, "max_output_len": 50}}, 250),
        ("rank0.safetensors", {"architecture": "GPTForCausalLM", "max_position_embeddings": 400}, 400),
    ],
)
def test_engines_are_opened_by_the_class_for_engines(
    setting: Setting, file: str, config: dict[str, object], context: int
) -> None:
    setting.write(file, config)
    with opened(setting, "tokenizer=/tok&tensor_parallel=2") as generator:
        assert isinstance(generator, CountsTokens)
        assert generator.context == context
        assert generator.generate("?", LONG).startswith("It shows")
    assert setting.calls[0] == "load model tokenizer=/tok {'tensor_parallel_size': 2}"


def test_chat_templates_are_used_where_there_is_one(setting: Setting) -> None:
    with opened(setting) as generator:
        assert isinstance(generator, CountsTokens)
        bare, plain = generator.generate("?", LONG), generator.count_tokens("?")
    (setting.folder / "chat_template.jinja").write_text("a template")
    with opened(setting) as generator:
        assert isinstance(generator, CountsTokens)
        written, counted = generator.generate("?", LONG), generator.count_tokens("?")
        assert "add_special_tokens=False" in setting.calls[-1]
    with opened(setting, "chat=false") as generator:
        assert generator.generate("?", LONG) == bare
    assert "of 1 characters" in bare
    assert f"of {len('<user>?<assistant>')} characters" in written
    assert (plain, counted) == (1, 6)


def test_a_context_that_nothing_says_has_to_be_given(setting: Setting) -> None:
    setting.release("old")
    with pytest.raises(ConfigError, match=r"add \?context= with its tokens"):
        opened(setting)


def test_a_prompt_too_long_is_one(setting: Setting) -> None:
    with opened(setting) as generator:
        with pytest.raises(InvalidInputError, match="cannot read a prompt of this length") as caught:
            generator.generate("x" * 3000)
        assert caught.value.code == "too_long"
        assert generator.generate("?", LONG).endswith("characters.")


# ---- streams


def test_pieces_come_as_they_are_made_and_many_at_a_time(setting: Setting) -> None:
    setting.fault("", delay=0.01)
    with opened(setting) as generator:
        whole = generator.generate("?", LONG)
        assert len(list(generator.stream("?", LONG))) > 10
        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(lambda _: generator.generate("?", LONG), range(16))) == {whole}


def test_closing_the_stream_aborts_the_request(setting: Setting) -> None:
    setting.fault("", delay=0.2)
    with opened(setting) as generator:
        stream = generator.stream("?", LONG)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        setting.wait_for("aborted")


# ---- what goes wrong


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("abort", "was ended by SIGABRT"),
        ("segv", "was ended by SIGSEGV"),
        ("exit", "ended with status 3"),
        ("raise", "RuntimeError: libmpi.so.40: cannot open shared object file"),
        ("load", "ValueError: the engine was built for another GPU"),
    ],
)
def test_a_package_that_fails_takes_only_its_own_process_along(setting: Setting, fault: str, reason: str) -> None:
    setting.fault(fault)
    with pytest.raises(BackendError, match="cannot be loaded") as caught:
        open_generator(f"tensorrt_llm:{setting.folder}")
    assert reason in str(caught.value)
    if "ended" in reason:
        assert "about to initialise MPI" in str(caught.value)


@pytest.mark.slow
def test_a_package_that_hangs_is_given_up(setting: Setting) -> None:
    setting.fault("hang")
    started = time.monotonic()
    with pytest.raises(BackendUnavailableError, match=r"did not load within 2 s; a larger \?start_timeout=") as caught:
        open_generator(f"tensorrt_llm:{setting.folder}?start_timeout=2")
    assert "about to initialise MPI" in str(caught.value)
    assert time.monotonic() - started < 30


def test_a_process_that_dies_fails_what_runs_and_what_comes(setting: Setting) -> None:
    setting.fault("die", delay=0.3)
    with opened(setting) as generator:
        stream = generator.stream("?", LONG)
        assert next(stream) + next(stream) == "It sho"
        reason = r"was ended by SIGABRT(.|\n)*CUDA error: an illegal memory access"
        with pytest.raises(BackendError, match=reason):
            next(stream)
        with pytest.raises(BackendError, match=reason):
            generator.generate("?")


def test_a_process_that_says_nothing_times_out(setting: Setting) -> None:
    setting.fault("stall")
    silent = pytest.raises(BackendUnavailableError, match=r"was silent for 0.5 s; a larger \?timeout=")
    with open_generator(f"tensorrt_llm:{setting.folder}?timeout=0.5") as generator, silent:
        generator.generate("?")


def test_without_the_package_the_extra_is_named(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vlmsearch.generators.tensorrt_llm.generator", raising=False)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if str(STANDIN) not in place])
    with pytest.raises(MissingDependencyError, match=r"pip install 'vlmsearch\[tensorrt_llm\]'"):
        open_generator(f"tensorrt_llm:{setting.folder}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("tensorrt_llm:/no/such/folder", "is not a folder with a checkpoint or an engine"),
        ("tensorrt_llm:name?tensor_parallel=0", "tensor_parallel is at least 1"),
        ("tensorrt_llm:", "needs a location"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_started(setting: Setting, url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_generator(url)


def test_closed_it_leaves_no_process(setting: Setting) -> None:
    generator = opened(setting)
    process = generator._child._process  # type: ignore[attr-defined]
    generator.close()
    generator.close()
    assert process.poll() == 0
    with pytest.raises(BackendError, match=r"^tensorrt_llm:.* is closed$"):
        generator.generate("?")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "hang"])
def test_nothing_is_left_of_an_application_that_is_killed(setting: Setting, tmp_path: Path, fault: str) -> None:
    setting.fault(fault)
    place = tmp_path / "pid"
    code = f"from vlmsearch.registry import open_generator; open_generator('tensorrt_llm:{setting.folder}'); input()"
    paths = os.pathsep.join((str(STANDIN / "new"), str(STANDIN / "core")))
    environment = os.environ | {"STANDIN_PID": str(place), "PYTHONPATH": paths}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE) as application:
        child = _number(place)
        application.kill()
    for _ in range(200):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("the process is still there")


def _number(place: Path) -> int:
    for _ in range(600):
        if place.is_file() and place.read_text():
            return int(place.read_text())
        time.sleep(0.05)
    raise AssertionError("the process did not start")
