"""Duplicate images of an index: what vectors put side by side and pixels confirm.

The store finds the nearest images of each image by their vectors. So a few pairs are compared for each image, however
many there are. Vectors alone cannot tell a duplicate with a frame from another picture of the same things, so
the files of each pair are compared: see `vlmsearch.media.duplicates`. Pages of documents look alike at that size, so
pages with texts have to say the same as well. Two groups become one where two pairs agree.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.media.duplicates import Sketch, is_duplicate, look_at, placements
from vlmsearch.media.images import file_of, image_size
from vlmsearch.media.limits import ImageLimits
from vlmsearch.search.fusion import image_fields
from vlmsearch.search.options import DuplicatesRequest
from vlmsearch.search.relevance import Judge
from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.terms import plain_words
from vlmsearch.types import (
    Document,
    DuplicateGroup,
    Duplicates,
    Field,
    ImageFile,
    Record,
    document_of,
    file_of_part,
    part_of,
)

_NEIGHBOURS = 50
"""Number of nearest images that an image is compared with."""
_SECONDS = 4
"""Number of pairs of each group that are compared before two groups are joined."""
_SAME_WORDS = 0.8
"""The share of common words of two pages from which they say the same."""
_PAGE = 256
_SKETCHES, _LOOKS = 2048, 512
"""Numbers of sketches with their hashes, and of looks, that are kept in memory: 100 MiB and 60 MiB."""


def find_duplicates(judge: Judge, options: DuplicatesRequest, image_limits: ImageLimits) -> Duplicates:
    """Return the groups of duplicate images."""
    store = judge.store
    fields = [field for field in image_fields(judge.encoder.spaces) if field.modality == "image"]
    if not fields:
        raise ConfigError(f"{judge.encoder.fingerprint} encodes no images: there is nothing to compare")
    condition = options.condition
    files, groups, done = _Files(store, image_limits), _Groups(), 0
    ids = sorted(store.ids())
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="vlmsearch-look") as workers:
        for start in range(0, len(ids), _PAGE):
            check_cancelled()
            page = ids[start : start + _PAGE]
            records = [
                record
                for record in store.records(page)
                if condition is None or condition.matches(record.document.metadata)
            ]
            shown = [record for record in records if any(field in record.vectors for field in fields)]
            pairs = _near(store, fields, shown, condition, options.threshold)
            near = {id for pair in pairs for id in pair} - {record.document.id for record in shown}
            documents = [record.document for record in shown]
            documents += store.get(sorted(id for id in near if not files.knows(id)))
            list(workers.map(files.add, documents))
            for id, other in pairs:
                check_cancelled()
                if other not in groups.of(id) and _belong_together(files, groups, id, other):
                    groups.join(id, other)
            done += len(page)
            if options.on_progress:
                options.on_progress(done)
    duplicates = [DuplicateGroup(tuple(files.measured(members))) for members in groups.members()]
    duplicates.sort(key=lambda group: (-len(group.files), group.files[0].id))
    return Duplicates(tuple(duplicates), len(files.sketches), tuple(sorted(files.unread.items())))


def _belong_together(files: _Files, groups: _Groups, id: str, other: str) -> bool:
    """Return whether two images are duplicates.

    A second pair of their groups, if there is any, has to agree. One wrong pair would otherwise make duplicates of all
    that is in the two groups.
    """
    if not files.are_duplicates(id, other):
        return False
    group, others = groups.of(id), groups.of(other)
    if len(group) == len(others) == 1:
        return True
    seconds = [(id, member) for member in others if member != other][:_SECONDS]
    seconds += [(member, other) for member in group if member != id][:_SECONDS]
    return any(files.are_duplicates(*pair) for pair in seconds)


def _near(
    store: Store, fields: Sequence[Field], records: Sequence[Record], condition: Filter | None, threshold: float
) -> list[tuple[str, str]]:
    """Return the pairs of documents that are near in a field, the nearest first.

    Parts of one file are no pair.
    """
    cosines: dict[tuple[str, str], float] = {}
    for field in fields:
        having = [record for record in records if field in record.vectors]
        if not having:
            continue
        vectors = np.stack([record.vectors[field] for record in having])
        hits = store.search(field, vectors, limit=_NEIGHBOURS + 1, where=condition)
        for record, near in zip(having, hits):
            id = record.document.id
            others = {document_of(hit.id): hit.score for hit in near if file_of_part(hit.id) != file_of_part(id)}
            pairs = {(min(id, other), max(id, other)): cosine for other, cosine in others.items()}
            cosines |= {pair: cosine for pair, cosine in pairs.items() if cosine >= threshold}
    return sorted(cosines, key=lambda pair: -cosines[pair])


class _Files:
    """The image files of documents: sketches of all, in a KiB each, and the rest as it is needed."""

    def __init__(self, store: Store, limits: ImageLimits) -> None:
        self._store = store
        self._limits = limits
        self.paths: dict[str, Path] = {}
        self.sketches: dict[str, bytes] = {}
        self.unread: dict[str, str] = {}
        self._sketch = lru_cache(_SKETCHES)(lambda id: Sketch(self.sketches[id]))
        self._words = lru_cache(_LOOKS)(self._read_words)
        self._look = lru_cache(_LOOKS)(lambda id: look_at(self.paths[id], self._limits))

    def knows(self, id: str) -> bool:
        """Return whether a document was added."""
        return id in self.sketches or id in self.unread

    def add(self, document: Document) -> None:
        """Read the image of a document, if that is not known yet."""
        id, path = document.id, document.image
        part = part_of(str(path))
        if self.knows(id) or (part is not None and part.of == id):  # a file shows one of its parts, which is compared
            return
        if not isinstance(path, Path):
            self.unread[id] = f"{id}: the index does not keep its image, which was not a file"
            return
        self.paths[id] = path
        try:
            self.sketches[id] = look_at(path, self._limits).sketch.grey
        except InvalidInputError as exc:
            self.unread[id] = str(exc)

    def are_duplicates(self, id: str, other: str) -> bool:
        """Return whether the images of two documents are duplicates."""
        if id not in self.sketches or other not in self.sketches:
            return False
        ways = placements(self._sketch(id), self._sketch(other))
        try:
            looks_same = bool(ways) and is_duplicate(self._look(id), self._look(other), ways)
        except InvalidInputError:  # changed since it was added
            return False
        return looks_same and not self._say_different(id, other)

    def _say_different(self, id: str, other: str) -> bool:
        """Return whether two documents are pages with different texts."""
        words, others = self._words(id), self._words(other)
        return bool(words and others) and (words & others).total() < _SAME_WORDS * (words | others).total()

    def _read_words(self, id: str) -> Counter[str]:
        """Return the words of a page.

        Another document has none, for its text is not in its picture.
        """
        part = part_of(id)
        if part is None or part.page is None:
            return Counter()
        return Counter(word for document in self._store.get([id]) for word in plain_words(document.text or ""))

    def measured(self, ids: Collection[str]) -> list[ImageFile]:
        """Return the files of documents, the largest first."""
        files = [_measured(id, self.paths[id], self._limits) for id in ids]
        return sorted(files, key=lambda file: (-file.width * file.height, -file.bytes, file.id))


def _measured(id: str, path: Path, limits: ImageLimits) -> ImageFile:
    try:
        width, height = image_size(path, limits)
        stat = file_of(path).stat()
    except (InvalidInputError, OSError):  # gone since it was compared
        return ImageFile(id, path, 0, 0, 0, 0.0)
    return ImageFile(id, path, width, height, stat.st_size, stat.st_mtime)


class _Groups:
    """Images that are duplicates, each in a list with the others of its group."""

    def __init__(self) -> None:
        self._lists: dict[str, list[str]] = {}

    def of(self, id: str) -> list[str]:
        """Return the group of an image, which may be alone in it."""
        return self._lists.setdefault(id, [id])

    def join(self, id: str, other: str) -> None:
        """Make one group of those of two images."""
        small, large = sorted((self.of(id), self.of(other)), key=len)
        large += small
        self._lists.update(dict.fromkeys(small, large))

    def members(self) -> list[list[str]]:
        """Return the groups of more than one."""
        return [group for id, group in self._lists.items() if len(group) > 1 and group[0] == id]
