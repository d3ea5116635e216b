"""The fixtures that these tests share with others."""

from tests.support.postgres_servers import postgres_url

__all__ = ["postgres_url"]
