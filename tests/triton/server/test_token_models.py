"""TensorRT-LLM's engine without the ensemble around it, by token ids through the real Triton."""

from __future__ import annotations

import json
import queue
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from tests.support.triton_server import Running
from vlmsearch import GenerationOptions
from vlmsearch.errors import ConfigError
from vlmsearch.generators.text import open_tokenizer
from vlmsearch.generators.triton.generator import TritonGenerator
from vlmsearch.generators.triton.vocabulary import Vocabulary
from vlmsearch.registry import open_generator

TOKENIZER = Path("engines/demo-gpt2/bundle").resolve()
END = 0
TEXT = "A naïve café in 東京 🙂, twice upon a time: END of it."
MODELS = ("tokens", "tokens-unary", "tokens-unary-without")


def bare(server: Running, model: str, prompt: str, limit: int, **more: NDArray[Any]) -> list[list[int]]:
    """The ids of each response, as a client has them that knows nothing of this library."""
    ids = open_tokenizer(TOKENIZER).encode(prompt).ids
    scalars = {"input_lengths": len(ids), "request_output_len": limit, "end_id": END, "pad_id": END}
    arrays = {"input_ids": np.array([ids], np.int32)}
    arrays |= {name: np.array([[value]], np.int32) for name, value in scalars.items()} | more
    inputs = [grpc.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)) for name, array in arrays.items()]
    for tensor, array in zip(inputs, arrays.values(), strict=True):
        tensor.set_data_from_numpy(array)
    answers: queue.Queue[Any] = queue.Queue()
    with grpc.InferenceServerClient(f"127.0.0.1:{server.ends.grpc}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        responses = []
        while True:
            result, error = answers.get(timeout=60)
            assert error is None
            if (found := result.as_numpy("output_ids")) is not None:
                responses.append(found[0, 0, : result.as_numpy("sequence_length")[0, 0]].tolist())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return responses


def opened(server: Running, model: str) -> TritonGenerator:
    url = f"triton://127.0.0.1:{server.ends.grpc}/{model}?tokenizer={TOKENIZER}"
    generator = open_generator(url)
    assert isinstance(generator, TritonGenerator)
    return generator


@pytest.mark.parametrize("limit", [1, 7, 60, 200])
@pytest.mark.parametrize("model", MODELS)
def test_the_text_is_that_of_a_bare_client(texts_server: Running, model: str, limit: int) -> None:
    for prompt in (TEXT, f"{TEXT}<|endoftext|>", "a"):
        is_streamed = model == "tokens"
        more = {"streaming": np.array([[True]])} if is_streamed else {}
        ids = [token for response in bare(texts_server, model, prompt, limit, **more) for token in response]
        tokenizer = open_tokenizer(TOKENIZER)
        if model == "tokens-unary":
            ids = ids[len(tokenizer.encode(prompt).ids) :]
        with opened(texts_server, model) as generator:
            pieces = list(generator.stream(prompt, GenerationOptions(max_tokens=limit)))
        assert "".join(pieces) == tokenizer.decode(ids)
        assert (len(pieces) > 2) is (is_streamed and limit >= 7), "an incomplete character comes at the end"
        assert "<|endoftext|>" not in "".join(pieces)


@pytest.mark.parametrize("model", MODELS)
def test_options_are_sent_as_ids(texts_server: Running, model: str) -> None:
    scene = "a red star and two blue rings, then a heart."
    with opened(texts_server, model) as generator:

        def generate(prompt: str = scene, **options: Any) -> str:
            return generator.generate(prompt, GenerationOptions(**{"max_tokens": 60, **options}))

        whole = generate()
        assert whole.startswith(scene * 2)
        assert generate(stop=(" heart", "no such thing")) == "a red star and two blue rings, then a"
        assert generate(stop=(" two blue",)) == "a red star and"
        assert generate(bad_words=(" two", " blue rings")).startswith("a red star and blue, then a heart.")
        assert generate(beam_width=3) == whole, "the first beam is the likeliest"
        assert whole.endswith(generate(seed=1, max_tokens=59))


def test_every_token_that_ends_a_text_ends_it(texts_server: Running, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    shutil.copy(TOKENIZER / "tokenizer.json", folder)
    comma = open_tokenizer(TOKENIZER).token_to_id(",")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, comma]}))
    url = f"//127.0.0.1:{texts_server.ends.grpc}/tokens"
    with TritonGenerator(url, tokenizer=folder) as generator:
        assert generator.generate(TEXT) == TEXT.split(",", maxsplit=1)[0]
        with pytest.MonkeyPatch.context() as patch:  # as for a model without lists of stop words
            patch.setattr(Vocabulary, "words", lambda self, words, ends=(): None)
            assert generator.generate(TEXT) == TEXT.split(",", maxsplit=1)[0]
    (folder / "generation_config.json").unlink()
    for place in (folder, folder / "tokenizer.json"):
        with pytest.raises(ConfigError, match="does not say which token ends a text: give the folder"):
            TritonGenerator(url, tokenizer=place)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": ","}}))
    with TritonGenerator(url, tokenizer=folder) as generator:
        assert generator.generate(TEXT) == TEXT.split(",", maxsplit=1)[0]


def test_ids_need_a_tokenizer(texts_server: Running) -> None:
    with pytest.raises(ConfigError, match=r"tokens reads token ids: give .* as tokens\?tokenizer=FOLDER"):
        TritonGenerator(f"//127.0.0.1:{texts_server.ends.grpc}/tokens")
