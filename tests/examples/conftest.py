"""The fixtures that these tests share with others."""

from tests.support.mongo_servers import mongo_address
from tests.support.postgres_servers import postgres_url
from tests.support.servers import chroma_address

__all__ = ["chroma_address", "mongo_address", "postgres_url"]
