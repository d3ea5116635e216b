"""UTF-8 texts to the token ids of every text tower."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.models import TextModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
