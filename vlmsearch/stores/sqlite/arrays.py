"""The arrays of an index in a file beside it. All processes of a machine map it into their memory.

A cache: it holds nothing that the database does not, and may be deleted at any moment. A table of the database has
the random number of the file that belongs to it. So a file of another index, or of an older copy of this one, is never
taken for it. Within an epoch, rows are only added: a file stays right, and what was written since is read from the
database.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import VlmsearchError
from vlmsearch.stores.postings import Postings
from vlmsearch.stores.sqlite.codes import CodeBlock, CodeRows, CodeTable
from vlmsearch.types import Field

_MAGIC = b"vlmsearch arrays 1\n"
_ALIGNED = 64
_OF_CODES = ("numbers", "steps", "codes", "signs")
_OF_POSTINGS = ("rows", "lengths", "keys", "starts", "places", "times")


@dataclass(frozen=True)
class StoredArrays:
    """The arrays of a generation, or those of them that were needed.

    Attributes:
        token: The number that the database knows the file by.
        epoch: The epoch that its places belong to.
        codes: By field, the row that its codes go up to, and the codes.
        words: The row that the words go up to, and the postings; None for none.
    """

    token: str
    epoch: int
    codes: Mapping[Field, tuple[int, CodeTable]] = field(default_factory=dict)
    words: tuple[int, tuple[Postings, ...]] | None = None

    @property
    def last_row(self) -> int:
        """Return the last row that anything of it holds."""
        rows = [row for row, _ in self.codes.values()]
        return max([*rows, *([] if self.words is None else [self.words[0]])], default=0)

    def write(self, path: Path) -> None:
        """Write a file; OSError if that fails."""
        arrays: list[NDArray[Any]] = []
        end = 0

        def place(names: Sequence[str], of: CodeRows | Postings) -> dict[str, tuple[str, list[int], int]]:
            nonlocal end
            places = {}
            for name in names:
                array = np.ascontiguousarray(getattr(of, name))
                places[name] = array.dtype.str, list(array.shape), end
                arrays.append(array)
                end += array.nbytes + -array.nbytes % _ALIGNED
            return places

        fields = {
            str(field): (row, [place(_OF_CODES, block) for block in table.blocks()])
            for field, (row, table) in self.codes.items()
        }
        row, parts = self.words or (0, ())
        words = row, [(place(_OF_POSTINGS, part), sorted(part.languages)) for part in parts]
        header = json.dumps({"token": self.token, "epoch": self.epoch, "fields": fields, "words": words}).encode()
        start = _MAGIC + len(header).to_bytes(8, "little") + header
        with path.open("wb") as file:
            file.write(start + bytes(-len(start) % _ALIGNED))
            for array in arrays:
                file.write(array.data)
                file.write(bytes(-array.nbytes % _ALIGNED))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path, token: str, epoch: int, dims: Mapping[Field, int]) -> StoredArrays | None:
        """Map a file; None where there is none that belongs to the index."""
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            begin = len(_MAGIC) + 8
            end = begin + int.from_bytes(mapped[len(_MAGIC) : begin], "little")
            header = json.loads(mapped[begin:end]) if mapped[: len(_MAGIC)] == _MAGIC else {}
            if (header.get("token"), header.get("epoch")) != (token, epoch):
                return None
            start = end + -end % _ALIGNED

            def taken(names: Sequence[str], of: Mapping[str, tuple[str, list[int], int]]) -> list[NDArray[Any]]:
                placed = (of[name] for name in names)
                return [
                    np.frombuffer(mapped, dtype, math.prod(shape), start + at).reshape(shape)
                    for dtype, shape, at in placed
                ]

            codes = {}
            for asked in dims.keys() & {Field.parse(name) for name in header["fields"]}:
                row, places = header["fields"][str(asked)]
                blocks = [CodeRows(*taken(_OF_CODES, block)) for block in places]
                codes[asked] = row, CodeTable(dims[asked], tuple(CodeBlock(block, len(block)) for block in blocks))
            row, parts = header["words"]
            postings = tuple(
                Postings(*taken(_OF_POSTINGS, part), languages=frozenset(languages))  # type: ignore[misc, arg-type]
                for part, languages in parts
            )
            return cls(token, epoch, codes, (row, postings) if row else None)
        except (OSError, ValueError, KeyError, TypeError, VlmsearchError):
            return None
