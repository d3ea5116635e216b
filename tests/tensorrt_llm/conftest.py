"""The fixtures that these tests share with others."""

from tests.support.triton_fixtures import binary

__all__ = ["binary"]
