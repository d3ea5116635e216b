"""The fixtures that these tests share with others."""

from tests.support.mongo_servers import mongo_address
from tests.support.postgres_servers import postgres_url
from tests.support.servers import chroma_address
from tests.support.service import running_service
from tests.support.spans import spans
from tests.support.triton_fixtures import binary, repository

__all__ = [
    "binary",
    "chroma_address",
    "mongo_address",
    "postgres_url",
    "repository",
    "running_service",
    "spans",
]
