"""The parts that the tests are run in: `make quick` leaves out what is ``server``, ``slow`` or ``exhaustive``.

Tests are marked by what they use, so that nobody has to think of it; a test that starts a server without its mark
fails wherever it runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SERVER_FIXTURES = frozenset(
    {
        "binary",
        "browser",
        "chroma_address",
        "cluster",
        "llm_binary",
        "mongo_address",
        "postgres_url",
        "storage",
        "triton",
    }
)
"""The fixtures that start, or install, a server, a browser or a cluster; others get theirs from them."""
SERVERS = frozenset({"chroma server", "mongodb", "mongodb+chroma", "postgresql", "served"})
"""The parameters that name a store with a server; some of these tests are on a mock of it, and wait with the rest."""
STARTERS = frozenset(
    {
        ("tests.support.mongo_servers", "MongoServer"),
        ("tests.support.mongo_servers", "mongo_server"),
        ("tests.support.object_storage", "object_storage"),
        ("tests.support.pgbouncer", "pgbouncer"),
        ("tests.support.postgres_servers", "PostgresServer"),
        ("tests.support.postgres_servers", "postgres_server"),
        ("tests.support.ray_cluster", "processes"),
        ("tests.support.servers", "chroma_server"),
        ("tests.support.servers", "running"),
        ("tests.support.triton_server", "serving"),
        ("tests.support.triton_server", "started"),
    }
)
"""What starts a server in the middle of a test: the tests of a module that imports it are marked."""
SLOW_FIXTURES = frozenset({"installed", "wheel"})
SLOW_ROOMS = frozenset({"benchmarks", "docs", "examples", "building"})
"""Models are exported and compared, and programs of users are run."""
QUICK_FILES = frozenset({"test_names.py", "test_upgrading.py"})
"""The files of slow rooms whose tests only read pages."""
LONG_ROOMS = ("building", "benchmarks", "triton", "integrations", "tensorrt_llm")
"""The folders with the longest files: they come first, so that no process waits for the last of them."""

_ROOT = Path(__file__).parents[1]
_running: list[pytest.Item] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test, before pytest chooses by marks, and put the longest files first."""
    items.sort(key=lambda item: LONG_ROOMS.index(_room(item)) if _room(item) in LONG_ROOMS else len(LONG_ROOMS))
    for item in items:
        if is_server_test(item):
            item.add_marker("server")
        is_slow = _room(item) in SLOW_ROOMS and item.path.name not in QUICK_FILES
        if is_slow or SLOW_FIXTURES & fixtures_of(item):
            item.add_marker("slow")


def fixtures_of(item: pytest.Item) -> frozenset[str]:
    """Return the names of all fixtures that a test gets, those of its fixtures among them."""
    return frozenset(getattr(item, "fixturenames", ()))


def is_server_test(item: pytest.Item) -> bool:
    """Check whether a test uses a server that is not vlmsearch's own."""
    fixtures = fixtures_of(item)
    if fixtures & SERVER_FIXTURES:
        return True
    call = getattr(item, "callspec", None)
    if call is not None and any(isinstance(value, str) and value in SERVERS for value in call.params.values()):
        return True
    names = vars(getattr(item, "module", None) or object).values()
    return any((getattr(each, "__module__", ""), getattr(each, "__name__", "")) in STARTERS for each in names)


def check_server_mark() -> None:
    """Fail the test that runs, if any, where it is not marked ``server``."""
    if _running and _running[-1].get_closest_marker("server") is None:
        pytest.fail(f"{_running[-1].nodeid} starts a server: mark it `server`, or see tests/support/parts.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    """Remember which test runs."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def _room(item: pytest.Item) -> str:
    parts = item.path.relative_to(_ROOT).parts if item.path.is_relative_to(_ROOT) else ()
    return parts[0] if len(parts) > 1 else ""
