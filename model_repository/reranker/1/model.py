"""Queries and texts to the probability that the text is what the query asks for."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.reranker import RerankerModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
