"""The engine of in-flight batching, at its end and after stops."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.llm_servers import MODEL
from vlmsearch.generators.base import GenerationOptions
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
        """How many were made; ``decode`` gives a letter for each."""
        assert self.last.final
        return sum(len(result.text) for result in self.results)


@pytest.fixture
def engine() -> Iterator[BatchingEngine]:
    """A model that works on three texts at a time."""
    from vlmsearch.generators.local.transformers import load_model

    model, _, _ = load_model(MODEL, device="cpu", dtype="float32")
    with BatchingEngine(model, lambda ids: "x" * len(ids), max_texts=3, note=lambda _active, _waiting: None) as made:
        yield made


@pytest.fixture
def ask(engine: BatchingEngine) -> Callable[..., Told]:
    def ask(*, id: str = "", most: int = 900) -> Told:
        told = Told()
        options = GenerationOptions(max_tokens=most)
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
    running, second, third, waiting = ask(), ask(), ask(), ask()
    assert running.begun.wait(30)
    engine.close()
    late = ask()
    for told in (running, second, third, waiting, late):
        assert told.last.error == "the engine is closed"
        assert [result.final for result in told.results].count(True) == 1
    assert waiting.results == late.results
    engine.close()


def test_a_stop_ends_the_texts_of_its_id_alone(engine: BatchingEngine, ask: Callable[..., Told]) -> None:
    other, told = ask(), ask(id="one")
    assert other.begun.wait(30)
    engine.stop("one")
    engine.stop("two")
    assert told.tokens < 900
    assert not other.ended.is_set()


def test_a_text_that_waits_is_stopped_before_it_begins(engine: BatchingEngine, ask: Callable[..., Told]) -> None:
    first = [ask(most=5) for _ in range(3)]
    late = ask(id="one", most=3)
    engine.stop("one")
    assert late.tokens == 0
    assert any(told.ended.is_set() for told in first), "there is room for three"
