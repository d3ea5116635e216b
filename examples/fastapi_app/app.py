"""An HTTP interface of one's own over an index: upload, search, ask, delete.

APP_STORE=sqlite:./index APP_ENCODER=onnx:default uvicorn app:app
"""

import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Form, HTTPException, Query, Request, UploadFile
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, JsonValue

from vlmsearch import (
    AsyncAnswerStream,
    AsyncPipeline,
    BackendError,
    BackendUnavailableError,
    Citation,
    ConfigError,
    Document,
    ImageLimits,
    IndexReport,
    InvalidInputError,
    Matches,
    VlmsearchError,
)

MAX_UPLOAD_BYTES = 16 * 2**20
LIMITS = ImageLimits(pixels=50_000_000, decoded_bytes=2**29)  # a small file can hold a very large image
RETRY_SECONDS = 5
# What is not set has the default of `AsyncPipeline.open`.
SETTINGS = {"store": "APP_STORE", "encoder": "APP_ENCODER", "generator": "APP_GENERATOR"}
STATUSES: dict[type[VlmsearchError], int] = {  # a class comes before its base
    InvalidInputError: 400,
    ConfigError: 400,
    BackendUnavailableError: 503,  # the store or a model server is down, or too many calls wait
    BackendError: 502,
    VlmsearchError: 500,
}

log = logging.getLogger("app")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    urls: dict[str, Any] = {name: os.environ[variable] for name, variable in SETTINGS.items() if variable in os.environ}
    async with await AsyncPipeline.open(image_limits=LIMITS, **urls) as pipeline:
        app.state.pipeline = pipeline  # one for all requests
        yield


app = FastAPI(title="Pictures and notes", lifespan=lifespan, max_body_size=MAX_UPLOAD_BYTES)


def get_pipeline(request: Request) -> AsyncPipeline:
    pipeline: AsyncPipeline = request.app.state.pipeline
    return pipeline


Pipe = Annotated[AsyncPipeline, Depends(get_pipeline)]
Limit = Annotated[int, Query(ge=1, le=100)]


@app.exception_handler(VlmsearchError)
async def answer_error(request: Request, error: VlmsearchError) -> JSONResponse:
    status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
    if status == 400:
        return JSONResponse({"detail": str(error)}, status)
    log.error("%s failed", request.url.path, exc_info=error)  # it may name hosts and paths
    retry = math.ceil(getattr(error, "retry_after", 0) or RETRY_SECONDS)
    headers = {"Retry-After": str(retry)} if status == 503 else {}
    return JSONResponse({"detail": "the index does not answer now"}, status, headers)


class Note(BaseModel):
    id: str
    text: str
    metadata: dict[str, JsonValue] = {}


@app.post("/notes", status_code=201)
async def add_note(pipeline: Pipe, note: Note) -> IndexReport:
    return await pipeline.add(Document(note.id, text=note.text, metadata=note.metadata))


@app.post("/pictures", status_code=201)
async def add_picture(
    pipeline: Pipe, file: UploadFile, id: Annotated[str, Form()], text: Annotated[str | None, Form()] = None
) -> IndexReport:
    return await pipeline.add(Document(id, text=text, image=await file.read()))


@app.get("/search")
async def search(pipeline: Pipe, text: str, limit: Limit = 10) -> Matches:
    return await pipeline.search(text, limit=limit)


@app.post("/search")
async def search_like(pipeline: Pipe, file: UploadFile, limit: Limit = 10) -> Matches:
    return await pipeline.search(image=await file.read(), limit=limit)


async def begin_answer(pipeline: Pipe, question: str) -> AsyncIterator[AsyncAnswerStream]:
    async with await pipeline.ask(question, stream=True) as parts:  # its end, or a client that leaves, stops the model
        yield parts


@app.get("/answer", response_class=EventSourceResponse)
async def answer(parts: Annotated[AsyncAnswerStream, Depends(begin_answer)]) -> AsyncIterator[ServerSentEvent]:
    try:
        async for part in parts:
            yield ServerSentEvent(event="source" if isinstance(part, Citation) else "text", data=part)
        yield ServerSentEvent(event="end", data="")
    except VlmsearchError:  # the status is sent already
        log.exception("an answer failed")
        yield ServerSentEvent(event="error", data="the answer ends here: ask again")


@app.get("/documents/{id:path}")
async def get(pipeline: Pipe, id: str) -> Document:
    for document in await pipeline.get(id):
        return document
    raise HTTPException(404, f"no document has the id {id!r}")


@app.delete("/documents/{id:path}", status_code=204)
async def delete(pipeline: Pipe, id: str) -> None:
    if not await pipeline.delete(id):
        raise HTTPException(404, f"no document has the id {id!r}")


@app.get("/health")
async def health(pipeline: Pipe) -> dict[str, int]:
    return {"documents": await pipeline.count()}
