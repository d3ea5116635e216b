"""Work on a GPU that is captured once and queued as a whole from then on: CUDA graphs."""

from __future__ import annotations

from cuda.bindings import runtime
from typing_extensions import Self

from vlmsearch.closing import Closable
from vlmsearch.gpu.cuda import Stream, check, checked, uncaptured


class Graph(Closable):
    """Work that was captured once and is queued as a whole."""

    def __init__(self, executable: object) -> None:
        self._executable = executable
        self._handle = int(executable)  # type: ignore[call-overload]

    def launch(self, stream: Stream) -> None:
        """Queue it."""
        check(*runtime.cudaGraphLaunch(self._handle, stream.handle))

    def close(self) -> None:
        """Let go of it."""
        executable, self._executable = self._executable, None
        if executable is not None:
            runtime.cudaGraphExecDestroy(executable)


class Capture:
    """A ``with`` block whose work on ``stream`` is captured, not run; then ``graph`` is there.

    One thread captures at a time. Work that cannot be captured is a BackendError at the end of the block.
    """

    graph: Graph

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        uncaptured.acquire()
        try:
            check(*runtime.cudaStreamBeginCapture(self._stream.handle, mode))
        except BaseException:
            uncaptured.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            outcome, captured = runtime.cudaStreamEndCapture(self._stream.handle)
        finally:
            uncaptured.release()
        try:
            if kind is None:
                check(outcome)
                self.graph = Graph(checked(runtime.cudaGraphInstantiate(captured, 0)))
        finally:
            if outcome == runtime.cudaError_t.cudaSuccess and captured:
                runtime.cudaGraphDestroy(captured)
            runtime.cudaGetLastError()  # TensorRT would take it for its own
