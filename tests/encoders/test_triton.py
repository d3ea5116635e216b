"""The Triton encoder against a server that misbehaves on purpose."""

import socket
import threading
import time
import warnings
from concurrent import futures
from contextlib import closing, suppress

import grpc
import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.scripted_triton import CONFIGS, Failure, Place, _items, first
from tests.support.triton_bundles import BOTH, CLIP
from vlmsearch import Document, Pipeline
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    IndexMismatchError,
    InvalidBatchError,
    OperationCancelledError,
    TextTruncatedWarning,
)
from vlmsearch.registry import open_encoder
from vlmsearch.triton.client import connection as triton_connection


class Behind:
    """A way to a server on which connections take ``seconds`` to come about."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        time.sleep(self._seconds)
        server = socket.create_connection(("127.0.0.1", self._port))
        threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
        self._pass(server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_it_gains_from_as_many_batches_at_a_time_as_it_sends(place: Place) -> None:
    with TritonEncoder(place.location, batch_size=4, concurrency=3) as encoder:
        assert (encoder.batch_sizes.texts, encoder.batch_sizes.images, encoder.batch_sizes.calls) == (4, 4, 3)


def test_it_describes_itself_as_the_server_does(place: Place) -> None:
    with open_encoder(f"triton:{place.location}") as encoder:
        assert encoder.fingerprint == "+".join(bundle.fingerprint for bundle in BOTH)
        assert encoder.spaces == tuple(bundle.space for bundle in BOTH)
        assert encoder.relevance["clip", "image"] == CLIP.relevance["image"]


def test_a_connection_may_take_its_time(place: Place) -> None:
    with closing(Behind(place.port, 0.5)) as way, TritonEncoder(f"//127.0.0.1:{way.port}/vlm") as encoder:
        assert first(encoder.encode_images([b"abc"])["clip"]) == [4]


def test_batches_are_split_sent_together_and_put_in_order(place: Place) -> None:
    images = [b"x" * (1 + i * 37 % 101) for i in range(100)]
    with TritonEncoder(place.location, batch_size=7, concurrency=3) as encoder:
        found = encoder.encode_images(images)["clip"]
    assert first(found) == [len(image) + 1 for image in images]
    assert {len(_items(request)) for request in place.scripted.requests} == {7, 2}
    assert place.scripted.max_under_way == 3


def test_no_request_has_more_than_the_server_takes(place: Place) -> None:
    with TritonEncoder(place.location, batch_size=1000) as encoder:
        encoder.encode_images([b"x"] * 130)
    assert sorted(len(_items(request)) for request in place.scripted.requests) == [2, 64, 64]


@pytest.mark.parametrize(
    "failure",
    [
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size"),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (grpc.StatusCode.INTERNAL, "in ensemble 'vlm', Stub process 'clip_image_0_0' is not healthy."),
        (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'vlm' has no available versions"),
    ],
)
def test_what_passes_is_tried_again(place: Place, failure: Failure) -> None:
    place.scripted.failures = [failure, failure]
    with TritonEncoder(place.location) as encoder:
        assert first(encoder.encode_images([b"abc"])["clip"]) == [4]
    assert len(place.scripted.requests) == 3


def test_a_server_that_is_slow_to_say_what_it_has_is_unavailable_and_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_connection, "_CONNECT_SECONDS", 0.5)
    with TritonEncoder(place.location) as encoder:
        place.scripted.failures = [(grpc.StatusCode.UNAVAILABLE, "restarting")]
        place.scripted.slow = threading.Event()
        with pytest.raises(BackendUnavailableError, match="Deadline Exceeded"):
            TritonEncoder(place.location)
        threading.Timer(1.5, place.scripted.slow.set).start()
        assert first(encoder.encode_images([b"abc"])["clip"]) == [4]


@pytest.mark.parametrize(
    "failure",
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape"),
        (grpc.StatusCode.UNAUTHENTICATED, "no token"),
        (grpc.StatusCode.UNIMPLEMENTED, "decoupled"),
        (grpc.StatusCode.INTERNAL, "out of memory"),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired"),
    ],
)
def test_what_would_not_change_is_not_tried_again(place: Place, failure: Failure) -> None:
    place.scripted.failures = [failure]
    with TritonEncoder(place.location) as encoder, pytest.raises(BackendError, match=failure[1]) as caught:
        encoder.encode_images([b"abc"])
    assert len(place.scripted.requests) == 1
    assert caught.value.__cause__ is not None


def test_a_slow_request_is_given_up_and_not_cancelled(place: Place) -> None:
    answer = threading.Event()
    place.scripted.failures = [answer]
    with TritonEncoder(place.location, timeout=0.3) as encoder:
        with pytest.raises(BackendUnavailableError, match=r"did not answer within 0.3 s"):
            encoder.encode_images([b"abc"])
        assert place.scripted.under_way == 1
        assert first(encoder.encode_images([b"abc"])["clip"]) == [4]
        answer.set()
        while place.scripted.under_way:
            time.sleep(0.02)
    assert (len(place.scripted.requests), place.scripted.cancelled) == (2, 0)
    assert place.scripted.requests[0].parameters["timeout"].int64_param in range(250_000, 300_001)


@pytest.mark.parametrize(("version", "cancelled"), [("2.51.0", 0), ("2.56.0", 1), ("of our own", 0)])
def test_a_request_that_its_caller_gives_up_is_cancelled_where_the_server_stands_it(
    place: Place, version: str, cancelled: int
) -> None:
    token, answer = CancelToken(), threading.Event()
    place.scripted.version, place.scripted.failures = version, [answer]
    with TritonEncoder(place.location) as encoder, running_under(token):
        threading.Timer(0.2, token.cancel).start()
        with pytest.raises(OperationCancelledError):
            encoder.encode_images([b"abc"])
        with pytest.raises(OperationCancelledError):
            encoder.encode_images([b"abc"] * 40)
        assert not cancelled or place.scripted.ended.wait(60)  # the word of it travels
        answer.set()
        while place.scripted.under_way:
            time.sleep(0.02)
    assert place.scripted.cancelled == cancelled


def test_a_wait_for_the_next_attempt_ends_when_the_call_is_given_up(place: Place) -> None:
    place.scripted.failures = [(grpc.StatusCode.UNAVAILABLE, "restarting")] * 1000
    token = CancelToken()
    with TritonEncoder(place.location) as encoder, running_under(token):
        threading.Timer(0.5, token.cancel).start()
        started = time.monotonic()
        with pytest.raises(OperationCancelledError):
            encoder.encode_images([b"abc"])
        assert time.monotonic() - started < 20


def test_the_deadline_ends_all_attempts(place: Place) -> None:
    place.scripted.failures = [(grpc.StatusCode.UNAVAILABLE, "busy")] * 100
    with TritonEncoder(place.location, deadline=1) as encoder:
        started = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="busy"):
            encoder.encode_images([b"abc"])
        assert time.monotonic() - started < 20
    assert 2 < len(place.scripted.requests) < 20


def test_an_attempt_that_the_deadline_cuts_short_is_told_with_the_failure_before_it(place: Place) -> None:
    place.scripted.failures = [(grpc.StatusCode.UNAVAILABLE, "busy"), 2.0]
    told = r"did not answer within 0\.\d+ s; the attempt before it: .*busy"
    with TritonEncoder(place.location, deadline=1) as encoder, pytest.raises(BackendUnavailableError, match=told):
        encoder.encode_images([b"abc"])


def test_all_bad_images_are_named_at_once_with_the_vectors_of_the_others(place: Place) -> None:
    images = [b"x" * i for i in range(1, 20)]
    images[4], images[11] = b"bad one", b"bad two"
    with TritonEncoder(place.location, batch_size=8) as encoder:
        with pytest.raises(InvalidBatchError, match=r"2 items .*: item 4: .*it is bad; item 11: ") as caught:
            encoder.encode_images(images)
        assert {item: error.code for item, error in caught.value.items.items()} == {4: "corrupt", 11: "corrupt"}
        assert caught.value.vectors is not None
        good = [image for image in images if not image.startswith(b"bad")]
        assert first(caught.value.vectors["clip"]) == [len(image) + 1 for image in good]
    assert len(place.scripted.requests) == 3


def test_no_good_image_is_sent_twice_when_a_batch_with_bad_ones_is_indexed(place: Place) -> None:
    images = {f"{i}": b"bad" if i % 5 == 2 else b"x" * (i + 1) for i in range(20)}
    with TritonEncoder(place.location, batch_size=8) as encoder:
        report = Pipeline(encoder, MemoryStore()).add([Document(id, image=data) for id, data in images.items()])
    assert (report.added, [(reject.id, reject.code) for reject in report.rejects]) == (
        16,
        [(id, "corrupt") for id in ("2", "7", "12", "17")],
    )
    sent = [image for request in place.scripted.requests for image in _items(request)]
    assert sorted(sent) == sorted(images.values())


def test_all_texts_that_cannot_be_sent_are_named_before_anything_is_sent(place: Place) -> None:
    with TritonEncoder(place.location) as encoder:
        most = encoder._deployment.max_text_bytes
        with pytest.raises(InvalidBatchError) as caught:
            encoder.encode_texts(["fine", "x" * (most + 1), "", "half \ud83d"])
        assert {item: error.code for item, error in caught.value.items.items()} == {1: "too_large", 3: "invalid"}
        assert (caught.value.vectors, place.scripted.requests) == (None, [])
        encoder.encode_texts(["fine", ""])
    assert _items(place.scripted.requests[0]) == [b"", b"fine"]


def test_the_server_cuts_long_texts_and_queries_are_told(place: Place) -> None:
    text = "word " * 200
    with TritonEncoder(place.location) as encoder:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            encoder.encode_texts([text, "short"])
        assert [_items(request) for request in place.scripted.requests] == [[b"short", text.encode()]]
        with pytest.warns(TextTruncatedWarning, match="200 tokens and clip reads 75"):
            encoder.encode_texts([text], role="query")


def test_the_server_counts_tokens_many_texts_at_a_time(place: Place) -> None:
    with TritonEncoder(place.location, batch_size=40) as encoder:
        assert encoder.text_window == BOTH[1].text.room("document") != CLIP.text.room("document")
        long = encoder._deployment.max_text_bytes // 4 * 5 + 7
        texts = ["word " * (number % 7) for number in range(70)] + ["word " * (long // 5)]
        expected = [len(text.split()) for text in texts]
        counts = encoder.text_tokens(texts)
        assert counts[:-1] == expected[:-1]
        assert 0 <= counts[-1] - expected[-1] <= 5, "a word may lie between two stretches"
        assert {output.name for request in place.scripted.requests for output in request.outputs} == {"MINILM_TOKENS"}
        assert len(place.scripted.requests) < 10


def test_another_model_behind_the_address_is_an_index_mismatch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with TritonEncoder(place.location) as encoder:
        for name, config in CONFIGS.items():
            changed = type(config).FromString(config.SerializeToString())
            for parameter in changed.parameters.values():
                parameter.string_value = parameter.string_value.replace("0123456789ab", "ffffffffffff")
            monkeypatch.setitem(CONFIGS, name, changed)
        place.scripted.failures = [
            (grpc.StatusCode.INVALID_ARGUMENT, "in ensemble 'vlm', this server has other models: x")
        ]
        with pytest.raises(IndexMismatchError, match="now serves clip-vit-base-patch32:ffffffffffff"):
            encoder.encode_images([b"abc"])


def test_headers_and_tokens_come_from_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_TRITON_HEADERS", "Triton-Grpc-Protocol-Key: abc\nX-Team:  search")
    monkeypatch.setenv("VLMSEARCH_TRITON_TOKEN", "secret\n")
    with TritonEncoder(place.location) as encoder:
        encoder.encode_images([b"abc"])
    sent = place.scripted.headers[0]
    assert (sent["triton-grpc-protocol-key"], sent["x-team"]) == ("abc", "search")
    assert sent["authorization"] == "Bearer secret"


@pytest.mark.parametrize("count", [1, 100])
def test_a_closed_encoder_says_so(place: Place, count: int) -> None:
    encoder = TritonEncoder(place.location)
    encoder.close()
    with pytest.raises(BackendError, match="is closed"):
        encoder.encode_texts(["abc"] * count)
    with pytest.raises(BackendError, match="is closed"):
        encoder.encode_images([b"abc"] * count)
    started = time.monotonic()
    encoder.close()
    assert time.monotonic() - started < 30


def test_closing_lets_requests_under_way_end_and_begins_no_other(place: Place) -> None:
    place.scripted.failures = [1.0]
    encoder = TritonEncoder(place.location, batch_size=1, concurrency=1)
    with futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(encoder.encode_images, [b"abc", b"de"])
        while not place.scripted.under_way:
            time.sleep(0.01)
        encoder.close()
        assert place.scripted.under_way == 0
        with pytest.raises(BackendError, match="is closed"):
            found.result(60)
    assert len(place.scripted.requests) == 1


def test_a_request_that_could_not_be_sent_holds_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TritonEncoder(place.location, concurrency=1, deadline=1)

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("Cannot invoke RPC")

    with monkeypatch.context() as broken:
        broken.setattr(encoder._connection._client, "async_infer", refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="Cannot invoke RPC"):
                encoder.encode_images([b"abc"])
    assert first(encoder.encode_images([b"abc"])["clip"]) == [4]
    started = time.monotonic()
    encoder.close()
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("triton:", "needs a location"),
        ("triton:vlm", "triton://HOST:PORT/MODEL"),
        ("triton://host/vlm", "triton://HOST:PORT/MODEL"),
        ("triton://host:8001", "triton://HOST:PORT/MODEL"),
        ("triton://h:1/vlm?preprocess=gpu", "one of server, client"),
        ("triton://h:1/vlm?batch_size=0", "`batch_size` is from 1 to 16,777,216, not 0"),
        ("triton://h:1/vlm?timeout=0", "`timeout` is from 0.001 to 1,000,000"),
        ("triton://h:1/vlm?timeout=nan", "`timeout` is from 0.001 to 1,000,000"),
        ("triton://h:1/vlm?deadline=nan", "`deadline` is from 0.001 to 1,000,000"),
        ("triton://h:1/vlm?timeout=inf&deadline=inf", "`timeout` is from 0.001 to 1,000,000"),
        ("triton://h:1/vlm?port=8", "has no option 'port'"),
    ],
)
def test_urls_that_cannot_be_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_encoder(url)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CA": "/no/such/file"}, "VLMSEARCH_TRITON_CA is /no/such/file, which cannot be read: No such file"),
        ({"CA": "/proc/self/mem"}, "VLMSEARCH_TRITON_CA is /proc/self/mem, which cannot be read: "),
        ({"TOKEN": "sec\nret"}, "^VLMSEARCH_TRITON_TOKEN holds characters that no header has$"),
        ({"HEADERS": "X Team: search"}, "not of the form name: value"),
        ({"HEADERS": "x-team: Suche für alle"}, "^VLMSEARCH_TRITON_HEADERS holds characters that no header has$"),
        ({"CERT": __file__}, "go together"),
        ({"HEADERS": "nonsense"}, "not of the form name: value"),
        ({"TOKEN": "secret"}, "cross the network to gpu-host unencrypted"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"VLMSEARCH_TRITON_{name}", value)
    with pytest.raises(ConfigError, match=message):
        open_encoder("triton://gpu-host:8001/vlm")


def test_nobody_there_and_nothing_known_there(place: Place) -> None:
    with pytest.raises(BackendError, match="does not serve other"):
        open_encoder(f"triton://127.0.0.1:{place.port}/other")
    with pytest.raises(BackendError, match="was not made by vlmsearch"):
        open_encoder(f"triton://127.0.0.1:{place.port}/clip_image")
    started = time.monotonic()
    with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1:1:"):
        open_encoder("triton://127.0.0.1:1/vlm")
    assert time.monotonic() - started < 20
