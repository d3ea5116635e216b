"""Jobs: start long work, follow it, cancel it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path as InPath

from vlmsearch import verbs
from vlmsearch._util.files import expand_home
from vlmsearch._util.options import options_of
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.items import Item, SourceDocument, SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.media.images import file_of
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.pipeline import Pipeline
from vlmsearch.schema import model_of
from vlmsearch.server.bodies import form_docs, form_of
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import CallerHere, FindCallerHere, ReadIndex, ServiceHere, check_right
from vlmsearch.server.errors import Json, error_of, not_found
from vlmsearch.server.events import KEEP_ALIVE, KEEP_ALIVE_SECONDS, EventStream, event
from vlmsearch.server.forms import CheckJob, DescribeJob, EvalJob, IndexJob, JobForm
from vlmsearch.server.jobs import Job, Work
from vlmsearch.server.routes.answers import judged_queries, label_answer
from vlmsearch.server.routes.search import arguments_of
from vlmsearch.server.service import OpenIndex, Service
from vlmsearch.types import Reject, Stamp
from vlmsearch.wire import JobAnswer, JobList, to_json

router = APIRouter(prefix="/api/v1", tags=["jobs"])
_PAUSE = 0.1
"""Seconds between two events of a stream: a job may advance thousands of times a second."""
JobId = Annotated[str, InPath(description="The id of the job.")]


@router.post(
    "/indexes/{index}/jobs", status_code=202, response_model=model_of(JobAnswer), openapi_extra=form_docs(JobForm)
)
async def start(
    service: ServiceHere, index: ReadIndex, caller: CallerHere, form: Annotated[JobForm, Depends(form_of(JobForm))]
) -> Json:
    """Start a job: `GET /api/v1/jobs/ID/events` follows it."""
    wanted = form.root
    given = arguments_of(index, wanted)
    paths: tuple[str, ...] | None = None
    if isinstance(wanted, IndexJob):
        check_right(caller, "write", of_all=True)
        paths = tuple(given["paths"])
        options = SourceOptions(**{name: given.pop(name) for name in options_of(SourceOptions) if name in given})
        given["paths"] = await service.call(_allowed, index, paths, options, service.private_places())
    elif isinstance(wanted, CheckJob):
        check_right(caller, "admin" if given.get("repair") else "read", of_all=True)
    elif isinstance(wanted, DescribeJob) or given.get("write"):
        check_right(caller, "write")
    if isinstance(wanted, EvalJob):
        given["queries"] = await service.call(judged_queries, wanted)
    verb, request = _VERBS[wanted.kind]
    await service.call(lambda: request(**given))  # what is wrong is told before the job begins
    work = _work(index, verb, given)
    job = service.jobs.start(wanted.kind, index.name, caller.token, work, paths, caller.scopes)
    return Json(job.answer(), 202)


_VERBS: Mapping[str, tuple[Callable[..., Any], Callable[..., object]]] = {
    "index": (Pipeline.index, verbs.IndexRequest),
    "label": (label_answer, verbs.LabelRequest),
    "describe": (Pipeline.describe, verbs.DescribeRequest),
    "duplicates": (Pipeline.duplicates, verbs.DuplicatesRequest),
    "eval": (Pipeline.evaluate, verbs.EvaluateRequest),
    "check": (Pipeline.check, verbs.CheckRequest),
}
"""The verb of each kind of job, and its request."""


def _work(index: OpenIndex, verb: Callable[..., Any], given: Mapping[str, Any]) -> Work:
    def work(job: Job) -> object:
        if verb is Pipeline.check:
            report = index.pipeline.check(**given)
            return {**to_json(report), "clean": report.clean}
        if verb is not Pipeline.evaluate:
            job.total = len(given.get("paths", index.pipeline.store))
        run = getattr(index.pipeline, verb.__name__, partial(verb, index.pipeline))  # a restricted one has its own
        return run(**given, on_progress=job.advance)

    return work


class AllowedPaths(Paths):
    """Paths below the folders that the operator allowed.

    Links in folders are not followed, and files of the service itself are left out. A row of a table is rejected if its
    image is a file of the service, or in another folder.

    Args:
        paths: Paths below those folders.
        allowed: The folders, with links resolved.
        private: Files and folders of the service, with links resolved.
        options: Options of reading files.
        limits: Limits of images and tables.
    """

    def __init__(
        self, paths: list[Path], allowed: list[str], private: list[str], options: SourceOptions, limits: ImageLimits
    ) -> None:
        super().__init__(paths, options=options, limits=limits)
        self._allowed = allowed
        self._private = private

    def _entries(self, folder: str) -> Iterator[str | tuple[str, OSError]]:
        real = os.path.realpath(folder)
        for entry in super()._entries(folder):
            name = entry if isinstance(entry, str) else entry[0]
            place = os.path.join(real, name[len(folder) :].lstrip(os.sep))  # no link was followed below the folder
            if not _is_in(place, self._private):
                yield entry

    def __iter__(self) -> Iterator[Item]:
        """Yield items as Paths do, with a Reject for each image in another folder."""
        for item in super().__iter__():
            image = item.document.image if isinstance(item, SourceDocument) else None
            if isinstance(item, SourceDocument) and isinstance(image, Path) and not self._may_read(image):
                message = f"{item.document.id}: its image is not in a folder that the operator allowed"
                yield Reject(item.document.id, "unreadable", message, Stamp("", item.source))
            else:
                yield item

    def _may_read(self, image: Path) -> bool:
        return remote_url(image) is None and is_allowed(file_of(image), self._allowed, self._private)


def is_allowed(path: Path, allowed: list[str], private: list[str]) -> bool:
    """Check whether a path is in an allowed folder and not of the service itself.

    Links are resolved.
    """
    real = os.path.realpath(path)
    return _is_in(real, allowed) and not _is_in(real, private)


def _is_in(real: str, places: list[str]) -> bool:
    return any(real == place or real.startswith(place.rstrip(os.sep) + os.sep) for place in places)


def _allowed(index: OpenIndex, wanted: Sequence[str], options: SourceOptions, private: list[str]) -> Paths:
    """Return the paths of a request.

    ConfigError for a path outside the folders that the operator allowed.
    """
    folders = [os.path.abspath(expand_home(Path(folder))) for folder in index.settings.allow]
    if not folders:
        raise ConfigError(f"the index {index.name!r} reads no folders of the server: its operator `allow`s none")
    real = [os.path.realpath(folder) for folder in folders]
    paths = []
    for path in wanted:
        if "\0" in path:
            raise ConfigError(f"no file is called {path!r}")
        places = [Path(os.path.abspath(os.path.join(folder, path))) for folder in folders]
        place = next((place for place in places if is_allowed(place, real, private) and os.path.exists(place)), None)
        if place is None:
            raise ConfigError(f"{path!r} is not there, or not below {' or '.join(folders)}")
        paths.append(place)
    options = replace(options, follow_links=False)
    allowed = AllowedPaths(paths, real, private, options, index.pipeline.image_limits)
    allowed.note_index(index.pipeline.store)
    return allowed


@router.get("/jobs", response_model=model_of(JobList))
async def jobs(service: ServiceHere, caller: CallerHere) -> Json:
    """List the caller's jobs, the newest first, without their results. An admin sees all jobs of the index."""
    visible = [job for job in service.jobs.all() if _is_visible(job, caller)]
    return Json(JobList(tuple(job.answer(has_result=False) for job in visible)))


@router.get("/jobs/{id}", response_model=model_of(JobAnswer))
async def job(service: ServiceHere, caller: CallerHere, id: JobId) -> Json:
    """Describe a job, with its result once it is done."""
    return Json(_find(service, caller, id).answer())


@router.post("/jobs/{id}/cancel", status_code=202, response_model=model_of(JobAnswer))
async def cancel(service: ServiceHere, caller: CallerHere, id: JobId) -> Json:
    """Cancel a job. What it did until then stays, and the job can be read on."""
    job = _find(service, caller, id)
    job.token.cancel()
    return Json(job.answer(), 202)


@router.get(
    "/jobs/{id}/events",
    response_model=None,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(service: ServiceHere, caller: CallerHere, find_caller: FindCallerHere, id: JobId) -> EventStream:
    """Follow a job: events `progress` with `done` and `total`, then `done` with `result`, `failed` or `cancelled`."""
    stream = _events(service, _find(service, caller, id), caller.token, find_caller)
    return EventStream(_resumed(await anext(stream), stream))


def _is_visible(job: Job, caller: Caller) -> bool:
    """Check whether a caller may read and cancel a job: the owner, or an admin of its index.

    Who may not read all documents sees the jobs that ran under the same principals.
    """
    is_mine = caller.token == job.owner or caller.may("admin")
    return is_mine and caller.sees(job.index) and caller.scopes in ((), job.scopes)


def _find(service: Service, caller: Caller, id: str) -> Job:
    """Return a job that the caller may read and cancel. A hidden job gives the same error as a missing one."""
    job = service.jobs.get(id)
    if job is None or not _is_visible(job, caller):
        raise not_found(f"no job {id!r} for you: GET /api/v1/jobs lists them")
    return job


async def _resumed(first: bytes, stream: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Return a stream after its first event.

    So a refusal is an answer with a status.
    """
    async with aclosing(stream):
        yield first
        async for data in stream:
            yield data


async def _events(
    service: Service, job: Job, follower: str, find_caller: Callable[[], Caller | None]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a job. The stream ends when the job is not visible to the caller any more."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def note() -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(changed.set)

    def is_visible() -> bool:
        caller = find_caller()
        return caller is not None and _is_visible(job, caller)

    with service.jobs.following(follower):
        job.listeners.add(note)
        try:
            yield event("progress", {"done": job.done, "total": job.total})
            said = (job.done, job.total)
            while not job.is_over and not service.is_stopping:
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
                except asyncio.TimeoutError:
                    yield KEEP_ALIVE
                    continue
                changed.clear()
                if said != (job.done, job.total):
                    if not is_visible():
                        return
                    said = (job.done, job.total)
                    yield event("progress", {"done": job.done, "total": job.total})
                    await asyncio.sleep(_PAUSE)
        finally:
            job.listeners.remove(note)
    if not job.is_over or not is_visible():
        return
    if said != (job.done, job.total):
        yield event("progress", {"done": job.done, "total": job.total})
    if job.error is not None:
        yield event("failed", error_of(job.error))
    elif job.state == "cancelled":
        yield event("cancelled", {})
    else:
        yield event("done", {"result": job.result})
