"""A Triton server, as `vlmsearch triton repo` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.text import utf8_bytes
from vlmsearch._util.threads import Workers
from vlmsearch.encoders.base import BatchSizes, Encoder, compared_spaces
from vlmsearch.errors import (
    BackendError,
    ConfigError,
    IndexMismatchError,
    InvalidBatchError,
    InvalidInputError,
    apply_to_each,
)
from vlmsearch.media.images import is_within, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import shortened
from vlmsearch.models.inputs import cut_vectors, to_pixels, warn_truncated
from vlmsearch.triton.client import protocol
from vlmsearch.triton.client.batches import batches, size_of, split_location
from vlmsearch.triton.client.connection import Connection
from vlmsearch.types import ImageSource, Role, Vectors

Row: TypeAlias = NDArray[np.float32]
Outcome: TypeAlias = Union[Row, InvalidInputError]
_UTF8_BYTES = 4
"""Maximum number of bytes of a character."""


class TritonEncoder(Encoder):
    """The models that a Triton server has under a name: ``triton://host:8001/vlm``.

    ``preprocess`` says where images are decoded and resized: on the ``server``, which is sent files as they are, or
    here, in the ``client``. ``batch_size`` is the most items of a request (the server's limit if that is less),
    ``concurrency`` how many requests are under way at a time. An attempt may take ``timeout`` seconds, a request with
    all its attempts ``deadline``: so long a restart of the server is waited for. ``tls`` encrypts. The
    environment has certificates, token and headers: see `vlmsearch.triton.client.security.Security`. ``dim`` is how
    many numbers of each vector are kept, for models that were trained to be cut (Matryoshka).
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
        dim: int | None = None,
    ) -> None:
        address, self._model = split_location(location)
        check_counts(batch_size=batch_size, concurrency=concurrency)
        self._connection = Connection(address, timeout=timeout, deadline=deadline, tls=tls)
        self._pool = Workers(concurrency, name="vlmsearch-triton", owner="the encoder")
        try:
            self._deployment, max_batch = self._look()
        except BaseException:
            self.close()
            raise
        self._batch_size = min(batch_size, max_batch)
        size = self._batch_size
        self.batch_sizes = BatchSizes(size, size, self._deployment.max_text_bytes, concurrency)
        self._on_server = preprocess == "server"
        served = self._deployment
        self.preprocess = None if self._on_server else served.preprocess
        try:
            models = zip(served.spaces, served.fingerprint.split("+"))
            given = shortened([(space, whole, served.dims[space.name]) for space, whole in models], dim)
        except BaseException:
            self.close()
            raise
        self.fingerprint, self.spaces = given.fingerprint, given.spaces
        self.relevance = {key: fit for key, fit in served.relevance.items() if key[0] not in given.names}
        self._picture = next((space for space in self.spaces if "image" in space.modalities), None)
        windows = {space.name: served.rooms[space.name]["document"] for space in compared_spaces(self.spaces)}
        self._text_space = min(windows, key=windows.__getitem__)
        self.text_window = windows[self._text_space]

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the image space; see `Encoder.encode_images`."""
        if self._picture is None:
            return {}
        planned = list(batches(range(len(images)), list(map(size_of, images)), self._batch_size))
        answers = self._pool.results(planned, lambda batch: self._send_images([images[i] for i in batch]))
        outcomes = [outcome for batch in answers for outcome in batch]
        bad = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, InvalidInputError)}
        rows = [outcome for outcome in outcomes if not isinstance(outcome, InvalidInputError)]
        whole = (
            np.array(rows, np.float32).reshape(len(rows), -1) if rows else np.empty((0, self._picture.dim), np.float32)
        )
        vectors = {self._picture.name: cut_vectors(whole, self._picture.dim)}
        if bad:
            raise InvalidBatchError(bad, vectors)
        return vectors

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors per space; see `Encoder.encode_texts`."""
        vectors = {space.name: np.empty((len(texts), space.dim), np.float32) for space in self.spaces}
        names = [(protocol.text_model(space).upper(), protocol.tokens_tensor(space.name)) for space in self.spaces]
        for batch, outputs in self._ask_texts(texts, role, [name for pair in names for name in pair]):
            for space, (rows, counts) in zip(self.spaces, names):
                if role == "query":
                    room = self._deployment.rooms[space.name][role]
                    warn_truncated(space.name, outputs[counts][:, 0].tolist(), room, stacklevel=2)
                vectors[space.name][batch] = cut_vectors(outputs[rows].astype(np.float32, copy=False), space.dim)
        return vectors

    def text_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has; see `MeasuresTexts`.

        The server counts them, many texts in a request. A text that may be larger than a request is counted in
        stretches: a word that lies between two may be a token more.
        """
        apply_to_each(utf8_bytes, texts)
        longest = max(self._deployment.max_text_bytes // _UTF8_BYTES, 1)
        stretches = [
            (i, text[start : start + longest]) for i, text in enumerate(texts) for start in range(0, len(text), longest)
        ]
        counts, output = [0] * len(texts), protocol.tokens_tensor(self._text_space)
        for batch, outputs in self._ask_texts([stretch for _, stretch in stretches], "document", [output]):
            for place, count in zip(batch, outputs[output][:, 0].tolist()):
                counts[stretches[place][0]] += count
        return counts

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Return the image as it is sent: the bytes of its file for the server to decode, or a small upright one."""
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
        """Return what the server has, and its largest batch. BackendError if its models do not belong together."""
        config = self._connection.config(self._model)
        if protocol.DEPLOYMENT not in config.parameters:
            raise BackendError(f"{self._model} of Triton at {self._connection.address} was not made by vlmsearch")
        deployment = protocol.Deployment.from_json(config.parameters[protocol.DEPLOYMENT].string_value)
        for model, wanted in deployment.towers.items():
            have = self._connection.config(model).parameters[protocol.FINGERPRINT].string_value
            if have != wanted:
                raise BackendError(
                    f"{model} of Triton at {self._connection.address} is {have or 'of unknown origin'}, and "
                    f"{self._model} is made for {wanted}: make the repository again with `vlmsearch triton repo`"
                )
        return deployment, max(config.max_batch_size, 1)

    def _check_again(self) -> None:
        """After a failure: another server may be there now."""
        deployment, _ = self._look()
        if deployment.fingerprint != self._deployment.fingerprint:
            raise IndexMismatchError(
                f"Triton at {self._connection.address} served {self._deployment.fingerprint} and now serves "
                f"{deployment.fingerprint}: open it again, with an index that was built with that"
            )

    def _infer(
        self, model: str, inputs: dict[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        parameters: dict[str, str | bool] = {protocol.PARTIAL: True, protocol.FINGERPRINT: self._deployment.fingerprint}
        try:
            return self._connection.infer(model, inputs, outputs, parameters, on_recovery=self._check_again)
        except BackendError as exc:
            if protocol.MISMATCH in str(exc):
                self._check_again()
            raise

    def _ask_texts(
        self, texts: Sequence[str], role: Role, outputs: Sequence[str]
    ) -> Iterator[tuple[Sequence[int], dict[str, NDArray[Any]]]]:
        """Return the outputs of each batch of texts, and which texts these are."""
        encoded = apply_to_each(self._text_bytes, texts)
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        max_bytes = self._deployment.max_text_bytes
        planned = list(batches(order, [len(encoded[i]) for i in order], self._batch_size, total=max_bytes))

        def send(batch: Sequence[int]) -> dict[str, NDArray[Any]]:
            inputs = {protocol.TEXT: _strings([encoded[i] for i in batch])} | _role(role, len(batch))
            return self._infer(self._model, inputs, outputs)

        return zip(planned, self._pool.results(planned, send))

    def _text_bytes(self, text: str) -> bytes:
        """Return a text as it is sent."""
        encoded = utf8_bytes(text)
        if refused := protocol.texts_too_large(len(encoded), self._deployment.max_text_bytes):
            raise protocol.error_of(refused)
        return encoded

    def _send_images(self, images: Sequence[ImageSource]) -> list[Outcome]:
        """Return the vector of each image of a batch, or why it has none."""
        outcomes: dict[int, Outcome] = {}
        ready: dict[int, bytes | NDArray[np.uint8]] = {}
        for i, image in enumerate(images):
            try:
                ready[i] = self._bytes(image) if self._on_server else to_pixels(image, self._preprocess)
            except InvalidInputError as exc:
                outcomes[i] = exc
        if ready:
            rows = self._encode_bytes(ready) if self._on_server else self._encode_pixels(ready)
            outcomes |= dict(zip(ready, rows))
        return [outcomes[i] for i in range(len(images))]

    def _encode_bytes(self, ready: dict[int, bytes | NDArray[np.uint8]]) -> list[Outcome]:
        output = protocol.image_model(self._image_space).upper()
        outputs = self._infer(self._model, {protocol.IMAGE: _strings(list(ready.values()))}, (output, protocol.STATUS))
        statuses = [status.decode() for status in outputs[protocol.STATUS][:, 0]]
        return [protocol.error_of(status) if status else row for status, row in zip(statuses, outputs[output])]

    def _encode_pixels(self, ready: dict[int, bytes | NDArray[np.uint8]]) -> list[Outcome]:
        pixels = np.stack([np.asarray(image, np.uint8) for image in ready.values()])
        model = protocol.image_model(self._image_space)
        return list(self._infer(model, {protocol.PIXELS: pixels}, (protocol.EMBEDDING,))[protocol.EMBEDDING])

    @property
    def _image_space(self) -> str:
        return self._picture.name if self._picture else ""

    def _bytes(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
        """Return encoded bytes that the server takes. Of a decoded or too large image, these are its pixels."""
        if not isinstance(image, PIL.Image.Image):
            data = read_image(image, limits) if isinstance(image, Path) else image
            at_least, both = self._preprocess.at_least, (limits, self._deployment.image_limits)
            if all(is_within(data, bounds, at_least=at_least) for bounds in both):
                return data
            image = data
        out = BytesIO()
        PIL.Image.fromarray(to_pixels(image, self._preprocess, limits)).save(out, "PNG", compress_level=1)
        return out.getvalue()


def _role(role: Role, count: int) -> dict[str, NDArray[np.generic]]:
    """Return the input that says what texts are encoded as. None for documents, which they are without."""
    return {} if role == "document" else {protocol.ROLE: _strings([role.encode()] * count)}


def _strings(items: Sequence[object]) -> NDArray[np.object_]:
    """Return a column of BYTES."""
    column = np.empty((len(items), 1), np.object_)
    column[:, 0] = items
    return column
