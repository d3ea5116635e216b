"""Prompts and word lists to token ids."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.llm_models import PreprocessingModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
