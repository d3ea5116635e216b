"""TensorRT engines for Triton's Python backend."""

from __future__ import annotations

from pathlib import Path

from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.plans import open_plan, read_plan
from vlmsearch.tensorrt.engine.runtime import this_machine


def open_engine(path: Path, device: int = 0) -> Engine:
    """Return the engine of a plan with its description beside it.

    ModelUnavailableError where it was built for another machine.
    """
    return Engine(read_plan(open_plan(path), here=this_machine(device)), device=device)
