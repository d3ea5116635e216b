"""Language models behind a real Triton server, for the tests."""

import json
import queue
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray
from questions import Gallery

from tests.support.triton_server import Running
from vlmsearch.answers.prompts import TEMPLATE
from vlmsearch.models.bundle import data_folder
from vlmsearch.tensorrt_llm.llmapi import write_llmapi_repository
from vlmsearch.tensorrt_llm.versions import newest
from vlmsearch.triton.repository.transformers import LlmOptions, write_repository
from vlmsearch.triton.server.commands import Binary

MODEL = "demo-gpt2"
BUNDLE = data_folder("engines") / MODEL / "bundle"
SEED = 30_000_000


def prompts(count: int) -> list[str]:
    """Prompts of `Pipeline.ask` about scenes that nothing was trained on."""
    gallery = Gallery(range(SEED, SEED + 300))
    made = []
    for number in range(count):
        asked = gallery.ask(SEED + number)
        sources = "\n".join(f"[{i}] {source}" for i, source in enumerate(asked.sources, 1))
        made.append(TEMPLATE.substitute(sources=sources, question=asked.question))
    return made


def share_packages(binary: Binary) -> None:
    """Let the server's environment see torch and transformers of the tests' own, behind its own numpy."""
    import torch

    assert binary.backends
    folder = binary.backends.parents[2]
    assert folder.name == "site-packages", folder
    assert f"python{sys.version_info[0]}.{sys.version_info[1]}" in folder.parts, "the server has another Python"
    shared = folder / "zz_tests.pth"
    line = f"{Path(torch.__file__).parents[1]}\n"
    if not shared.is_file() or shared.read_text() != line:  # processes of other tests may be reading it
        shared.write_text(line)


def location(running: Running, model: str = "ensemble") -> str:
    return f"//127.0.0.1:{running.ends.grpc}/{model}"


def post(running: Running, path: str, **body: object) -> str:
    """What curl does."""
    request = Request(running.ends.url(f"v2/models/{path}"), data=json.dumps(body).encode())
    with urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def metrics(running: Running, name: str) -> dict[str, float]:
    """The values of one metric, by labels."""
    text = urlopen(f"http://127.0.0.1:{running.ends.metrics}/metrics", timeout=30).read().decode()
    found = {}
    for line in text.splitlines():
        if line.startswith(name + "{"):
            labels, _, value = line.removeprefix(name).rpartition(" ")
            found[labels] = float(value)
    return found


def write_llm_repository(folder: Path) -> Path:
    """The decoupled model."""
    return write_repository(MODEL, folder / "repository").folder


def write_unary_repository(folder: Path) -> Path:
    """The same without streaming, and beside it what is written for the LLM API, of a model with its tensors."""
    template, here = folder / "all_models" / "llmapi" / "tensorrt_llm", Path(__file__).parent / "llmapi_model"
    (template / "1").mkdir(parents=True)
    (template / "config.pbtxt").write_text((here / "config.pbtxt").read_text())
    model = (here / "model.py").read_text().replace("BUNDLE", repr(str(BUNDLE)))
    (template / "1" / "model.py").write_text(model)
    made = write_repository(MODEL, folder / "repository", LlmOptions(decoupled=False)).folder
    write_llmapi_repository(folder / "llmapi", newest(), "m", templates=folder / "all_models")
    (folder / "llmapi" / "tensorrt_llm").rename(made / "tensorrt_llm")
    return made


def stream_raw(running: Running, model: str, **inputs: NDArray[np.generic]) -> list[dict[str, NDArray[np.generic]]]:
    """What a client without vlmsearch sends to a decoupled model, and all that it gets."""
    client, answers = running.client(), queue.SimpleQueue[tuple[Any, Any]]()
    tensors = []
    for name, array in inputs.items():
        tensor = grpc.InferInput(name, list(array.shape), grpc.np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(model, tensors, enable_empty_final_response=True)
    found = []
    while True:
        result, error = answers.get(timeout=60)
        assert error is None, error
        response = result.get_response()
        if response.outputs:
            found.append({output.name: result.as_numpy(output.name) for output in response.outputs})
        if response.parameters["triton_final_response"].bool_param:
            client.stop_stream()
            client.close()
            return found
