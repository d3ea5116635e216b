"""A connection to a Triton server that outlives restarts of the server.

Requests are pure functions of their inputs, so sending one again is safe. That is done where the server was not
reached, was overloaded or lost a model's process. A request that is too slow is given up but not cancelled. One that
its caller gave up is cancelled from Triton 25.03 on: before that Triton may crash when a request is cancelled
(github.com/triton-inference-server/server, #7368 and #8034).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial

import numpy as np
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from vlmsearch._util.cancellation import check_cancelled, on_cancel, pause
from vlmsearch._util.closable import Closable
from vlmsearch._util.retry import check_seconds
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError
from vlmsearch.triton.client.security import Security

Tensors = Mapping[str, NDArray[np.generic]]
PreparedInputs = tuple[triton.InferInput, ...]
"""The inputs of a request in the form that is sent.

They may be sent again and again.
"""

_MAX_MESSAGE = 2**31 - 1
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 2.0
_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_CANCELS_FROM = (2, 56)
"""The version that Triton 25.03 states."""
_RETRIED_STATUS = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
_RETRIED_MESSAGES = ("Stub process", "unknown model", "not ready")
"""A model that was there at connect comes back when the server has been restarted."""
_TIMED_OUT = "timeout expired"


class TooSlowError(BackendUnavailableError):
    """An attempt took all the time that it had.

    The server may be at work on it yet, and another one would add to its load.
    """


class Connection(Closable):
    """One server. May be used from several threads.

    ``timeout`` is how long one attempt may take, ``deadline`` how long a request with all its attempts, in seconds.
    Without ``retries`` there is one. ``tls`` encrypts; the environment has the rest of its `Security`.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float,
        deadline: float,
        tls: bool = False,
        retries: bool = True,
    ) -> None:
        check_seconds(timeout=timeout, deadline=deadline)
        security = Security.from_environment(tls=tls, host=address.rpartition(":")[0])
        self.address = address
        self._headers = dict(security.headers)
        self._timeout = timeout
        self._deadline = deadline
        self._retries = retries
        self._outstanding = 0
        self._closed = False
        self._changed = threading.Condition()
        self._security = security
        self._client = self.new_client()
        self._server: tuple[int, ...] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return what a request carries: what every one does, and the current trace."""
        return self._headers | trace_headers()

    def new_client(self) -> triton.InferenceServerClient:
        """Return a client of one's own, for a stream; close it."""
        self._check_open()
        return triton.InferenceServerClient(
            self.address,
            ssl=self._security.tls,
            root_certificates=self._security.root,
            private_key=self._security.key,
            certificate_chain=self._security.certificate,
            channel_args=[
                ("grpc.max_send_message_length", _MAX_MESSAGE),
                ("grpc.max_receive_message_length", _MAX_MESSAGE),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", int(_CONNECT_SECONDS * 1000)),  # what a connection may take, too
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )

    def config(self, model: str) -> model_config_pb2.ModelConfig:
        """Return the configuration of a model; BackendUnavailableError if the server is not reached."""
        self._check_open()
        try:
            answer = self._client.get_model_config(model, headers=self._headers, client_timeout=_CONNECT_SECONDS)
        except InferenceServerException as exc:
            raise self.error(exc, model) from exc
        config: model_config_pb2.ModelConfig = answer.config
        return config

    def infer(
        self,
        model: str,
        inputs: Tensors | PreparedInputs,
        outputs: Sequence[str],
        parameters: Mapping[str, str | bool] | None = None,
        *,
        on_recovery: Callable[[], None] | None = None,
        timeout: float | None = None,
    ) -> dict[str, NDArray[np.generic]]:
        """Return what a model makes of ``inputs``, by output.

        Raises BackendUnavailableError when time is up, and BackendError where another attempt would not help.
        ``timeout`` is how many seconds an attempt may take, if not the connection's. ``on_recovery`` is called before
        each attempt after a failure. The error of an attempt that was too slow has the failure before it, which may say
        what was wrong with the server.
        """
        end = time.monotonic() + self._deadline
        usual = _FIRST_PAUSE
        before: BackendError | None = None
        while True:
            try:
                if before and on_recovery:
                    on_recovery()
                return self._attempt(model, inputs, outputs, parameters, end, timeout or self._timeout)
            except (InferenceServerException, BackendUnavailableError) as exc:
                error = self.error(exc, model) if isinstance(exc, InferenceServerException) else exc
                wait = usual * random.uniform(0.5, 1.5)
                if before and _is_too_slow(exc):
                    raise BackendUnavailableError(f"{error}; the attempt before it: {before}") from exc
                if not (self._retries and _is_retried(exc)) or time.monotonic() + wait >= end:
                    raise error from exc
                before = error
            pause(wait)
            usual = min(2 * usual, _MAX_PAUSE)

    def prepare(self, inputs: Tensors) -> PreparedInputs:
        """Return inputs for `infer` that may be sent many times."""
        return tuple(make_tensor(name, array) for name, array in inputs.items())

    def close(self) -> None:
        """Wait a little for requests that are under way, then close the channel."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.wait_for(lambda: self._outstanding == 0, _CLOSE_SECONDS)
        self._client.close()

    def _attempt(
        self,
        model: str,
        inputs: Tensors | PreparedInputs,
        outputs: Sequence[str],
        parameters: Mapping[str, str | bool] | None,
        end: float,
        timeout: float,
    ) -> dict[str, NDArray[np.generic]]:
        with self._changed:
            self._check_open()
            self._outstanding += 1
        answer: Future[triton.InferResult] = Future()
        sent = False
        try:
            tensors = inputs if isinstance(inputs, tuple) else self.prepare(inputs)
            seconds = max(min(timeout, end - time.monotonic()), 0.0)
            cancel = self._send(model, tensors, outputs, parameters, seconds, partial(self._done, answer))
            sent = True
            with on_cancel(answer.cancel):
                result = answer.result(seconds)
        except CancelledError:
            if self._can_cancel():
                cancel()
            check_cancelled()
            raise
        except FutureTimeoutError as exc:
            raise TooSlowError(f"Triton at {self.address} did not answer within {seconds:.3g} s") from exc
        finally:
            if not sent:
                self._release()
        return {name: result.as_numpy(name) for name in outputs}

    def _send(
        self,
        model: str,
        tensors: PreparedInputs,
        outputs: Sequence[str],
        parameters: Mapping[str, str | bool] | None,
        seconds: float,
        answered: Callable[[triton.InferResult | None, InferenceServerException | None], None],
    ) -> Callable[[], None]:
        """Send a request; what is returned cancels it."""
        try:
            call = self._client.async_infer(
                model,
                tensors,
                answered,
                outputs=[triton.InferRequestedOutput(name) for name in outputs],
                headers=self.headers,
                timeout=max(int(seconds * 1e6), 1),
                parameters=dict(parameters or {}),
            )
            cancel: Callable[[], None] = call.cancel
        except Exception:
            self._check_open()
            raise
        return cancel

    def _can_cancel(self) -> bool:
        """Return whether the server stands it when a request is cancelled.

        Asked once, and False where it does not say.
        """
        with suppress(InferenceServerException, ValueError):
            if self._server is None:
                given = self._client.get_server_metadata(headers=self._headers, client_timeout=_CONNECT_SECONDS)
                self._server = tuple(map(int, given.version.split(".")[:2]))
            return self._server >= _CANCELS_FROM
        return False

    def _done(
        self,
        answer: Future[triton.InferResult],
        result: triton.InferResult | None,
        error: InferenceServerException | None,
    ) -> None:
        """Take an answer, awaited or not; called from a thread of gRPC."""
        self._release()
        if not answer.set_running_or_notify_cancel():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def _release(self) -> None:
        """Note that one attempt less is under way."""
        with self._changed:
            self._outstanding -= 1
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError(f"the connection to Triton at {self.address} is closed")

    def error(self, exc: InferenceServerException, model: str) -> BackendError:
        """Return what a failure of Triton's client means.

        BackendUnavailableError where another attempt may do better.
        """
        status = str(exc.status()).removeprefix("StatusCode.")
        message = self._security.redact(exc.message() or "no reason given")
        if _TIMED_OUT in message:
            return TooSlowError(f"Triton at {self.address}: {message}")
        if status in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            return BackendUnavailableError(f"Triton at {self.address}: {message}")
        if status == "NOT_FOUND" or "unknown model" in message:
            return BackendUnavailableError(f"Triton at {self.address} does not serve {model}: {message}")
        shown = "" if status == "None" else f" ({status})"  # an error within a stream has none
        return BackendError(f"Triton at {self.address}: {model}: {message}{shown}")


def make_tensor(name: str, array: NDArray[np.generic]) -> triton.InferInput:
    """Return an input of a request."""
    tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


def _is_too_slow(exc: Exception) -> bool:
    """Return whether an attempt took all of its time.

    It is the time for this side or for the server.
    """
    if isinstance(exc, InferenceServerException):
        return _TIMED_OUT in (exc.message() or "")
    return isinstance(exc, TooSlowError)


def _is_retried(exc: Exception) -> bool:
    """Return whether another attempt may do better, and does no harm."""
    if _is_too_slow(exc):
        return False
    if not isinstance(exc, InferenceServerException):
        return True
    message = exc.message() or ""
    return exc.status() in _RETRIED_STATUS or any(part in message for part in _RETRIED_MESSAGES)
