"""The fixtures that these tests share with others."""

from tests.support.triton_fixtures import binary, llm_binary, repository, triton

__all__ = ["binary", "llm_binary", "repository", "triton"]
