"""What a client, or another user of the machine, must not be able to do to a real Triton server."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tests.support.cli import run
from tests.support.triton_load import Load
from tests.support.triton_server import children, serving, stubs
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.triton.server.commands import Binary

Served = tuple[str, "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def served(binary: Binary, repository: Path) -> Iterator[Served]:
    """What `vlmsearch triton serve` starts."""
    with serving(repository) as found:
        yield found


def regions(served: Served) -> list[Path]:
    """The shared memory of the server's Python models."""
    _, process = served
    found = list(Path("/dev/shm").glob(f"*vlmsearch_*_{process.pid}_*"))
    assert found
    return found


def client(served: Served) -> grpc.InferenceServerClient:
    return grpc.InferenceServerClient(served[0].split("/")[2])


def test_the_memory_of_the_models_is_for_the_servers_user_alone(served: Served) -> None:
    assert {oct(path.stat().st_mode & 0o777) for path in regions(served)} == {"0o600"}


def test_a_client_cannot_register_the_memory_of_the_models(served: Served) -> None:
    for path in regions(served):
        assert path.name.startswith("triton_python_backend_shm_region_"), "newer servers refuse these names alone"
        with client(served) as found, pytest.raises(InferenceServerException, match="restricted"):
            found.register_system_shared_memory("mine", f"/{path.name}", 64)


def test_http_lets_nobody_register_it_either(served: Served) -> None:
    line = Path(f"/proc/{served[1].pid}/cmdline").read_bytes().decode().split("\0")
    port = next(part.partition("=")[2] for part in line if part.startswith("--http-port"))
    body = json.dumps({"key": f"/{regions(served)[0].name}", "offset": 0, "byte_size": 64}).encode()
    address = f"http://127.0.0.1:{port}/v2/systemsharedmemory/region/mine/register"
    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(address, data=body), timeout=30)


def test_a_killed_model_process_costs_no_answer(served: Served, pictures: list[bytes], local: OnnxEncoder) -> None:
    """`vlmsearch triton serve` notices that Triton has lost a model, and starts it again."""
    expected = local.encode_images(pictures)["clip"]
    url, process = served
    with TritonEncoder(url, timeout=20) as encoder:
        load = Load(encoder, pictures, expected)
        load.settle()
        for pid, line in stubs(children(process.pid)[0]).items():
            if "/image_preprocess/" in line:
                os.kill(pid, signal.SIGKILL)
        load.settle()
        load.finish()


@pytest.mark.parametrize("group", ["triton", "llm"])
@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("host", True)])
def test_a_server_for_other_machines_comes_with_a_warning(tmp_path: Path, group: str, host: str, warned: bool) -> None:
    (tmp_path / "tensorrt_llm").mkdir()
    (tmp_path / "tensorrt_llm" / "config.pbtxt").write_text('name: "tensorrt_llm"')
    done = run(group, "serve", tmp_path, "--host", host, "--dry-run", VLMSEARCH_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ("Triton asks for no password" in done.stderr) == warned


def test_the_container_is_the_newest(tmp_path: Path) -> None:
    done = run("triton", "serve", tmp_path, "--docker", "--dry-run")
    assert "nvcr.io/nvidia/tritonserver:26.11-py3" in done.stdout
    done = run("triton", "serve", tmp_path, "--docker", "--dry-run", "--triton", "27.01")
    assert "nvcr.io/nvidia/tritonserver:27.01-py3" in done.stdout
    assert "Note: Triton 27.01 is newer than 26.11, the newest that is known here" in done.stderr
