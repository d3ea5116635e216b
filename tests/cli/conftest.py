"""The fixtures that these tests share with others."""

from tests.support.triton_fixtures import binary, repository, triton

__all__ = ["binary", "repository", "triton"]
