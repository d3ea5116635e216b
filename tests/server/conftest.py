"""The fixtures that these tests share with others."""

from tests.support.service import running_service
from tests.support.spans import spans
from tests.support.triton_fixtures import binary, repository

__all__ = ["binary", "repository", "running_service", "spans"]
