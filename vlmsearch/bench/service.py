"""Requests of many clients to the service over HTTP.

They are compared with threads of one process on the same index.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import cycle, islice
from operator import index
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import numpy as np

from vlmsearch._util.closable import Closable
from vlmsearch._util.strict_json import parse_json
from vlmsearch.client import TOKEN
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.openai_api.http import HttpClient, HttpOptions
from vlmsearch.pipeline import Pipeline

T = TypeVar("T")
Ask: TypeAlias = Callable[[list[str]], object]
"""Does with some texts what is measured."""
Verb = Literal["search", "embed"]
_LIMIT = 10
_ANSWER_BYTES = 2**26
"""Size of the largest answer that is read."""


@dataclass(frozen=True)
class ServiceFigure:
    """The figures of some clients.

    Attributes:
        who: ``service`` or ``pipeline``.
        clients: How many asked at once, each one text after the other.
        rate: Answers a second, of all of them.
        p50_ms: What a call took, in the middle.
        p99_ms: What 99 of 100 calls did not exceed.
    """

    who: str
    clients: int
    rate: float
    p50_ms: float
    p99_ms: float


class ServiceClient(Closable):
    """Ask a service, over connections that are kept, and read its answers without looking into them.

    Args:
        url: The service.
        index: The index that is searched.

    Raises:
        ConfigError: The URL is wrong, or the token in ``VLMSEARCH_TOKEN`` would leave this machine unencrypted.
    """

    def __init__(self, url: str, index: str = "default") -> None:
        self._server = HttpClient(url, HttpOptions(key_variable=TOKEN))
        self._place = f"/api/v1/indexes/{quote(index, safe='')}"

    def documents(self) -> int:
        """Return how many documents the index has."""
        return self._ask(self._place, lambda said: index(said["documents"]))

    def asker(self, verb: Verb) -> Ask:
        """Return a function that searches for a text, or has it encoded.

        The first model that the service lists encodes it.
        """
        if verb == "search":
            return lambda texts: self._send("POST", f"{self._place}/search", {"text": texts[0], "limit": _LIMIT})
        models = self._ask("/v1/models", lambda said: [str(model["id"]) for model in said["data"]])
        if not models:
            raise ConfigError(f"{self._server.url} has no model that encodes texts: measure its searches")
        return lambda texts: self._send("POST", "/v1/embeddings", {"model": models[0], "input": texts})

    def _ask(self, path: str, read: Callable[[Any], T]) -> T:
        said = self._send("GET", path)
        try:
            return read(parse_json(said))
        except (LookupError, TypeError, ValueError) as exc:
            raise self._server.other("an answer of vlmsearch", said[:1000].decode("utf-8", "replace")) from exc

    def _send(self, method: str, path: str, form: dict[str, object] | None = None) -> bytes:
        body = None if form is None else json.dumps(form).encode()
        with self._server.exchange(method, path, body) as answer:
            said = self._server.read(answer, _ANSWER_BYTES)
        if answer.status_code != HTTPStatus.OK:
            message = said[:300].decode(errors="replace")
            raise BackendError(f"{self._server.url}{path} answered {answer.status_code}: {message}")
        return said

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


def measure_service(
    client: ServiceClient,
    pipeline: Pipeline | None,
    texts: Sequence[str],
    *,
    verb: Verb,
    clients: Sequence[int],
    seconds: float,
    rounds: int,
) -> list[ServiceFigure]:
    """Time a service, and a pipeline in this process beside it, in turns.

    Args:
        client: Asks the service.
        pipeline: The same index in this process; None to measure the service alone.
        texts: What is asked, in turns.
        verb: Whether texts are searched for or encoded.
        clients: How many threads ask at once.
        seconds: How long each figure is measured in a round.
        rounds: How often each has its turn.

    Returns:
        The figures: medians of the rounds.

    Raises:
        ConfigError: The index of the service is empty.
        BackendError: The service refused a request, or cannot be reached.
    """
    if verb == "search" and not client.documents():
        raise ConfigError("the index of the service is empty, so that a search has nothing to do: index something")
    askers = {"service": client.asker(verb)}
    if pipeline is not None:
        askers["pipeline"] = _asker(pipeline, verb)
    contenders: dict[tuple[str, int], Callable[[], Run]] = {
        (who, number): partial(run_clients, ask, texts, number, seconds)
        for number in clients
        for who, ask in askers.items()
    }
    for ask in askers.values():
        ask([texts[0]])  # what is made by the first request is not measured
    runs: dict[tuple[str, int], list[Run]] = {of: [] for of in contenders}
    for of, contender in islice(cycle(contenders.items()), rounds * len(contenders)):
        runs[of].append(contender())
    return [ServiceFigure(*of, *rate_and_times(rounds)) for of, rounds in runs.items()]


@dataclass
class Run:
    """One round of one contender.

    Attributes:
        seconds: How long it took.
        texts: How many texts were asked.
        times: How long each call took, in seconds.
        batches: How large the batches were.
    """

    seconds: float = 0.0
    texts: int = 0
    times: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


def run_clients(ask: Ask, texts: Sequence[str], number: int, seconds: float) -> Run:
    """Have threads ask one text after the other, each beginning at another one.

    Args:
        ask: What is called with a list of one text.
        texts: What they ask, in turns.
        number: How many threads there are.
        seconds: How long they ask.

    Returns:
        What each call took.
    """
    with ThreadPoolExecutor(number) as threads:
        shares = [[*texts[i % len(texts) :], *texts[: i % len(texts)]] for i in range(0, 7 * number, 7)]
        runs = list(threads.map(lambda share: run_alone(ask, share, 1, seconds), shares))
    return Run(
        max(run.seconds for run in runs),
        sum(run.texts for run in runs),
        [seconds for run in runs for seconds in run.times],
    )


def run_alone(ask: Ask, texts: Sequence[str], size: int, seconds: float) -> Run:
    """Return one thread, one call after the other."""
    run, given = Run(batches=[size]), cycle(texts)
    started = time.perf_counter()
    while run.seconds < seconds:
        asked = list(islice(given, size))
        before = time.perf_counter()
        ask(asked)
        now = time.perf_counter()
        run.times.append(now - before)
        run.texts += size
        run.seconds = now - started
    return run


def rate_and_times(runs: Sequence[Run]) -> tuple[float, float, float]:
    """Return texts a second, and p50 and p99 of a call in milliseconds: medians of the rounds of one contender."""

    def middle(value: Callable[[Run], float]) -> float:
        return statistics.median(value(run) for run in runs)

    return (
        middle(lambda run: run.texts / run.seconds),
        middle(lambda run: 1000 * float(np.percentile(run.times, 50))),
        middle(lambda run: 1000 * float(np.percentile(run.times, 99))),
    )


def _asker(pipeline: Pipeline, verb: Verb) -> Ask:
    if verb == "search":
        return lambda texts: pipeline.search(texts[0], limit=_LIMIT)
    return partial(pipeline.encoder.encode_texts, role="query")
