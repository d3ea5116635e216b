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
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from vlmsearch._util.locks import only_one
from vlmsearch.models.bundle import cache_folder

_TIMEOUT_SECONDS, _FILE_TIMEOUT_SECONDS = 10.0, 30.0
"""Seconds without a byte, of what the hub says and of a file."""
_TRIES = 6
"""Cuts of a download in a row without a byte between them."""
_PAUSE_SECONDS = 0.5
_BLOCK = 2**20
_MAX_JSON = 2**26
_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_REDIRECTS = (301, 302, 303, 307, 308)

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
        content = answer.read(_MAX_JSON + 1)
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
        except (OSError, HTTPException) as exc:
            if isinstance(exc, HTTPError) and exc.code < 500 and exc.code != 429:
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
        is_rest = answer.status == 206
        with partial.open("ab" if is_rest else "wb") as file:
            done = begun if is_rest else 0
            while block := answer.read(_BLOCK):
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
            if answer.status not in _REDIRECTS:
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


class _Redirects(HTTPRedirectHandler):
    """A handler of redirects, which sends no token to another host.

    Redirects are given as answers where ``follow`` is false.
    """

    def __init__(self, *, follow: bool) -> None:
        self._follow = follow

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl) if self._follow else None
        if request is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request


@contextmanager
def _opened(
    url: str,
    token: str = "",
    *,
    method: str = "GET",
    begin: int = 0,
    redirects: bool = True,
    timeout: float = _FILE_TIMEOUT_SECONDS,
) -> Iterator[HTTPResponse | HTTPError]:
    """Send a request and give the answer.

    OSError where there is none, or it says that something is wrong.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url} is no address of a hub")
    headers = _headers(token) | ({"Range": f"bytes={begin}-"} if begin else {})
    request = Request(url, method=method, headers=headers)  # noqa: S310 - of the two schemes
    try:
        answer = build_opener(_Redirects(follow=redirects)).open(request, timeout=timeout)
    except HTTPError as exc:
        if redirects or exc.code not in _REDIRECTS:
            exc.close()
            raise
        answer = exc
    except HTTPException as exc:
        raise OSError(f"{type(exc).__name__}: {exc}") from exc
    with answer:
        yield answer


def _link(blob: Path, target: Path) -> None:
    """Make a relative link, as huggingface_hub does, or a copy where links cannot be made."""
    if target.is_file():
        return
    target.unlink(missing_ok=True)
    try:
        target.symlink_to(os.path.relpath(blob, target.parent))
    except OSError:
        shutil.copyfile(blob, target)
