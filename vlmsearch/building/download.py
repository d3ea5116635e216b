"""Files over HTTP, as the Hugging Face hub gives them: resumed after a cut, checked by their digests, kept once."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from vlmsearch._util.cancellation import check_cancelled, pause
from vlmsearch._util.credentials import check_unencrypted
from vlmsearch._util.locks import only_one
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import one_line
from vlmsearch.models.bundle import cache_folder
from vlmsearch.openai_api.http import is_packed, tls_context

_TIMEOUT_SECONDS, _FILE_TIMEOUT_SECONDS = 10.0, 30.0
"""Seconds without a byte, of what the hub says and of a file."""
_WINDOW_SECONDS = 60.0
"""Seconds of all that the hub says. A file grows by `_MIN_BYTES` meanwhile."""
_MIN_BYTES = 2**16
_TRIES = 6
"""Cuts of a download in a row without `_MIN_BYTES` between them."""
_PAUSE_SECONDS = 0.5
_BLOCK = 2**20
_MAX_JSON = 2**26
_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_PASSING = frozenset({429, *range(500, 600)})
"""Statuses after which the next try may help."""

Progress = Callable[[int, int], None]
"""Takes how many bytes of a file are here, and how many it has."""


@dataclass(frozen=True)
class Remote:
    """A file on a server, and the token of the user there; "" for none."""

    url: str
    token: str = ""


@dataclass(frozen=True)
class _Head:
    """A server's description of a file: its digest as the server names it, its size, and where it is."""

    digest: str
    size: int
    url: str
    token: str


def get_json(url: str, token: str = "") -> object:
    """Return the JSON at a URL.

    OSError where it cannot be had, ValueError where it is none or nested too deeply.
    """
    with _opened(url, token, timeout=_TIMEOUT_SECONDS) as answer:
        content = bytearray()
        for piece in answer.iter_raw():
            content += piece
            if len(content) > _MAX_JSON:
                raise ValueError(f"the answer has more than {_MAX_JSON:,} bytes")
    value: object = parse_json(bytes(content))
    return value


def download(remote: Remote, blobs: Path, target: Path, progress: Progress) -> int:
    """Put a file into ``blobs``, under its digest, and link to it at ``target``.

    A file that is there already is not downloaded again. Of two processes that want the same, one downloads it.

    Returns:
        The size of the file.

    Raises:
        OSError: The file cannot be had, is too slow or has no room. What came is kept for the next call.
        ValueError: It is not what its digest says, or longer than the server said.
    """
    head = _head(remote)
    blob = blobs / head.digest
    blobs.mkdir(parents=True, exist_ok=True)
    with only_one(cache_folder() / "downloads" / f"{head.digest}.lock"):
        if not blob.is_file():
            _fetch(head, blob, progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(blob, target)
    return blob.stat().st_size


def _fetch(head: _Head, blob: Path, progress: Progress) -> None:
    """Download a file beside its place, and put it there once it is whole."""
    partial = blob.with_name(f"{blob.name}.incomplete")
    partial.touch()
    tries, kept, grown = 0, 0, partial.stat().st_size
    free = shutil.disk_usage(partial.parent).free
    if head.size - grown > free:
        raise OSError(f"a file has {head.size:,} bytes, and {free:,} are free on the disk of {partial.parent}")
    while grown != head.size:
        reason, before, is_silent = "the connection was cut", grown, False
        try:
            _append(head, partial, grown, progress)
        except ConnectionError as exc:
            reason, is_silent = str(exc), isinstance(exc.__cause__, httpx.TimeoutException)
        grown = partial.stat().st_size
        if grown == head.size:
            break
        tries, kept = (0, grown) if grown >= kept + _MIN_BYTES else (tries + 1, kept)
        if tries >= _TRIES or (is_silent and grown <= before):
            raise OSError(f"{reason}; {grown:,} of {head.size:,} bytes are here, and the next try goes on from there")
        pause(_PAUSE_SECONDS * 2**tries)
    if _digest(partial, head.digest) != head.digest:
        partial.unlink()
        raise ValueError(f"{blob.name[:12]}... came damaged, and its digest is another; try again")
    os.replace(partial, blob)


def _append(head: _Head, partial: Path, begun: int, progress: Progress) -> None:
    """Add what the server sends from ``begun`` on. Nothing is kept of a file that is longer than the server said."""
    pace = _Pace()
    with _opened(head.url, head.token, begin=begun, pace=pace) as answer:
        part, length = (answer.headers.get(f"Content-{name}", "") for name in ("Range", "Length"))
        is_rest = bool(re.fullmatch(rf"bytes {begun}-\d+/({head.size}|\*)", part))  # some servers call it 200
        is_rest |= not part and answer.status_code == 206 and length == str(head.size - begun)
        if not is_rest and (part or answer.status_code in (206, 416)):
            os.truncate(partial, 0)
            raise ConnectionError("the server sent another part of the file than it was asked for")
        with partial.open("ab" if is_rest else "wb") as file:
            done = begun if is_rest else 0
            for block in answer.iter_raw():
                done += len(block)
                if done > head.size:
                    partial.unlink()
                    raise ValueError(f"the server sent more than the {head.size:,} bytes that it announced")
                if done // _MIN_BYTES > (done - len(block)) // _MIN_BYTES:
                    pace.end = time.monotonic() + _WINDOW_SECONDS
                file.write(block)
                progress(done, head.size)


def _head(remote: Remote) -> _Head:
    """Ask for a file's digest and size.

    The hub says both before it sends to the server that has the file.
    """
    url, token = remote.url, remote.token
    digest, size = "", -1
    for _ in range(_TRIES):
        with _opened(url, token, method="HEAD", redirects=False) as answer:
            given = answer.headers
            digest = digest or _plain(given.get("X-Linked-Etag") or given.get("ETag") or "")
            size = size if size >= 0 else int(given.get("X-Linked-Size") or -1)
            if not answer.has_redirect_location:
                size = size if size >= 0 else int(given.get("Content-Length") or -1)
                break
            following = urljoin(url, given["Location"])
            token = token if _may_have_token(url, following) else ""
            url = following
    if not _DIGEST.fullmatch(digest) or size < 0:
        raise ValueError(f"{remote.url}: the server says neither the file's digest nor its size")
    return _Head(digest, size, url, token)


def _may_have_token(url: str, following: str) -> bool:
    """Return whether the token goes along with a redirect: to the same server, encrypted where it was."""
    before, after = urlsplit(url), urlsplit(following)
    return before.netloc == after.netloc and after.scheme in ("https", before.scheme)


def _plain(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _digest(path: Path, like: str) -> str:
    """Return a file's SHA-256, or the id that git gives it where ``like`` is one."""
    digest = hashlib.sha256()
    if len(like) == 40:
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _headers(token: str) -> dict[str, str]:
    return {"User-Agent": "vlmsearch", "Accept-Encoding": "identity"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )


class _Pace:
    """The time until which a connection has to bring what it brings."""

    def __init__(self) -> None:
        self.end = time.monotonic() + _WINDOW_SECONDS

    def note(self, event: str, about: Mapping[str, Any]) -> None:
        """Limit the waits for a connection that httpx has opened."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = about["return_value"]
            stream.read = partial(self._read, stream.read)

    def _read(self, read: Callable[[int, float], bytes], max_bytes: int, timeout: float) -> bytes:
        check_cancelled()
        if time.monotonic() > self.end:
            raise TimeoutError(f"the server is too slow, and was given up after {_WINDOW_SECONDS:g} seconds")
        return read(max_bytes, timeout)


@contextmanager
def _opened(
    url: str,
    token: str = "",
    *,
    method: str = "GET",
    begin: int = 0,
    redirects: bool = True,
    timeout: float = _FILE_TIMEOUT_SECONDS,
    pace: _Pace | None = None,
) -> Iterator[httpx.Response]:
    """Send a request and give the answer.

    OSError where there is none, or it says that something is wrong: ConnectionError where the next try may help. A
    redirect to another host goes without the token.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url} is no address of a hub")
    if token and parts.scheme == "http":
        check_unencrypted("HF_TOKEN", parts.hostname or "", "give an https:// URL in HF_ENDPOINT")
    headers = _headers(token) | ({"Range": f"bytes={begin}-"} if begin else {})
    settings: dict[str, Any] = {"follow_redirects": redirects, "timeout": timeout, "verify": tls_context()}
    request: dict[str, Any] = {"headers": headers, "extensions": {"trace": (pace or _Pace()).note}}
    try:
        with httpx.Client(**settings) as client, client.stream(method, url, **request) as answer:
            if answer.is_error and not (begin and answer.status_code == 416):
                said = f"{answer.status_code} {answer.reason_phrase} for {url}"
                raise (ConnectionError if answer.status_code in _PASSING else OSError)(said)
            if is_packed(answer):
                raise ValueError("the server sent a compressed answer, which was not asked for")
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as exc:
        raise (ConnectionError if isinstance(exc, httpx.TransportError) else OSError)(one_line(exc)) from exc


def _link(blob: Path, target: Path) -> None:
    """Make a relative link, as huggingface_hub does, or a copy where links cannot be made."""
    if target.is_file():
        return
    target.unlink(missing_ok=True)
    try:
        target.symlink_to(os.path.relpath(blob, target.parent))
    except OSError:
        shutil.copyfile(blob, target)
