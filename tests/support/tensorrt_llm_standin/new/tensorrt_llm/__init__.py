"""TensorRT-LLM 1.x as far as it is used: LLM for checkpoints here, for engines in ``_tensorrt_engine``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import standin_llm  # type: ignore[import-not-found]

standin_llm.at_import()


@dataclass(kw_only=True)
class SamplingParams:
    end_id: int | None = None
    max_tokens: int = 32
    bad: str | list[str] | None = None
    stop: str | list[str] | None = None
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    add_special_tokens: bool = True

    def __post_init__(self) -> None:
        assert self.temperature is None or self.temperature > 0
        assert self.best_of is None or self.best_of >= self.n


class LLM:
    engines = False

    def __init__(self, model: str, tokenizer: str | None = None, tensor_parallel_size: int = 1) -> None:
        if any(Path(model).glob("rank*")) != self.engines:
            raise ValueError(f"this LLM takes {'engines' if self.engines else 'checkpoints of transformers'}")
        self.tokenizer = standin_llm.load(model, tokenizer, tensor_parallel_size=tensor_parallel_size)
        self.args = SimpleNamespace(max_seq_len=None if self.engines else 512)

    def generate_async(
        self, inputs: str, sampling_params: SamplingParams | None = None, streaming: bool = False
    ) -> standin_llm.Result:
        params = sampling_params or SamplingParams()
        bad = [params.bad] if isinstance(params.bad, str) else params.bad
        return standin_llm.run(inputs, params, params.max_tokens, params.seed, bad, streaming)

    def shutdown(self) -> None:
        standin_llm.note("shutdown")
