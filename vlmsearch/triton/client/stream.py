"""Responses of a decoupled model, as they come, over one gRPC stream."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from vlmsearch._util.cancellation import on_cancel
from vlmsearch.errors import BackendError, OperationCancelledError
from vlmsearch.triton.client.connection import Connection, TooSlowError, make_tensor

_FINAL = "triton_final_response"
_END_SECONDS = 5.0
"""Seconds that a stopped request may take to end."""
_Answer = tuple["triton.InferResult | None", "InferenceServerException | None"]


@dataclass(frozen=True)
class Request:
    """A model and its inputs."""

    model: str
    inputs: Mapping[str, NDArray[np.generic]]


def stream_responses(
    connection: Connection,
    model: str,
    inputs: Mapping[str, NDArray[np.generic]],
    outputs: Sequence[str],
    *,
    timeout: float,
    deadline: float,
    request_id: str = "",
    stop: Request | None = None,
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield the outputs of each response of one request.

    ``timeout`` is how long one may take after the other, ``deadline`` all of them together, in seconds:
    BackendUnavailableError is raised after that, and where the server goes away. Closing the iterator, as cancelling
    the call and giving up, ends the request on the server: by the request ``stop``, which has its id, or else by
    cancelling it. An ensemble of Triton hands no cancellation on to its steps, and Triton before 25.03 may crash of
    one (see `vlmsearch.triton.client.connection`).
    """
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    end = time.monotonic() + deadline
    client = connection.new_client()
    done = False
    try:
        client.start_stream(
            lambda result, error: answers.put((result, error)), deadline + _END_SECONDS, headers=connection.headers
        )
        _send(client, Request(model, inputs), request_id, outputs)
        while not done:
            left = end - time.monotonic()
            why = f"sent nothing for {timeout:.3g} s" if timeout < left else f"did not finish within {deadline:.3g} s"
            with on_cancel(lambda: answers.put((None, None))):
                response, result = _next(answers, min(timeout, left), connection, model, why)
            done = response.parameters[_FINAL].bool_param
            if response.outputs:
                yield {name: result.as_numpy(name) for name in outputs}
    except InferenceServerException as exc:
        raise connection.error(exc, model) from exc
    except (GeneratorExit, KeyboardInterrupt, OperationCancelledError, TooSlowError):
        if not done:  # the last response may be what the iterator was closed at
            done = stop is not None and _end(client, answers, stop, request_id, connection)
        raise
    finally:
        client.stop_stream(cancel_requests=not done)
        client.close()


def _send(client: triton.InferenceServerClient, request: Request, id: str, outputs: Sequence[str] | None) -> None:
    client.async_stream_infer(
        request.model,
        [make_tensor(name, array) for name, array in request.inputs.items()],
        outputs=None if outputs is None else [triton.InferRequestedOutput(name) for name in outputs],
        request_id=id,
        enable_empty_final_response=True,
    )


def _end(
    client: triton.InferenceServerClient,
    answers: queue.SimpleQueue[_Answer],
    stop: Request,
    id: str,
    connection: Connection,
) -> bool:
    """Stop a request and wait until it has ended; False where it has not."""
    end, left = time.monotonic() + _END_SECONDS, 2
    try:
        _send(client, stop, id, None)
        while left:
            response, _ = _next(answers, end - time.monotonic(), connection, stop.model, "did not stop in time")
            left -= response.parameters[_FINAL].bool_param
    except (InferenceServerException, BackendError):
        return False
    return True


def _next(
    answers: queue.SimpleQueue[_Answer], seconds: float, connection: Connection, model: str, why: str
) -> tuple[Any, triton.InferResult]:
    """Return the next response, as a message and as a result.

    ``why`` tells of none within so many seconds.
    """
    try:
        result, error = answers.get(timeout=max(seconds, 0.001))
    except queue.Empty:
        raise TooSlowError(f"Triton at {connection.address} {why}") from None
    if error is not None:
        raise connection.error(error, model) from error
    if result is None:
        raise OperationCancelledError("it was cancelled")
    return result.get_response(), result
