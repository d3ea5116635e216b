"""TensorRT-LLM before 0.13 as far as it is used: the LLM API is in ``hlapi``, and some names are others."""

import standin_llm  # type: ignore[import-not-found]

standin_llm.at_import()
