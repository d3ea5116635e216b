"""Indexes, and searches in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vlmsearch.generators.base import SeesPictures
from vlmsearch.schema import ImageForm, StrictForm, model_of
from vlmsearch.search.explanation import Explanation
from vlmsearch.search.query import make_query
from vlmsearch.server.bodies import Body, body_docs, body_of, form_docs, form_of
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import CallerHere, ReadIndex, ServiceHere, find_index, get_caller, get_service
from vlmsearch.server.errors import ApiError, Json
from vlmsearch.server.forms import (
    QUERY_RULE,
    ExplainForm,
    SearchForm,
    SearchManyForm,
    given_in,
    image_bytes,
)
from vlmsearch.server.service import OpenIndex
from vlmsearch.stores.base import WordSearch
from vlmsearch.types import Matches, encodes_images
from vlmsearch.wire import IndexList, IndexSummary, Json as JsonObject, ManyMatches, Rights, to_json

router = APIRouter(prefix="/api/v1", tags=["search"])
_NO_FILES: Mapping[str, bytes] = {}
_read_search = body_of(SearchForm, "request")


@router.get("/indexes", response_model=model_of(IndexList))
async def indexes(service: ServiceHere, caller: CallerHere) -> Json:
    """List the indexes that the caller may see."""
    return await service.answer(lambda: IndexList(tuple(_summary(index, caller) for index in service.seen_by(caller))))


def _summary(index: OpenIndex, caller: Caller) -> IndexSummary:
    store, spaces = index.pipeline.store, tuple(index.pipeline.encoder.spaces)
    files = store.count_files() if len(store) <= 100_000 else 0  # those of a larger index take seconds
    return IndexSummary(index.name, len(store), files, store.count_passages(), spaces, _rights(index, caller))


def info_json(index: OpenIndex, caller: Caller) -> JsonObject:
    """Return the description of an index. An empty one has the encoder that will build it."""
    return {**index.pipeline.info(), "can": to_json(_rights(index, caller))}


def _rights(index: OpenIndex, caller: Caller) -> Rights:
    store, manifest = index.pipeline.store, index.pipeline.store.manifest()
    return Rights(
        write=caller.may("write"),
        admin=caller.may("admin") and not caller.scopes,
        ask=index.pipeline.generator is not None,
        rerank=index.pipeline.reranker is not None,
        images=encodes_images(index.pipeline.encoder.spaces),
        words=isinstance(store, WordSearch) and (manifest is None or bool(manifest.language)),
        jobs=caller.may("write") and bool(index.settings.allow) and not caller.scopes,
        describe=caller.may("write") and _sees(index),
    )


def _sees(index: OpenIndex) -> bool:
    generator = index.pipeline.generator
    return isinstance(generator, SeesPictures) and generator.max_pictures > 0


@router.post(
    "/indexes/{index}/search",
    response_model=model_of(Matches),
    openapi_extra=body_docs(SearchForm, "request", ("image", "without_image"), QUERY_RULE),
)
async def search(
    service: ServiceHere, index: ReadIndex, body: Annotated[Body[SearchForm], Depends(_read_search)]
) -> Json:
    """Find documents by a text, an image, documents like them, or several of these.

    The images can also be files of a form, in the parts `image` and `without_image`; the JSON is its part `request`.
    """
    return await service.answer(lambda: run_search(index, body.form, body.files))


async def _search(request: Request) -> Json:
    """Answer a search as `search` does.

    FastAPI takes longer to find the route and its arguments than all else here takes.
    """
    service = await get_service(request)
    index = find_index(service, await get_caller(request), request.path_params["index"], "read")
    return await search(service, index, await _read_search(request))


class _Route(Route):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # as FastAPI's do, for the log
        await super().handle(scope, receive, send)


fast_search = _Route("/api/v1/indexes/{index}/search", _search, methods=["POST"])
"""The route of searches, which stands before FastAPI's."""


@router.post(
    "/indexes/{index}/search_many", response_model=model_of(ManyMatches), openapi_extra=form_docs(SearchManyForm)
)
async def search_many(
    service: ServiceHere, index: ReadIndex, form: Annotated[SearchManyForm, Depends(form_of(SearchManyForm))]
) -> Json:
    """Find documents for several queries at once, with the same options."""
    return await service.answer(_search_many, index, form)


def _search_many(index: OpenIndex, form: SearchManyForm) -> ManyMatches:
    given = arguments_of(index, form)
    queries = [make_query(**{"text": None, **arguments_of(index, query)}) for query in given.pop("queries")]
    return ManyMatches(tuple(index.pipeline.search_many(queries, **given)))


@router.post(
    "/indexes/{index}/explain",
    response_model=model_of(Explanation),
    openapi_extra=body_docs(ExplainForm, "request", ("image", "without_image"), QUERY_RULE),
)
async def explain(
    service: ServiceHere, index: ReadIndex, body: Annotated[Body[ExplainForm], Depends(body_of(ExplainForm, "request"))]
) -> Json:
    """Explain why a search shows a document, or what excludes it. Images are sent as for a search."""
    return await service.answer(_explain, index, body.form, body.files)


def _explain(index: OpenIndex, form: ExplainForm, files: Mapping[str, bytes]) -> Explanation:
    return index.pipeline.explain(**{"text": None, **arguments_of(index, form, files)})


def run_search(index: OpenIndex, form: SearchForm, files: Mapping[str, bytes] = _NO_FILES) -> Matches:
    """Return the matches for a form."""
    return index.pipeline.search(**arguments_of(index, form, files))


def arguments_of(index: OpenIndex, form: StrictForm, files: Mapping[str, bytes] = _NO_FILES) -> dict[str, Any]:
    """Return the arguments of a verb that a form has: what it leaves out has its default."""
    given = given_in(form)
    for name, part in (("image", "image"), ("without", "without_image")):
        if part in files:
            if name in given:
                raise ApiError(400, "invalid_request", f"{part} is given twice: in the JSON and as a file", param=part)
            given[name] = files[part]
        elif isinstance(given.get(name), ImageForm):
            given[name] = image_bytes(given[name].image)
        elif name == "image" and name in given:
            given[name] = image_bytes(given[name])
    given.pop("kind", None)
    if given.get("rerank") and index.pipeline.reranker is None:
        raise ApiError(501, "not_available", f"the index {index.name!r} has no re-ranker: the operator sets one")
    return given
