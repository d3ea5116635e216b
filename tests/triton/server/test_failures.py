"""A real Triton server that is killed, changed and guarded: no answer is lost."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
import trustme

from tests.support.sighted_models import write_sighted
from tests.support.triton_load import Load
from tests.support.triton_server import Running, started
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.errors import BackendError, BackendUnavailableError, IndexMismatchError
from vlmsearch.generators.triton.generator import TritonGenerator
from vlmsearch.registry import open_encoder
from vlmsearch.triton.repository.options import Queue, RepoOptions
from vlmsearch.triton.repository.writer import write_repository
from vlmsearch.triton.server.commands import Binary


@pytest.fixture(scope="module")
def private(binary: Binary, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that tests may kill and whose models they may change."""
    folder = tmp_path_factory.mktemp("private") / "repository"
    shutil.copytree(repository, folder)
    write_sighted(folder)
    with started(binary, folder, "--model-control-mode=explicit", "--load-model=*") as running:
        yield running


def repository_of(running: Running) -> Path:
    return Path(running.command[1].partition("=")[2])


def test_a_new_version_is_loaded_while_requests_flow(
    private: Running, pictures: list[bytes], local: OnnxEncoder
) -> None:
    folder = repository_of(private)
    with TritonEncoder(private.url.removeprefix("triton:")) as encoder:
        encoder._connection._retries = False
        load = Load(encoder, pictures, local.encode_images(pictures)["clip"])
        load.settle()
        shutil.copytree(folder / "clip_image" / "1", folder / "clip_image" / "2")
        with private.client() as client:
            client.load_model("clip_image")
            load.settle()
            ready = [(m.name, m.version) for m in client.get_model_repository_index().models if m.state == "READY"]
        load.finish()
    assert ("clip_image", "2") in ready
    assert ("clip_image", "1") not in ready


def test_models_that_do_not_belong_together_are_refused(private: Running) -> None:
    config = repository_of(private) / "clip_image" / "config.pbtxt"
    config.write_text(config.read_text().replace("demo-clip:", "other-clip:"))
    with private.client() as client:
        client.load_model("clip_image")
    with pytest.raises(BackendError, match=r"clip_image of Triton at .* is other-clip:.* is made for demo-clip:"):
        open_encoder(private.url)
    config.write_text(config.read_text().replace("other-clip:", "demo-clip:"))
    with private.client() as client:
        client.load_model("clip_image")


def test_a_killed_server_costs_no_answer_unless_the_deadline_ends_the_wait_or_an_answer_has_begun(
    private: Running, pictures: list[bytes], local: OnnxEncoder
) -> None:
    location, expected = private.url.removeprefix("triton:"), local.encode_images(pictures)["clip"]
    with (
        TritonEncoder(location) as encoder,
        TritonEncoder(location, deadline=2) as impatient,
        TritonGenerator(location.replace("/vlm", "/streaming"), deadline=120) as generator,
    ):
        impatient.encode_images(pictures[:3])
        load = Load(encoder, pictures, expected, 2)
        load.settle()
        stream = generator.stream("slowly")
        assert next(stream) == "It"
        private.kill()
        with pytest.raises(BackendUnavailableError, match="Triton at 127"):
            list(stream)
        started = time.monotonic()
        with pytest.raises(BackendError, match=r"127\.0\.0\.1"):
            impatient.encode_images(pictures[:3])
        assert 0.5 < time.monotonic() - started < 20
        private.again()
        load.settle()
        load.finish()
        assert generator.generate("a") == "It has 0 pictures in 0 places: [] [1]."


def test_a_server_with_other_models_is_noticed(private: Running, pictures: list[bytes]) -> None:
    with TritonEncoder(private.url.removeprefix("triton:"), deadline=60) as encoder:
        encoder.encode_images(pictures[:2])
        private.kill()
        for config in repository_of(private).glob("*/config.pbtxt"):
            config.write_text(config.read_text().replace("demo-clip:", "other-clip:"))
        private.again()
        with pytest.raises(IndexMismatchError, match=r"served demo-clip:.* and now serves other-clip:"):
            encoder.encode_images(pictures[:2])


def test_tls_in_both_directions_headers_a_cache_and_several_instances(
    binary: Binary, tmp_path: Path, pictures: list[bytes], local: OnnxEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(preferred=(4, 8), delay_us=500, limit=64, timeout_ms=60_000)
    write_repository("demo", tmp_path / "R", RepoOptions(queue=queue, instances=2, threads=1, response_cache=True))
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client@example.org")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "server-key", "client", "client-key")}
    authority.cert_pem.write_to_path(files["ca"])
    for name, issued in (("server", server), ("client", client)):
        issued.cert_chain_pems[0].write_to_path(files[name])
        issued.private_key_pem.write_to_path(files[f"{name}-key"])
    flags = ["--grpc-use-ssl=true", "--grpc-use-ssl-mutual=true", f"--grpc-root-cert={files['ca']}"]
    flags += [f"--grpc-server-cert={files['server']}", f"--grpc-server-key={files['server-key']}"]
    flags += [f"--cache-config=local,size={2**24}", f"--cache-directory={binary.caches}"]
    running = Running(binary, tmp_path / "R", [*flags, "--grpc-restricted-protocol=inference:team=search"])
    url = f"{running.url}?tls=true&deadline=3"
    with running.server:
        running.start()
        with pytest.raises(BackendUnavailableError):
            open_encoder(running.url)
        monkeypatch.setenv("VLMSEARCH_TRITON_CA", files["ca"])
        with pytest.raises(BackendUnavailableError):  # the server wants a certificate of the client
            open_encoder(url)
        monkeypatch.setenv("VLMSEARCH_TRITON_CERT", files["client"])
        monkeypatch.setenv("VLMSEARCH_TRITON_KEY", files["client-key"])
        with open_encoder(url) as encoder, pytest.raises(BackendError, match="restricted"):
            encoder.encode_images(pictures[:1])
        monkeypatch.setenv("VLMSEARCH_TRITON_HEADERS", "triton-grpc-protocol-team: search")
        expected = local.encode_images(pictures[:40])["clip"]
        with open_encoder(f"{running.url}?tls=true") as encoder:
            for _ in range(2):
                assert np.array_equal(encoder.encode_images(pictures[:40])["clip"], expected)
        metrics = urlopen(f"http://127.0.0.1:{running.ends.metrics}/metrics", timeout=30).read().decode()
    hits = re.findall(r'^nv_cache_num_hits_per_model\{model="vlm".*\} (\d+)', metrics, re.MULTILINE)
    assert [int(count) > 0 for count in hits] == [True]
