"""The fixtures that these tests share with others."""

from tests.support.mongo_servers import mongo_address
from tests.support.postgres_servers import postgres_url
from tests.support.servers import chroma_address
from tests.support.triton_fixtures import binary, repository, triton

__all__ = ["binary", "chroma_address", "mongo_address", "postgres_url", "repository", "triton"]
