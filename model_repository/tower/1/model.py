"""One tower: pixels or token ids to unit vectors."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.models import TowerModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
