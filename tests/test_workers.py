"""Threads of what has been closed."""

import threading

import PIL.Image
import pytest

from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import BackendError
from vlmsearch.workers import Workers


def test_work_that_runs_ends_and_other_work_is_refused_once_closed() -> None:
    workers, go, begun = Workers(1, name="some", owner="the engine"), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(20)
        return "done"

    running, waiting = workers.submit(work), workers.submit(work)
    assert begun.wait(20)
    workers.close()
    go.set()
    assert running.result(20) == "done"
    with pytest.raises(BackendError, match=r"^the engine is closed$"):
        waiting.result(20)
    with pytest.raises(BackendError, match=r"^the engine is closed$"):
        workers.submit(work)
    workers.close()


def test_an_error_of_the_work_is_its_own() -> None:
    workers = Workers(1, name="some", owner="the engine")
    with pytest.raises(ValueError, match="invalid literal"):
        workers.submit(int, "x").result(20)
    assert workers.submit(int, "11", base=2).result(20) == 3
    workers.close()


def test_an_onnx_encoder_that_is_closed_says_so() -> None:
    encoder = OnnxEncoder("demo", threads=2)
    encoder.close()
    with pytest.raises(BackendError, match="the encoder is closed"):
        encoder.encode_images([PIL.Image.new("RGB", (64, 64))] * 3)
    with pytest.raises(BackendError, match=r"text tower is closed"):
        encoder.encode_texts(["a red circle"] * 40)
    encoder.close()
