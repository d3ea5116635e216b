"""Inputs in shared memory, where the server hangs or there is little of it."""

import os
import threading
import time
from pathlib import Path

import grpc
import pytest

from tests.support.scripted_triton import Place, first
from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.errors import BackendError, BackendUnavailableError
from vlmsearch.triton.client import shared_memory as triton_memory

SHARED = Path("/dev/shm")

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="needs /dev/shm")


def regions() -> set[str]:
    return {path.name for path in SHARED.glob("psm_*")}


def sharing(place: Place, *, concurrency: int = 1, timeout: float = 0.5, deadline: float = 1) -> TritonEncoder:
    return TritonEncoder(
        place.location, shared_memory=True, concurrency=concurrency, timeout=timeout, deadline=deadline
    )


def test_the_server_reads_what_was_put_and_a_region_grows(place: Place) -> None:
    before = regions()
    with sharing(place, concurrency=2, timeout=30, deadline=30) as encoder:
        for size in (3, triton_memory._FIRST_SIZE + 5, 7):
            assert first(encoder.encode_images([b"x" * size] * 2)["clip"]) == [size + 1] * 2
        assert len(regions() - before) == 2
    assert regions() == before
    assert place.scripted.regions == {}
    assert not any(request.raw_input_contents[1:] for request in place.scripted.requests)


def test_a_server_that_was_busy_still_knows_its_regions(place: Place) -> None:
    with sharing(place, timeout=30, deadline=30) as encoder:
        for _ in range(2):
            place.scripted.failures = [(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")]
            assert first(encoder.encode_images([b"abc"])["clip"]) == [4]
            assert len(place.scripted.regions) == 1
    assert place.scripted.regions == {}


def test_closing_twice_is_allowed(place: Place) -> None:
    encoder = sharing(place)
    encoder.close()
    encoder.close()


def test_memory_that_never_comes_back_is_waited_for_until_the_deadline(place: Place) -> None:
    answer = threading.Event()
    place.scripted.failures = [answer]
    with sharing(place) as encoder:
        with pytest.raises(BackendUnavailableError, match="did not answer"):
            encoder.encode_images([b"abc"])
        started = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="no shared memory came free in time"):
            encoder.encode_images([b"abc"])
        assert time.monotonic() - started > 0.5
        answer.set()


def test_a_server_that_does_not_register_memory_is_given_up(place: Place) -> None:
    with sharing(place) as encoder:
        place.scripted.busy = threading.Event()
        with pytest.raises(BackendUnavailableError, match="Deadline Exceeded"):
            encoder.encode_images([b"abc"])
        place.scripted.busy.set()
        assert first(encoder.encode_images([b"abc"])["clip"]) == [4]


@pytest.mark.skipif(not os.statvfs(SHARED).f_blocks, reason="/dev/shm has no limit")
def test_too_little_shared_memory_is_an_error_that_says_how_much_is_needed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, disk = regions(), os.statvfs(SHARED)
    larger = disk.f_blocks * disk.f_frsize + 2**20
    monkeypatch.setattr(triton_memory, "_FIRST_SIZE", larger)
    with pytest.raises(BackendError, match=f"2 requests at a time need {-(-2 * larger // 2**20)} MiB"):
        sharing(place, concurrency=2)
    assert regions() == before
