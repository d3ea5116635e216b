"""The real servers, for every test that asks for one, and examples that are the same in every run."""

import os
import signal

from hypothesis import settings

pytest_plugins = [
    "tests.support.parts",
    "tests.support.servers",
    "tests.support.service",
    "tests.support.mongo_servers",
    "tests.support.every_store",
    "tests.support.triton_fixtures",
    "tests.support.wheel",
    "tests.support.object_storage",
    "tests.support.spans",
]

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # Haystack reads it when it is imported, and asks the network

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# a job in the background of a script is started with SIGINT ignored, and so would be every command that a test starts
signal.signal(signal.SIGINT, signal.default_int_handler)
