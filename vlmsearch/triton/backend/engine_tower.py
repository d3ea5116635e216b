"""A tower as a TensorRT engine, for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.closable import Closable
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.plans import open_plan, read_plan
from vlmsearch.tensorrt.engine.runtime import this_machine
from vlmsearch.types import Vectors


class EngineTower(Closable):
    """A plan with its description beside it; ModelUnavailableError where it was built for another machine."""

    def __init__(self, path: Path, *, device_id: int = 0) -> None:
        plan = read_plan(open_plan(path), here=this_machine(device_id))
        self._engine = Engine(plan, device=device_id)

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> Vectors:
        """Unit vectors, float32 (n, dim)."""
        return self._engine.run(inputs)

    def close(self) -> None:
        """Free the GPU's memory."""
        self._engine.close()
