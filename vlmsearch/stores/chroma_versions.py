"""What a documents' row in Chroma says about its document, and how versions are named: 16 characters each.

Where nobody else can write, the version of a document is a digest of its vectors and metadata, so that writing the
same again changes nothing. Where others can, every write has a version of its own, with an entry in the journal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vlmsearch.stores.chroma_filters import filterable
from vlmsearch.types import Record, Stamp


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
    return "d" + digest.hexdigest()[:15]
