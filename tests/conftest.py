"""The real servers, for every test that asks for one."""

pytest_plugins = ["tests.servers", "tests.mongo_servers"]
