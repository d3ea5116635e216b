"""An S3 server on this machine: moto's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.once import once
from tests.support.parts import check_server_mark

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextmanager
def object_storage(_: Path) -> Iterator[None]:
    """Have a bucket ``photos`` on a server that the environment names, for this process and those that it starts."""
    from moto.server import ThreadedMotoServer

    check_server_mark()
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**_ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        try:
            client().create_bucket(Bucket="photos")
            yield
        finally:
            server.stop()


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The bucket ``photos`` of `object_storage`."""
    once(object_storage, tmp_path_factory)


def client() -> Any:
    """A client of the server."""
    import boto3

    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])


def put(name: str, data: bytes) -> str:
    """Put a file into the bucket; returns its URL."""
    client().put_object(Bucket="photos", Key=name, Body=data)
    return f"s3://photos/{name}"


def put_folder(folder: Path, prefix: str) -> str:
    """Put what is in a folder below a prefix; returns its URL."""
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
    return f"s3://photos/{prefix}"
