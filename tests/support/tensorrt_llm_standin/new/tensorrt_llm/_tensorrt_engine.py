"""Where 1.x keeps the LLM for engines."""

import tensorrt_llm  # type: ignore[import-not-found]


class LLM(tensorrt_llm.LLM):  # type: ignore[misc]
    engines = True
