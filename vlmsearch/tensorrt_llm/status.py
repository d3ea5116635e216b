"""Language models of a running server with OpenAI's interface, such as trtllm-serve, or of Triton."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import BackendError
from vlmsearch.models.bundle import LANGUAGE, recipe_names
from vlmsearch.openai_api.http import HttpClient, HttpOptions
from vlmsearch.tensorrt_llm.llmapi import PICTURES
from vlmsearch.tensorrt_llm.recipe import find_llm_recipe

_SECONDS = 10.0
_ANSWER_BYTES = 2**20
"""Size of the largest answer that is read."""
_MODELS = ("ensemble", "tensorrt_llm")
"""Language models of a Triton server, by the names that NVIDIA's repositories give them."""


@dataclass(frozen=True)
class ServedModel:
    """A model of a server, the URL of its generator, and its recipe.

    The recipe is "" where there is none.

    ``has_pictures`` says whether it reads pictures; None is not known.
    """

    model: str
    generator: str
    recipe: str
    has_pictures: bool | None


def served_models(url: str) -> list[ServedModel]:
    """Return the language models of the server at an HTTP address such as ``http://127.0.0.1:8000``.

    Raises:
        BackendUnavailableError: The server cannot be reached.
        BackendError: It has none of these models.
    """
    with HttpClient(url, HttpOptions(timeout=_SECONDS)) as server:
        listed = _get(server, "/v1/models")
        if listed is not None:
            return [_of_openai(server.url, str(model["id"])) for model in listed["data"]]
        for name in _MODELS:
            metadata = _get(server, f"/v2/models/{name}")
            if metadata is not None:
                names = {tensor["name"] for tensor in metadata["inputs"]}
                tokenizer = "?tokenizer=FOLDER" if "input_ids" in names else ""
                return [ServedModel(name, f"triton://{server.host}:8001/{name}{tokenizer}", "", PICTURES in names)]
    raise BackendError(f"{url} has no language model: neither /v1/models nor {' or '.join(_MODELS)} of Triton")


def _of_openai(url: str, model: str) -> ServedModel:
    recipes = map(find_llm_recipe, recipe_names(LANGUAGE))
    recipe = next((recipe for recipe in recipes if recipe.source and model in _names(recipe.source)), None)
    sighted = bool(recipe.vision) if recipe else None
    return ServedModel(model, f"openai:{url}/v1?model={model}", recipe.name if recipe else "", sighted)


def _names(source: str) -> tuple[str, str]:
    """Return the names that a server may give a model: its id, or the last part of it."""
    return source, source.rpartition("/")[2]


def _get(server: HttpClient, target: str) -> dict[str, list[dict[str, object]]] | None:
    """Return the JSON of an address, or None where the server has no such one."""
    with server.exchange("GET", target) as response:
        body = server.read(response, _ANSWER_BYTES)
        if response.status_code != HTTPStatus.OK:
            return None
        try:
            answer: dict[str, list[dict[str, object]]] = parse_json(body)
        except ValueError as exc:
            raise BackendError(f"{server.url}{target} is not JSON: {exc}") from exc
        return answer
