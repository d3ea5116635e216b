"""Answers to questions, labels, and how well an index answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from vlmsearch.answers.prompts import default_options
from vlmsearch.async_pipeline import AsyncAnswerStream
from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import PictureOptions
from vlmsearch.pipeline import Pipeline
from vlmsearch.schema import model_of
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.server.bodies import form_docs, form_of
from vlmsearch.server.dependencies import CallerHere, ReadIndex, ServiceHere, check_right
from vlmsearch.server.errors import ApiError, Json, api_error, error_of, request_id
from vlmsearch.server.events import EventStream, event
from vlmsearch.server.forms import AskForm, EvalAnswer, EvalForm, LabelForm, image_bytes
from vlmsearch.server.routes.search import arguments_of
from vlmsearch.server.service import OpenIndex, Service
from vlmsearch.types import Answer, AnswerParts
from vlmsearch.wire import LabelAnswer, LabelledId

router = APIRouter(prefix="/api/v1/indexes/{index}", tags=["answers"])
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "The answer; with `stream` the events `matches`, `token` for each piece of the text, and "
        "`answer` with all of it, or `error`.",
    }
}


@router.post("/ask", response_model=model_of(Answer), responses=_EVENTS, openapi_extra=form_docs(AskForm))
async def ask(
    service: ServiceHere, index: ReadIndex, form: Annotated[AskForm, Depends(form_of(AskForm))], request: Request
) -> Response:
    """Answer a question from the best matches, with citations."""
    if index.pipeline.generator is None:
        raise ApiError(501, "not_available", f"the index {index.name!r} answers no questions: it has no generator")
    if not form.stream:
        return await service.answer(lambda: index.pipeline.ask(**ask_arguments(index, form)))
    parts = await service.threads.run(
        lambda: index.pipeline.ask(**ask_arguments(index, form)), unwanted=AnswerParts.close
    )
    return EventStream(_events(service, parts, request_id(request)))


def ask_arguments(index: OpenIndex, form: AskForm) -> dict[str, Any]:
    """Return the arguments of `Pipeline.ask`; the options that are left out are those of the generator."""
    given = arguments_of(index, form)
    generator = index.pipeline.generator
    if "pictures" in given:
        given["pictures"] = PictureOptions(**given["pictures"].model_dump(exclude_unset=True))
    if "options" in given and generator is not None:
        given["options"] = replace(default_options(generator), **given["options"].model_dump(exclude_unset=True))
    return given


async def _events(service: Service, parts: AnswerParts, request: str | None) -> AsyncIterator[bytes]:
    """Yield the events of an answer. A client that goes stops the generator."""
    async with AsyncAnswerStream(parts, service.threads) as stream:
        try:
            yield event("matches", {"matches": parts.matches})
            async for part in stream:
                if isinstance(part, str):
                    yield event("token", {"text": part})
            yield event("answer", await service.call(parts.answer))
        except Exception as exc:  # noqa: BLE001 - the answer has begun: its end says what went wrong
            yield event("error", error_of(api_error(exc), request))


@router.post("/label", response_model=model_of(LabelAnswer), openapi_extra=form_docs(LabelForm))
async def label(
    service: ServiceHere,
    index: ReadIndex,
    caller: CallerHere,
    form: Annotated[LabelForm, Depends(form_of(LabelForm))],
) -> Json:
    """Label the documents of a small index. A job labels a large one."""
    given = arguments_of(index, form)
    check_right(caller, "write" if given.get("write") else "read")
    return await service.answer(lambda: label_answer(index.pipeline, **given))


def label_answer(pipeline: Pipeline, *, on_progress: Callable[[int], None] | None = None, **given: Any) -> LabelAnswer:
    """Return the labels as ``vlmsearch label --json`` prints them."""
    begun = time.monotonic()
    labelled = list(pipeline.label(**given, on_progress=on_progress))
    counts = Counter(name for document in labelled for name in document.labels)
    names = dict.fromkeys(" ".join(name.split()) for name in given["labels"])
    return LabelAnswer(
        {name: counts[name] for name in names},
        tuple(LabelledId(document.document.id, document.labels, document.written) for document in labelled),
        written=sum(document.written for document in labelled),
        seconds=time.monotonic() - begun,
    )


@router.post("/eval", response_model=EvalAnswer, openapi_extra=form_docs(EvalForm))
async def measure(
    service: ServiceHere, index: ReadIndex, form: Annotated[EvalForm, Depends(form_of(EvalForm))]
) -> Json:
    """Measure how well the index answers a few queries with known answers. A job takes many queries."""
    given = {**arguments_of(index, form), "queries": judged_queries(form)}
    return await service.answer(lambda: index.pipeline.evaluate(**given))


def judged_queries(form: EvalForm) -> list[JudgedQuery]:
    """Return the queries of a form.

    ConfigError for one that asks nothing, or an id that two have.
    """
    queries = []
    for number, judged in enumerate(form.queries, 1):
        grades = judged.relevant if isinstance(judged.relevant, dict) else dict.fromkeys(judged.relevant, 1)
        image = image_bytes(judged.image) if judged.image is not None else None
        text = judged.query if judged.query and judged.query.strip() else None
        if text is None and image is None:
            raise ConfigError(f"query {number} needs `query`, `image` or both")
        relevant = {id: grade for id, grade in grades.items() if grade > 0}
        queries.append(JudgedQuery(judged.id or str(number), relevant, text, image))
    if len({query.id for query in queries}) < len(queries):
        raise ConfigError("two queries have the same `id`")
    return queries
