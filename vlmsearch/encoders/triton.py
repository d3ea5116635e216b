"""A Triton server, as `vlmsearch triton repo` makes them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, Union

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from vlmsearch._util.retry import check_seconds
from vlmsearch._util.threads import Workers
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError, ConfigError, IndexMismatchError, InvalidInputError, TextTruncatedWarning
from vlmsearch.media.images import Preprocess, is_within, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.inputs import to_pixels
from vlmsearch.triton.client import protocol
from vlmsearch.triton.client.batches import Piece, batches, piece_lengths, pooled, size_of, split_location, utf8
from vlmsearch.triton.client.connection import Connection
from vlmsearch.triton.client.security import Security
from vlmsearch.triton.client.shared_memory import SharedSlots
from vlmsearch.types import ImageSource, Role, Space, Vectors

T = TypeVar("T")
R = TypeVar("R")
Row: TypeAlias = NDArray[np.float32]
Outcome: TypeAlias = Union[Row, InvalidInputError]
Known: TypeAlias = dict[int, tuple[ImageSource, Union[Row, InvalidInputError, None]]]


_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class TritonEncoder(Encoder):
    """The models that a Triton server has under a name: ``triton://host:8001/vlm``.

    ``preprocess`` says where images are decoded and resized: on the ``server``, which is sent files as they are, or
    here, in the ``client``. ``batch_size`` is the most items of a request (the server's limit if that is less),
    ``concurrency`` how many requests are under way at a time. An attempt may take ``timeout`` seconds, a request with
    all its attempts ``deadline``: so long a restart of the server is waited for. ``tls`` encrypts;
    ``shared_memory`` hands inputs over without copying them into messages, where the server is on this host and
    allows it (``vlmsearch triton serve --client-shm``, from 26.05 on with ``-- --allow-client-shm=true`` too). The
    environment has certificates, token and headers: see `vlmsearch.triton.client.security.Security`.
    """

    def __init__(
        self,
        location: str,
        *,
        preprocess: Literal["server", "client"] = "server",
        batch_size: int = 16,
        concurrency: int = 4,
        timeout: float = 60.0,
        deadline: float = 120.0,
        tls: bool = False,
        shared_memory: bool = False,
    ) -> None:
        address, self._model = split_location(location)
        host = address.rpartition(":")[0]
        if min(batch_size, concurrency) < 1:
            raise ConfigError("batch_size and concurrency are at least 1")
        check_seconds(timeout=timeout, deadline=deadline)
        if shared_memory and host not in _LOCAL:
            raise ConfigError(f"shared_memory is for a server on this host, and {host} is another")
        self._connection = Connection(
            address,
            security=Security.from_environment(tls=tls, host=host),
            timeout=timeout,
            deadline=deadline,
            slots=SharedSlots(concurrency) if shared_memory else None,
        )
        self._pool = Workers(concurrency, name="vlmsearch-triton", owner="the encoder")
        self._local = threading.local()
        try:
            self._deployment, most = self._look()
        except BaseException:
            self.close()
            raise
        self._batch_size = min(batch_size, most)
        self._on_server = preprocess == "server"
        self.fingerprint = self._deployment.fingerprint
        self.spaces = self._deployment.spaces
        self.floors = dict(self._deployment.floors)
        self._picture = next((space for space in self.spaces if "image" in space.modalities), None)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the image space; see `Encoder.encode_images`.

        After an InvalidInputError, the same call without the item that it names computes nothing twice.
        """
        if self._picture is None:
            return {}
        before = self._take_known()
        outcomes: list[Outcome | None] = [before[id(image)][1] if id(image) in before else None for image in images]
        todo = [i for i, outcome in enumerate(outcomes) if outcome is None]
        planned = list(batches(todo, [size_of(images[i]) for i in todo], self._batch_size))
        for batch, found in zip(planned, self._each(planned, lambda batch: self._send_images(images, batch))):
            for i, done in zip(batch, found):
                outcomes[i] = done
        rows = []
        for i, outcome in enumerate(outcomes):
            if isinstance(outcome, InvalidInputError):
                others = zip((*images[:i], *images[i + 1 :]), (*outcomes[:i], *outcomes[i + 1 :]))
                self._local.known = {id(image): (image, known) for image, known in others}
                raise InvalidInputError(outcome.code, str(outcome), item=i) from outcome.__cause__
            rows.append(outcome)
        return {self._picture.name: np.array(rows, np.float32).reshape(len(rows), self._picture.dim)}

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors per space; see `Encoder.encode_texts`."""
        encoded = [utf8(i, text) for i, text in enumerate(texts)]
        most = self._deployment.max_text_bytes
        for i, text in enumerate(encoded):
            if refused := protocol.texts_too_large(len(text), most):
                raise protocol.error_of(refused, i)
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        planned = list(batches(order, [len(encoded[i]) for i in order], self._batch_size, total=most))
        pieces: dict[str, list[Piece]] = {space.name: [] for space in self.spaces}
        for batch, found in zip(planned, self._each(planned, lambda batch: self._send_texts(encoded, batch))):
            for space in self.spaces:
                room = self._deployment.rooms[space.name]
                for i, row, count in zip(batch, *found[space.name]):
                    if count <= room:
                        pieces[space.name].append(Piece(i, count, row))
                    elif role == "document":
                        pieces[space.name] += self._long_text(space, i, encoded[i], count)
                    else:
                        warnings.warn(
                            f"the query has {count} tokens and {space.name} reads {room}: the rest was not used",
                            TextTruncatedWarning,
                            stacklevel=2,
                        )
                        pieces[space.name].append(Piece(i, room, row))
        return {space.name: pooled(pieces[space.name], len(texts), space.dim) for space in self.spaces}

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """The image as it is sent: the file's bytes for the server to decode, or else upright, cropped and small."""
        if self._on_server:
            return self._bytes(image, limits)
        return PIL.Image.fromarray(to_pixels(image, self._preprocess, limits))

    def close(self) -> None:
        """Wait for requests under way, for ten seconds at most, and close the connection."""
        self._pool.close()
        self._connection.close()

    @property
    def _preprocess(self) -> Preprocess:
        if self._deployment.preprocess is None:
            raise ConfigError(f"{self.fingerprint} encodes no images")
        return self._deployment.preprocess

    def _look(self) -> tuple[protocol.Deployment, int]:
        """What the server has, and its largest batch; BackendError if its models do not belong together."""
        config = self._connection.config(self._model)
        if protocol.DEPLOYMENT not in config.parameters:
            raise BackendError(f"{self._model} of Triton at {self._connection.address} was not made by vlmsearch")
        found = protocol.Deployment.from_json(config.parameters[protocol.DEPLOYMENT].string_value)
        for model, wanted in found.towers.items():
            have = self._connection.config(model).parameters[protocol.FINGERPRINT].string_value
            if have != wanted:
                raise BackendError(
                    f"{model} of Triton at {self._connection.address} is {have or 'of unknown origin'}, and "
                    f"{self._model} is made for {wanted}: make the repository again with `vlmsearch triton repo`"
                )
        return found, max(config.max_batch_size, 1)

    def _check_again(self) -> None:
        """After a failure: another server may be there now."""
        found, _ = self._look()
        if found.fingerprint != self.fingerprint:
            raise IndexMismatchError(
                f"Triton at {self._connection.address} served {self.fingerprint} and now serves {found.fingerprint}: "
                "open it again, with an index that was built with that"
            )

    def _infer(
        self, model: str, inputs: dict[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        parameters: dict[str, str | bool] = {protocol.PARTIAL: True, protocol.FINGERPRINT: self.fingerprint}
        try:
            return self._connection.infer(model, inputs, outputs, parameters, on_recovery=self._check_again)
        except BackendError as exc:
            if protocol.MISMATCH in str(exc):
                self._check_again()
            raise

    def _each(self, items: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Results in order, with so many items under way; one alone needs no other thread."""
        if len(items) == 1:
            yield work(items[0])
            return
        futures = [self._pool.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def _take_known(self) -> Known:
        """What the call of this thread that just failed had found out, by the identity of the images."""
        known: Known = getattr(self._local, "known", {})
        self._local.known = {}
        return known

    def _send_texts(self, encoded: Sequence[bytes], batch: Sequence[int]) -> dict[str, tuple[Vectors, list[int]]]:
        """For each space the vectors of a batch of texts, as far as they are read, and their numbers of tokens."""
        vectors = {space.name: protocol.text_model(space).upper() for space in self.spaces}
        counts = {space.name: protocol.tokens_tensor(space.name) for space in self.spaces}
        texts = _strings([encoded[i] for i in batch])
        found = self._infer(self._model, {protocol.TEXT: texts}, (*vectors.values(), *counts.values()))
        return {
            name: (found[vectors[name]].astype(np.float32, copy=False), found[counts[name]][:, 0].tolist())
            for name in vectors
        }

    def _long_text(self, space: Space, text: int, encoded: bytes, tokens: int) -> list[Piece]:
        """The pieces of a text that is longer than a model reads."""
        output = protocol.text_model(space).upper()
        lengths = piece_lengths(tokens, self._deployment.rooms[space.name])
        planned = list(batches(range(len(lengths)), [1] * len(lengths), self._batch_size))

        def send(numbers: Sequence[int]) -> list[Piece]:
            texts = _strings([encoded] + [b""] * (len(numbers) - 1))
            wanted = np.array(numbers, np.int32)[:, None]
            rows = self._infer(self._model, {protocol.TEXT: texts, protocol.PIECE: wanted}, (output,))[output]
            return [Piece(text, lengths[number], row) for number, row in zip(numbers, rows.astype(np.float32))]

        return [piece for found in self._each(planned, send) for piece in found]

    def _send_images(self, images: Sequence[ImageSource], batch: Sequence[int]) -> list[Outcome]:
        """The vector of each image of a batch, or why it has none."""
        outcomes: dict[int, Outcome] = {}
        ready: dict[int, bytes | NDArray[np.uint8]] = {}
        for i in batch:
            try:
                ready[i] = self._bytes(images[i]) if self._on_server else to_pixels(images[i], self._preprocess)
            except InvalidInputError as exc:
                outcomes[i] = exc
        if ready:
            found = self._encode_bytes(ready) if self._on_server else self._encode_pixels(ready)
            outcomes |= dict(zip(ready, found))
        return [outcomes[i] for i in batch]

    def _encode_bytes(self, ready: dict[int, bytes | NDArray[np.uint8]]) -> list[Outcome]:
        output = protocol.image_model(self._image_space).upper()
        found = self._infer(self._model, {protocol.IMAGE: _strings(list(ready.values()))}, (output, protocol.STATUS))
        statuses = [status.decode() for status in found[protocol.STATUS][:, 0]]
        return [
            protocol.error_of(status, i) if status else row
            for i, (status, row) in enumerate(zip(statuses, found[output]))
        ]

    def _encode_pixels(self, ready: dict[int, bytes | NDArray[np.uint8]]) -> list[Outcome]:
        pixels = np.stack([np.asarray(one, np.uint8) for one in ready.values()])
        model = protocol.image_model(self._image_space)
        return list(self._infer(model, {protocol.PIXELS: pixels}, (protocol.EMBEDDING,))[protocol.EMBEDDING])

    @property
    def _image_space(self) -> str:
        return self._picture.name if self._picture else ""

    def _bytes(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
        """Encoded bytes that the server takes; of a decoded image, or one too large for it, the pixels it needs."""
        if not isinstance(image, PIL.Image.Image):
            data = read_image(image, limits) if isinstance(image, Path) else image
            at_least = self._preprocess.at_least
            if all(is_within(data, most, at_least=at_least) for most in (limits, self._deployment.image_limits)):
                return data
            image = data
        out = BytesIO()
        PIL.Image.fromarray(to_pixels(image, self._preprocess, limits)).save(out, "PNG", compress_level=1)
        return out.getvalue()


def _strings(items: Sequence[object]) -> NDArray[np.object_]:
    """A column of BYTES."""
    column = np.empty((len(items), 1), np.object_)
    column[:, 0] = items
    return column
