"""The fixtures that these tests share with others."""

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors

from tests.support.mongo_servers import mongo_address
from tests.support.postgres_servers import postgres_url
from tests.support.servers import chroma_address
from tests.support.triton_fixtures import binary, repository, triton

__all__ = ["binary", "chroma_address", "mongo_address", "postgres_url", "repository", "triton"]


@pytest.fixture(scope="session")
def postgres_address(postgres_url: str) -> str:
    """The address of a PostgreSQL with the database that the manual has its examples in."""
    with psycopg.connect(postgres_url, autocommit=True) as session, suppress(errors.DuplicateDatabase):
        session.execute("CREATE DATABASE manual")
    return postgres_url.partition("@")[2].partition("/")[0]
