"""Re-ranking in the forms of Cohere, text-embeddings-inference and infinity.

- Cohere: its API reference, v1 and v2.
- text-embeddings-inference: https://github.com/huggingface/text-embeddings-inference
- infinity: https://github.com/michaelfeil/infinity

All scores are probabilities from 0 to 1. A text that cannot be judged, such as an empty one, has 0.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, Union

from fastapi import APIRouter, Depends, Request
from pydantic import BeforeValidator, Field, RootModel
from pydantic_core import PydanticCustomError

from vlmsearch.rerankers.base import Reranker
from vlmsearch.schema import Items, Name, Positive, QueryText
from vlmsearch.server.bodies import form_docs, form_of
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import CallerHere, ServiceHere
from vlmsearch.server.errors import ApiError, Json
from vlmsearch.server.forms import LongText
from vlmsearch.server.routes.openai import OpenForm
from vlmsearch.server.service import Service
from vlmsearch.types import Document

router = APIRouter(tags=["rerank"])
MAX_DOCUMENTS = 10_000
"""Documents of a request, as at Cohere."""
_ANY_MODEL = "default/not-specified"
"""The model of a request to infinity that names none."""


def _check_bool(given: object) -> object:
    if not isinstance(given, bool):  # 0 equals False
        raise PydanticCustomError("bool_type", "Input should be a valid boolean")
    return given


No: TypeAlias = Annotated[Literal[False], BeforeValidator(_check_bool)]


class DocumentOfText(OpenForm):
    """A document of Cohere's first version."""

    text: LongText


Texts = Annotated[list[LongText], Field(min_length=1), Items(MAX_DOCUMENTS)]
TextsOrObjects = Annotated[list[Union[LongText, DocumentOfText]], Field(min_length=1), Items(MAX_DOCUMENTS)]
MostAnswers = Annotated[Union[Positive, None], Field(description="How many of the best are answered.")]


class CohereForm(OpenForm):
    """A request of Cohere's second version."""

    model: Name = Field(description="The name of an index that has a re-ranker, or of its re-ranker.")
    query: QueryText
    documents: Texts
    top_n: MostAnswers = None


class CohereFirstForm(OpenForm):
    """A request of Cohere's first version."""

    model: Name | None = None
    query: QueryText
    documents: TextsOrObjects
    top_n: MostAnswers = None
    return_documents: bool | None = None


class InfinityForm(OpenForm):
    """A request of infinity's."""

    query: QueryText
    documents: Texts
    model: Name = _ANY_MODEL
    top_n: MostAnswers = None
    return_documents: bool = False
    raw_scores: No = False


class TeiForm(OpenForm):
    """A request of text-embeddings-inference's; texts are always cut at the end."""

    query: QueryText
    texts: Texts
    return_text: bool = False
    raw_scores: No = False
    truncation_direction: Literal["Right", "right"] = "Right"


class RerankForm(RootModel[Union[TeiForm, InfinityForm]]):
    """A request of text-embeddings-inference's, with `texts`, or of infinity's, with `documents`."""


@router.post("/v2/rerank", openapi_extra=form_docs(CohereForm))
async def cohere(
    form: Annotated[CohereForm, Depends(form_of(CohereForm))],
    request: Request,
    service: ServiceHere,
    caller: CallerHere,
) -> Json:
    """Order texts by relevance to a query, as Cohere's API v2."""
    _, reranker = _find(service, caller, form.model, request)
    ranks = await service.call(_rank, reranker, form.query, form.documents, form.top_n)
    return Json(_cohere([{"index": place, "relevance_score": score} for place, score in ranks], "2"))


@router.post("/v1/rerank", openapi_extra=form_docs(CohereFirstForm))
async def cohere_first(
    form: Annotated[CohereFirstForm, Depends(form_of(CohereFirstForm))],
    request: Request,
    service: ServiceHere,
    caller: CallerHere,
) -> Json:
    """Order texts by relevance to a query, as Cohere's API v1."""
    _, reranker = _find(service, caller, form.model, request)
    texts = [document if isinstance(document, str) else document.text for document in form.documents]
    results: list[dict[str, object]] = []
    for place, score in await service.call(_rank, reranker, form.query, texts, form.top_n):
        document = {"document": {"text": texts[place]}} if form.return_documents else {}
        results.append({**document, "index": place, "relevance_score": score})
    return Json(_cohere(results, "1"))


def _cohere(results: Sequence[dict[str, object]], version: str) -> dict[str, object]:
    return {"id": str(uuid.uuid4()), "results": results, "meta": {"api_version": {"version": version}}}


@router.post("/rerank", openapi_extra=form_docs(RerankForm))
async def rerank(
    form: Annotated[RerankForm, Depends(form_of(RerankForm))],
    request: Request,
    service: ServiceHere,
    caller: CallerHere,
) -> Json:
    """Order texts by relevance to a query, as text-embeddings-inference and infinity."""
    asked = form.root
    if isinstance(asked, TeiForm):
        _, reranker = _find(service, caller, None, request)
        ranks = await service.call(_rank, reranker, asked.query, asked.texts, None)
        return Json(
            [
                {"index": place, "score": score, **({"text": asked.texts[place]} if asked.return_text else {})}
                for place, score in ranks
            ]
        )
    name, reranker = _find(service, caller, asked.model, request)
    ranks = await service.call(_rank, reranker, asked.query, asked.documents, asked.top_n)
    return Json(
        {
            "object": "rerank",
            "results": [
                {
                    "relevance_score": score,
                    "index": place,
                    **({"document": asked.documents[place]} if asked.return_documents else {}),
                }
                for place, score in ranks
            ],
            "model": name if asked.model == _ANY_MODEL else asked.model,
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
            "id": f"rerank-{uuid.uuid4().hex}",
            "created": int(time.time()),
        }
    )


def _find(service: Service, caller: Caller, model: str | None, request: Request) -> tuple[str, Reranker]:
    """Return the re-ranker of that name, with an index that has it.

    If ``model`` is None, it is the only one.
    """
    seen = [(index.name, index.pipeline.reranker) for index in service.seen_by(caller)]
    able = [(name, reranker) for name, reranker in seen if reranker is not None]
    if not able:
        raise ApiError(501, "not_available", "no index that you may see has a re-ranker: the operator sets one")
    names = ", ".join(name for name, _ in able)
    if model is None or model == _ANY_MODEL:
        named = able
        if len({id(reranker) for _, reranker in able}) > 1:
            raise ApiError(400, "invalid_request", f"name the `model`: there are those of {names}", param="model")
    else:
        named = [(name, reranker) for name, reranker in able if model in (name, reranker.name)]
        if not named:
            message = f"no re-ranker {model!r} for you: there are those of {names}"
            raise ApiError(404, "not_found", message, code="model_not_found", param="model")
    request.state.index = named[0][0]
    return named[0]


def _rank(reranker: Reranker, query: str, texts: Sequence[str], top_n: int | None) -> list[tuple[int, float]]:
    """Return the positions of the texts with their scores, best first."""
    scores = reranker.score(query, [Document(str(place), text=text) for place, text in enumerate(texts)])
    ranks = sorted(enumerate(score or 0.0 for score in scores), key=lambda rank: -rank[1])
    return [(place, round(score, 6)) for place, score in ranks[:top_n]]
