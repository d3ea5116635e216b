"""Prompts to texts, by a model of transformers."""

import sys

sys.path[:] = filter(None, sys.path)  # Triton puts the folder that it was started in before all packages

from vlmsearch.triton.backend.llm_models import PythonLanguageModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
