"""The real servers, for every test that asks for one, and examples that are the same in every run."""

from hypothesis import settings

pytest_plugins = ["tests.servers", "tests.mongo_servers"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
