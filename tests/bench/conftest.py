"""The fixtures that these tests share with others."""

from tests.support.service import running_service

__all__ = ["running_service"]
