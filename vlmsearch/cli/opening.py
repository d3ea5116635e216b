"""The options that name an index, and how commands open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.common import (
    PlainText,
    add_options,
    encoder_option,
    limits_option,
    need_manifest,
    option,
    store_option,
    url_option,
)
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.registry import DEFAULT_GENERATOR
from vlmsearch.types import Document, RemoteImage

if TYPE_CHECKING:
    from vlmsearch.client import RemotePipeline
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.index import Index
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.stores.base import Store

OWN_RERANKER = "server"
"""The value of --rerank that asks for the re-ranker of --server."""
_PICTURE_EDGE = 720
"""The longer side of images from a server, in pixels."""
_OPTIONS = {
    "store": store_option,
    "encoder": encoder_option,
    "generator": url_option(
        "generator",
        "--generator",
        default=DEFAULT_GENERATOR,
        show_default=True,
        help="Generator of the answer.",
    ),
    "image_limits": limits_option(DEFAULT_LIMITS),
    "quiet": option("--quiet", is_flag=True, help="Print no note on scores that are not calibrated."),
    "principals": option(
        "--principals",
        multiple=True,
        type=PlainText(),
        metavar="NAME",
        has_variable=False,  # one that is lost would open everything
        help="Show only what this reader may read, such as user:ann or group:hr. May be given several times. No "
        "environment variable sets it.",
    ),
    "server": add_options(
        [
            option(
                "--server",
                metavar="URL",
                help="URL of a `vlmsearch serve`. VLMSEARCH_TOKEN holds the token.",
            ),
            option("--index", default="default", show_default=True, metavar="NAME", help="The index on the server."),
        ]
    ),
}


@dataclass(frozen=True)
class IndexChoice:
    """The index that a command line names: in a store, or on a server."""

    store: str
    encoder: str | None = None
    generator: str | None = None
    image_limits: ImageLimits = DEFAULT_LIMITS
    server: str | None = None
    index: str = ""
    quiet: bool = False
    principals: tuple[str, ...] = ()

    @contextmanager
    def open(self) -> Iterator[Index]:
        """Open the index, which must exist."""
        if self.server:
            with self.connect() as remote:
                yield remote
        else:
            with self.open_here() as pipeline:
                yield pipeline

    def connect(self) -> RemotePipeline:
        """Connect to the server."""
        from vlmsearch.client import connect

        remote = connect(self.server or "", index=self.index)
        return remote.restricted(self.principals) if self.principals else remote

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Open the store of an index, which must exist."""
        from vlmsearch.registry import open_store

        with open_store(self.store) as store:
            need_manifest(store)
            if self.principals:
                from vlmsearch.stores.readers import readable
                from vlmsearch.stores.restricted import restricted_store

                yield restricted_store(store, readable(self.principals))
            else:
                yield store

    @contextmanager
    def open_here(self, *, create: bool = False, seen: Sequence[str | Path] = ()) -> Iterator[Pipeline]:
        """Open a pipeline on the index, which must exist without ``create``.

        The encoder is by default the one that built the index. One that must be built first is calibrated on what is
        ``seen`` of the images and texts to index.
        """
        from vlmsearch.pipeline import Pipeline
        from vlmsearch.registry import open_generator, open_store, open_usual_encoder

        with ExitStack() as stack:
            store = stack.enter_context(open_store(self.store))
            manifest = store.manifest() if create else need_manifest(store)
            opening = partial(_built_encoder, calibrate=[path for path in seen if isinstance(path, Path)])
            encoder = stack.enter_context(open_usual_encoder(self.encoder, store.name, manifest, opening))
            generator = stack.enter_context(open_generator(self.generator)) if self.generator else None
            pipeline = Pipeline(encoder, store, generator, image_limits=self.image_limits)
            yield pipeline.restricted(self.principals) if self.principals else pipeline

    def search_keywords(self, options: Mapping[str, Any]) -> Any:
        """Return the options of a search as `Index.search` takes them."""
        return {**options, "rerank": self.reranker(options["rerank"])}

    def reranker(self, url: str | None) -> str | bool:
        """Return the value of ``rerank=``: the URL of a re-ranker, or whether the server uses its re-ranker."""
        if not self.server:
            return url or False
        if url not in (None, OWN_RERANKER):
            raise click.UsageError(f"a server uses its own re-ranker: give --rerank {OWN_RERANKER}")
        return url is not None


def _built_encoder(url: str, calibrate: Sequence[Path]) -> Encoder:
    """Open an encoder. The models of an embedded one that are not built yet are built first."""
    from vlmsearch.models.bundle import find_bundles
    from vlmsearch.registry import Url, open_encoder

    parts = Url.parse(url, "encoder")
    if parts.scheme == "onnx" and calibrate:
        find_bundles(parts.location, calibrate)
    return open_encoder(url)


def index_options(*names: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a decorator that adds --store and other options of an index: the function gets ``chosen``."""

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def wrapper(*args: object, **kwargs: Any) -> object:
            keys = ("store", *names, *(["index"] if "server" in names else []))
            given = {name: kwargs.pop(name) for name in keys}
            if given.get("server") and not _is_server_asked(given):
                del given["server"]
            return function(*args, chosen=IndexChoice(**given), **kwargs)

        return add_options([_OPTIONS[name] for name in ("store", *names)])(wrapper)

    return decorate


def _is_server_asked(given: Mapping[str, object]) -> bool:
    """Check whether a server is used: --store and the like override a server in the environment."""
    context = click.get_current_context()

    def on_command_line(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    names = [name for name in given if name not in ("server", "index", "quiet", "principals")]
    local = [f"--{name.replace('_', '-')}" for name in names if on_command_line(name)]
    if local and on_command_line("server"):
        raise click.UsageError(f"a server has its own settings: leave out {' and '.join(local)}")
    return not local


def with_picture(index: Index, document: Document) -> Document:
    """Return a document with its image here: for an image elsewhere, a smaller one as bytes."""
    image = document.image
    if isinstance(image, RemoteImage) or (isinstance(image, Path) and remote_url(image)):
        with suppress(InvalidInputError):
            return replace(document, image=index.thumbnail(document.id, size=_PICTURE_EDGE))
    return document
