"""The LLM API before it moved."""

from __future__ import annotations

from dataclasses import dataclass

import standin_llm  # type: ignore[import-not-found]


@dataclass
class SamplingParams:
    end_id: int | None = None
    max_new_tokens: int = 32
    beam_width: int = 1
    top_k: int | None = None
    top_p: float | None = None
    random_seed: int | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None


class LLM:
    def __init__(self, model: str, tokenizer: str | None = None, tensor_parallel_size: int = 1) -> None:
        self.tokenizer = standin_llm.load(model, tokenizer, tensor_parallel_size=tensor_parallel_size)

    def generate_async(
        self, inputs: str, sampling_params: SamplingParams | None = None, streaming: bool = False
    ) -> standin_llm.Result:
        params = sampling_params or SamplingParams()
        return standin_llm.run(inputs, params, params.max_new_tokens, params.random_seed, None, streaming)
