"""The engine of in-flight batching, at its end and after stops."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.llm_servers import MODEL
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.triton.backend import llm_engine
from vlmsearch.triton.backend.llm_engine import BatchingEngine, GenerationTask, StepResult

PROMPT = (1, 2, 3)


class Told:
    """What a task was told."""

    def __init__(self) -> None:
        self.results: list[StepResult] = []
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, result: StepResult) -> None:
        self.results.append(result)
        self.begun.set()
        if result.final:
            self.ended.set()

    @property
    def last(self) -> StepResult:
        assert self.ended.wait(30)
        return self.results[-1]

    @property
    def tokens(self) -> int:
        """How many the first beam has."""
        assert self.last.final
        return sum(len(result.tokens[0]) for result in self.results)


@pytest.fixture
def engine() -> Iterator[BatchingEngine]:
    """A model that works on three texts at a time."""
    from vlmsearch.generators.local.transformers import decode_tokens, load_model

    model, tokenizer = load_model(MODEL, device="cpu", dtype="float32")
    with BatchingEngine(
        model, lambda ids: decode_tokens(tokenizer, ids), most=3, note=lambda _active, _waiting: None
    ) as made:
        yield made


@pytest.fixture
def ask(engine: BatchingEngine) -> Callable[..., Told]:
    def ask(*, id: str = "", most: int = 900, beams: int = 1) -> Told:
        told = Told()
        options = GenerationOptions(max_tokens=most, beam_width=beams)
        engine.submit(GenerationTask(PROMPT, options, frozenset(), told, lambda: True, id=id))
        return told

    return ask


def test_a_task_that_cannot_be_told_ends_no_others(engine: BatchingEngine, ask: Callable[..., Told]) -> None:
    tries: list[StepResult] = []

    def tell(result: StepResult) -> None:
        tries.append(result)
        raise RuntimeError("no shared memory is left")

    engine.submit(GenerationTask(PROMPT, GenerationOptions(max_tokens=3), frozenset(), tell, lambda: True))
    assert ask(most=3).ended.wait(30)
    assert ask(most=3).tokens == 3
    assert tries[-1].error == "RuntimeError: no shared memory is left"


def test_closing_tells_all_tasks_that_they_have_ended(engine: BatchingEngine, ask: Callable[..., Told]) -> None:
    running, searching, waiting = ask(), ask(beams=2), ask()
    assert running.begun.wait(30)
    engine.close()
    late = ask()
    for told in (running, searching, waiting, late):
        assert told.last.error == "the engine is closed"
        assert [result.final for result in told.results].count(True) == 1
    assert waiting.results == late.results
    engine.close()


@pytest.mark.parametrize("beams", [1, 2])
def test_a_stop_holds_for_its_time_and_no_longer(
    engine: BatchingEngine, ask: Callable[..., Told], monkeypatch: pytest.MonkeyPatch, beams: int
) -> None:
    engine.stop("one")
    assert ask(id="one", most=3, beams=beams).tokens == 0
    monkeypatch.setattr(llm_engine, "_STOP_SECONDS", 0.0)
    assert ask(id="one", most=3, beams=beams).tokens == 3


@pytest.mark.parametrize("beams", [1, 2])
def test_a_text_is_stopped_however_long_its_next_token_takes(
    engine: BatchingEngine, ask: Callable[..., Told], monkeypatch: pytest.MonkeyPatch, beams: int
) -> None:
    monkeypatch.setattr(llm_engine, "_STOP_SECONDS", 0.0)
    other, told = ask(), ask(id="one", beams=beams)
    assert other.begun.wait(30)
    engine.stop("one")
    engine.stop("two")
    assert told.tokens < 900
    assert not other.ended.is_set()


def test_each_beam_of_a_search_takes_the_place_of_a_text(engine: BatchingEngine, ask: Callable[..., Told]) -> None:
    first = ask(most=60)
    assert first.begun.wait(30)
    wide, late = ask(most=3, beams=3), ask(most=3)
    assert wide.last.final
    assert first.ended.is_set(), "three beams and a text were made at a time, where there is room for three"
    assert late.tokens == 3
