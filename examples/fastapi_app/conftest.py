"""The fixtures of vlmsearch: an encoder without a model, a store in memory, and servers that fail on demand."""

pytest_plugins = ["vlmsearch_mocks.fixtures"]
