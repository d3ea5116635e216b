"""Encoded images to pixels, or to vectors where a plan lies beside this file."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.models import ImageModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
