"""What a documents' row in Chroma says about its document, and how versions are named: 16 characters each.

Where nobody else can write, the version of a document is a digest of its vectors and metadata, so that writing the
same again changes nothing. Where others can, every write has a version of its own, which tells when it began: a writer
never removes what another one is about to name, only versions that it has itself replaced, or so old that their writer
must be gone.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vlmsearch.retry import PATIENCE
from vlmsearch.stores.chroma_filters import filterable
from vlmsearch.types import Record, Stamp

_DIGEST, _TIMED = "d", "t"


@dataclass(frozen=True)
class State:
    """What the documents' row says beside the document itself: its stamp, version and fields."""

    stamp: Stamp
    version: str
    fields: tuple[str, ...]

    def dump(self) -> str:
        """As it is kept."""
        return json.dumps([self.stamp.digest, self.stamp.source, self.version, self.fields])

    @classmethod
    def load(cls, metadata: Mapping[str, str]) -> State:
        """What `dump` gave."""
        digest, source, version, fields = json.loads(metadata["state"])
        return cls(Stamp(digest, source), version, tuple(fields))


def digest_version(record: Record) -> str:
    """The version of a record by its content."""
    digest = hashlib.blake2b(digest_size=8)
    for field in sorted(record.vectors, key=str):
        digest.update(str(field).encode())
        digest.update(np.ascontiguousarray(record.vectors[field], "<f4").tobytes())
    digest.update(json.dumps(filterable(record.document.metadata), sort_keys=True).encode())
    return _DIGEST + digest.hexdigest()[:15]


def timed_version() -> str:
    """A version that no other write has, and that tells the time."""
    return f"{_TIMED}{int(time.time()):08x}{secrets.token_hex(4)[:7]}"


def is_abandoned(version: str) -> bool:
    """Whether the write of a version that nobody names began so long ago that it was cut off."""
    return version.startswith(_TIMED) and time.time() - int(version[1:9], 16) > PATIENCE.total_seconds()
