"""The application: routes, middleware and errors around an open service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from vlmsearch import __version__
from vlmsearch.schema import model_of
from vlmsearch.server import forms
from vlmsearch.server.access import add_access
from vlmsearch.server.endings import Endings
from vlmsearch.server.errors import Json, add_handlers
from vlmsearch.server.methods import HeadAsGet
from vlmsearch.server.metrics import Metrics
from vlmsearch.server.monitoring import Monitoring
from vlmsearch.server.prefix import ProxyPrefix
from vlmsearch.server.routes import answers, documents, health, jobs, metrics, openai, rerank, search, session
from vlmsearch.server.routes.page import add_page
from vlmsearch.server.service import Service
from vlmsearch.wire import ErrorAnswer

BODIES: tuple[type[BaseModel], ...] = (
    forms.SearchForm,
    forms.SearchManyForm,
    forms.ExplainForm,
    forms.AddForm,
    forms.IdsForm,
    forms.MetadataForm,
    forms.AskForm,
    forms.LabelForm,
    forms.EvalForm,
    forms.JobForm,
    openai.EmbeddingsForm,
    openai.ChatForm,
    rerank.CohereForm,
    rerank.CohereFirstForm,
    rerank.RerankForm,
)
"""The forms of bodies, which `vlmsearch.server.bodies` reads in place of FastAPI."""
_REF = "#/components/schemas/{model}"
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": model_of(ErrorAnswer),
        "description": "The request cannot be answered; the message says what to do.",
    },
    "5XX": {"model": model_of(ErrorAnswer), "description": "A back end failed, or something is not available."},
}


def create_app(service: Service) -> FastAPI:
    """Return the application of a service.

    Args:
        service: The open indexes; whoever opened it closes it, after the application has ended.

    Returns:
        The application, to be run by uvicorn or another ASGI server.
    """
    app = FastAPI(
        title="vlmsearch",
        version=__version__,
        description="Multimodal retrieval: search images and texts together.",
        default_response_class=Json,
        responses=_ERRORS,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Monitoring` has the spans, without queries
    )
    app.state.service = service
    app.state.metrics = Metrics(service)
    app.state.readiness = health.Readiness(service)
    app.router.routes.append(search.fast_search)
    add_handlers(app)
    add_middleware(app, service)
    for routes in (health, metrics, search, documents, answers, jobs, session, openai, rerank):
        app.include_router(routes.router)
    add_page(app)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Count what is done while the application runs."""
    with app.state.metrics.counting():
        yield


def add_middleware(app: FastAPI, service: Service) -> None:
    """Add the middleware, the outermost last."""
    app.add_middleware(HeadAsGet)
    app.add_middleware(Endings)
    add_access(app, service.settings)
    app.add_middleware(Monitoring, metrics=app.state.metrics)
    app.add_middleware(ProxyPrefix, root_path=service.settings.root_path, routes=app.routes)


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the forms of bodies that the routes read themselves."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        _, definitions = models_json_schema([(form, "validation") for form in BODIES], ref_template=_REF)
        document["components"]["schemas"].update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
