"""Files over HTTP, as the Hugging Face hub gives them: resumed after a cut, checked by their digests, kept once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from vlmsearch._util.locks import only_one
from vlmsearch.errors import one_line
from vlmsearch.models.bundle import cache_folder
from vlmsearch.openai_api.http import tls_context

_TIMEOUT_SECONDS, _FILE_TIMEOUT_SECONDS = 10.0, 30.0
"""Seconds without a byte, of what the hub says and of a file."""
_TRIES = 6
"""Cuts of a download in a row without a byte between them."""
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

    OSError where it cannot be had, ValueError where it is none.
    """
    with _opened(url, token, timeout=_TIMEOUT_SECONDS) as answer:
        content = bytearray()
        for piece in answer.iter_raw():
            content += piece
            if len(content) > _MAX_JSON:
                raise ValueError(f"the answer has more than {_MAX_JSON:,} bytes")
    value: object = json.loads(content)
    return value


def download(remote: Remote, blobs: Path, target: Path, progress: Progress) -> int:
    """Put a file into ``blobs``, under its digest, and link to it at ``target``.

    A file that is there already is not downloaded again. Of two processes that want the same, one downloads it.

    Returns:
        The size of the file.

    Raises:
        OSError: The file cannot be had.
        ValueError: It is not what its digest says.
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
    tries, reason = 0, ""
    while (begun := partial.stat().st_size) != head.size:
        if begun > head.size:
            os.truncate(partial, 0)
            continue
        try:
            _append(head, partial, begun, progress)
            reason = "the connection was cut"
        except OSError as exc:
            if isinstance(exc.__cause__, httpx.HTTPStatusError) and exc.__cause__.response.status_code not in _PASSING:
                raise
            reason = str(exc)
        grown = partial.stat().st_size
        if grown == head.size:
            break
        tries = 0 if grown > begun else tries + 1
        if tries >= _TRIES:
            raise OSError(f"{reason}; {grown:,} of {head.size:,} bytes are here, and the next try goes on from there")
        time.sleep(_PAUSE_SECONDS * 2**tries)
    if _digest(partial, head.digest) != head.digest:
        partial.unlink()
        raise ValueError(f"{blob.name[:12]}... came damaged, and its digest is another; try again")
    os.replace(partial, blob)


def _append(head: _Head, partial: Path, begun: int, progress: Progress) -> None:
    """Add what the server sends from ``begun`` on."""
    with _opened(head.url, head.token, begin=begun) as answer:
        is_rest = answer.status_code == 206
        with partial.open("ab" if is_rest else "wb") as file:
            done = begun if is_rest else 0
            for block in answer.iter_raw():
                file.write(block)
                done += len(block)
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
            if urlsplit(following).netloc != urlsplit(url).netloc:
                token = ""  # which is for the hub alone
            url = following
    if not _DIGEST.fullmatch(digest) or size < 0:
        raise ValueError(f"{remote.url}: the server says neither the file's digest nor its size")
    return _Head(digest, size, url, token)


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


@contextmanager
def _opened(
    url: str,
    token: str = "",
    *,
    method: str = "GET",
    begin: int = 0,
    redirects: bool = True,
    timeout: float = _FILE_TIMEOUT_SECONDS,
) -> Iterator[httpx.Response]:
    """Send a request and give the answer.

    OSError where there is none, or it says that something is wrong. A redirect to another host goes without the token.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url} is no address of a hub")
    headers = _headers(token) | ({"Range": f"bytes={begin}-"} if begin else {})
    settings: dict[str, Any] = {"follow_redirects": redirects, "timeout": timeout, "verify": tls_context()}
    try:
        with httpx.stream(method, url, headers=headers, **settings) as answer:
            if answer.is_error:
                answer.raise_for_status()
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as exc:
        raise OSError(one_line(exc)) from exc


def _link(blob: Path, target: Path) -> None:
    """Make a relative link, as huggingface_hub does, or a copy where links cannot be made."""
    if target.is_file():
        return
    target.unlink(missing_ok=True)
    try:
        target.symlink_to(os.path.relpath(blob, target.parent))
    except OSError:
        shutil.copyfile(blob, target)
