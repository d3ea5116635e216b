"""What holds for every test: its marks, examples that are the same in every run, and the end of what it shares."""

import gc
import os
import signal

import pytest
from hypothesis import settings

from tests.support import once

pytest_plugins = ["tests.support.parts"]

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # Haystack reads it when it is imported, and asks the network

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# a job in the background of a script is started with SIGINT ignored, and so would be every command that a test starts
signal.signal(signal.SIGINT, signal.default_int_handler)


class Failures:
    """Prints a failure when it happens: a run that is cut off comes to no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and (terminal := self.plugins.get_plugin("terminalreporter")):
            terminal.write_line(f"\n{report.when} of {report.nodeid} failed\n{report.longreprtext[-2000:]}")


def pytest_configure(config: pytest.Config) -> None:
    """Have failures printed by the process that starts the others."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


def pytest_collection() -> None:
    """Collect no garbage while thousands of tests are made, all of which stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was made out of every later search for garbage."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Stop what the tests of several folders shared."""
    once.leave()
