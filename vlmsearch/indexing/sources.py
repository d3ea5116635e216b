"""Where documents come from: folders, files, globs, and tables in JSONL, CSV, Parquet or tar.

========================  ==========================================================================================
a folder                  every image and text file below it, hidden ones left out; the id is the absolute path. A
                          link to a file is that file, wherever it is, unless `SourceOptions.follow_links` is off;
                          links to folders are left out
a file, a glob            the same for each file
``.pdf``                  a document a page, whose id ends in ``#page=3``; and one for the whole file, by its path
``.tif``                  the same, of several pages
films                     a document a scene, whose id ends in ``#t=12.480``; and one for the whole film
``.docx`` ``.html`` ...   their text
``.eml`` ``.msg``         a document a mail; and one an attachment, whose id ends in ``#attachment=2``
``.mbox``                 a document a message, whose id ends in ``#message=3``; one an attachment of it
                          (``#message=3&attachment=2``); and one for the whole mailbox
``.jsonl`` ``.csv``       a row a document: ``id``, ``text``, ``image`` (relative to the table); the rest is metadata
``.tsv``                  the same, with tabs between the cells; CSV may have semicolons, tabs or ``|``, too
``.parquet``              the same; ``image`` may also hold the bytes of an image, alone or as ``{"bytes": ...}``
``.tar``                  a sample a document, as WebDataset has them: files of one name up to the first dot;
                          ``.json`` holds metadata; the id is the path of the tar, a slash and the name
``s3://`` ``gs://``       each of these in object storage; the id of a file is its URL
========================  ==========================================================================================

Of a folder, PDF files, films, office documents and mails are taken with their option in `SourceOptions`. A file that is
named, by itself or by a glob, is taken without it.

Texts, CSV and TSV are read in any character set: UTF-8, or one of `vlmsearch.media.decoding`. Front matter of Markdown
is metadata.

Front matter and the column ``readers`` of a table name who may read a document: one name, or a list of them. A cell of
CSV has such a list with semicolons or as JSON. They count unless `SourceOptions.readers` names others.

A row without an id has that of its image, or the digest of its text. Empty cells and nulls are left out; in CSV,
numbers, ``true`` and ``false`` are read as such. An index of pandas without a name is left out. Columns may have other
names: see `SourceOptions.columns`. A table may name images anywhere on this machine; those in object storage are read
only where they are beside or below the table, or where `ImageLimits.remote` says so.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, Union

from vlmsearch._util.arguments import check_kind, paths as path_list
from vlmsearch._util.batching import batches
from vlmsearch._util.files import expand_home
from vlmsearch._util.isolation import call
from vlmsearch._util.messages import Bytes
from vlmsearch._util.plain import CONTROLS, plain_text
from vlmsearch._util.unread import ranked, unread_in, with_unread
from vlmsearch.errors import BackendError, ConfigError, InvalidInputError
from vlmsearch.indexing.columns import RESERVED, Columns
from vlmsearch.indexing.containers import CONTAINER_SUFFIXES, ContainerFormat, container, kind_of
from vlmsearch.indexing.front_matter import front_matter
from vlmsearch.indexing.given import row_parts
from vlmsearch.indexing.items import (
    NO_OPTIONS,
    Container,
    Item,
    PartItem,
    ReadOptions,
    SourceDocument,
    SourceOptions,
    with_readers,
)
from vlmsearch.indexing.reading import reading_of, received, sent
from vlmsearch.indexing.tables import Row, count_rows, read_rows, row_word
from vlmsearch.media.about import About
from vlmsearch.media.decoding import COLOURS, STRAY, decoded, language_of
from vlmsearch.media.files import read_regular
from vlmsearch.media.images import IMAGE_SUFFIXES, format_of
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits, process_limits
from vlmsearch.media.remote import is_remote_folder, list_remote, match_remote, remote_url
from vlmsearch.media.video import SUBTITLE_SUFFIXES, VIDEO_SUFFIXES
from vlmsearch.stores.base import Store
from vlmsearch.types import READERS, Document, Reject, Stamp, part_of, reader_names

TEXT_SUFFIXES = frozenset({".txt", ".md"})
TABLE_SUFFIXES = frozenset({".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".tar"})
_SUFFIXES = IMAGE_SUFFIXES | TEXT_SUFFIXES | CONTAINER_SUFFIXES
_NO_ENDING, _OTHER = "(none)", "(other)"
_MAX_ENDING, _MAX_ENDINGS = 12, 1_000
"""Characters of an ending, and endings that are counted. What is behind the last dot of a long name is no ending."""
_FILES = 64
"""Files that are read as one unit."""
_ODD = re.compile(rf"{CONTROLS.pattern}|%(?=[01][0-9A-F]|25|7F|[89A-F][0-9A-F])")
"""Characters that are escaped in the id of a file: those that no id has, and a % that could be an escape."""
_ESCAPED = re.compile(rb"%([01][0-9A-F]|25|7F|[89A-F][0-9A-F])")
_FileEntry: TypeAlias = Union[str, "tuple[str, OSError]"]
Unit: TypeAlias = Union["tuple[str | Reject, ...]", str]
"""Some files, and folders that cannot be listed, or a table."""


class Paths:
    """The documents in files, folders and tables, for `Pipeline.index`.

    Iterating reads; every iteration starts afresh. Inputs that cannot be read come as a Reject.

    Args:
        paths: Folders, files, globs and tables.
        options: What is taken of files.
        limits: What reading a table may take.
        prune_empty: Let the files of a folder that has none count as gone. Otherwise its disk counts as not mounted.

    Raises:
        ConfigError: A path does not exist, a glob matches nothing, or a table is not a file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "note.txt").write_text("a dog in the snow")
        ...     [item.document.text for item in Paths([folder])]
        ['a dog in the snow']
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        options: SourceOptions = NO_OPTIONS,
        limits: ImageLimits = DEFAULT_LIMITS,
        prune_empty: bool = False,
    ) -> None:
        paths = path_list("paths", paths)
        check_kind("options", options, SourceOptions, "SourceOptions")
        if not paths:
            raise ConfigError("name at least one folder, file, glob or table")
        self.given = tuple(paths)
        self.options = options
        self._limits = limits
        self._prune_empty = prune_empty
        self.folders: list[str] = []
        self.tables: list[str] = []
        self._files: list[str] = []
        self._listed: dict[str, list[_FileEntry]] = {}
        """The entries of folders that `__len__` listed, for the iteration after it."""
        self._unread: set[str] = set()
        self._left_out: set[str] = set()
        """Files in the folders that another option takes; nothing that came from them counts as gone."""
        self._others: dict[str, Counter[str]] = {}
        """The files in each folder that nothing takes, by ending."""
        self._index: tuple[str, ...] = ()
        for path in self.given:
            self._take(path)

    def _take(self, path: str | Path, *, is_named: bool = True) -> None:
        if url := remote_url(path):
            self._take_remote(url)
            return
        name = os.path.abspath(expand_home(path))
        if os.path.isdir(name):
            self.folders.append(name)
        elif _exists(name):
            is_table = _is_table(name)
            is_odd = os.path.exists(name) and not os.path.isfile(name)
            if is_table and is_odd and is_named:
                raise ConfigError(f"{name!r} is a pipe, a socket or a device; a table is a file")
            (self.tables if is_table and not is_odd else self._files).append(name)
        elif glob.has_magic(name):
            names = sorted(glob.glob(name, recursive=True))
            if not names:
                raise ConfigError(f"nothing matches {str(path)!r}")
            for match in names:
                self._take(Path(glob.escape(match) if not os.path.lexists(match) else match), is_named=False)
        else:
            raise ConfigError(f"no such file or folder: {str(path)!r}")

    def _take_remote(self, url: str) -> None:
        try:
            if is_remote_folder(url):
                self.folders.append(url.rstrip("/"))
                return
            urls = match_remote(url)
        except OSError as exc:
            raise BackendError(f"{url} cannot be looked for: {exc.strerror or exc}") from exc
        if not urls:
            raise ConfigError(f"no such file or folder, and nothing matches: {url!r}")
        for match in urls:
            (self.tables if _is_table(match) else self._files).append(match)

    def files(self) -> Iterator[_FileEntry]:
        """Iterate over the names of the files that are taken from the folders.

        Returns:
            Absolute names; for a folder that cannot be listed, its name and the error.
        """
        for folder in self.folders:
            yield from self._walk(folder)

    def takes(self, name: str) -> bool:
        """Return whether a file is one of `files`.

        Args:
            name: Its absolute name.

        Returns:
            True where it is there and listing the folders gives it.
        """
        folder = next((root for root in self.folders if _is_in(name, root)), None)
        if folder is None or not os.path.lexists(name) or os.path.isdir(name):
            return False
        parts = os.path.relpath(name, folder).split(os.sep)
        below = [os.path.join(folder, *parts[:count]) for count in range(1, len(parts) + 1)]
        links = below[:-1] if self.options.follow_links else below
        is_hidden = any(part.startswith(".") for part in parts)
        kind = kind_of(name)
        is_taken = Path(name).suffix.lower() in _SUFFIXES and (kind is None or kind.is_wanted(self.options))
        return is_taken and not is_hidden and not any(map(os.path.islink, links))

    def only(self, names: Iterable[str]) -> Paths:
        """Return some of the files as paths to index.

        Args:
            names: Their absolute names, as of `files`; those that are gone by the time they are read come as a Reject.

        Returns:
            The paths, which are read as these would be.
        """
        some = copy(self)
        vars(some).update(
            _files=list(names), folders=[], tables=[], _listed={}, _table_ids=frozenset(), _left_out=set(), _others={}
        )
        return some

    def __len__(self) -> int:
        """Return the number of documents.

        Rows of tables are read for it; images and texts are not.
        """
        self._listed = {folder: list(self._walk(folder)) for folder in self.folders}
        files = len(self._files) + sum(map(len, self._listed.values()))
        return files + sum(_count_rows(table, self.options, self._limits) for table in self.tables)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the documents in a stable order.

        What cannot be read as one comes as a Reject.
        """
        for unit in self.units():
            for item in read_unit(unit, self.options, self._limits):
                if isinstance(item, Reject):
                    self.note(item)
                yield item

    def units(self) -> Iterator[tuple[str | Reject, ...] | str]:
        """Iterate over what is to be read in a stable order, to read it elsewhere: see `read_unit` and `note`.

        Returns:
            Tables, and tuples of files among which are folders that cannot be listed.
        """
        self._unread = set()
        listed, self._listed = self._listed, {}
        yield from map(tuple, batches(self._files, _FILES))
        for folder in self.folders:
            entries = listed.get(folder) or self._walk(folder)
            files = (entry if isinstance(entry, str) else self._skip(*entry) for entry in entries)
            yield from map(tuple, batches(files, _FILES))
        yield from self.tables

    def note(self, reject: Reject) -> None:
        """Take notice of what `read_unit` rejected: nothing that came from a table which was not read counts as gone.

        Args:
            reject: Any that it gave.
        """
        if reject.id in self._table_ids:
            self._unread.add(reject.id)

    def _walk(self, folder: str) -> Iterator[_FileEntry]:
        """Yield what is taken of a folder."""
        others = Counter[str]()
        is_counted = not any(_is_in(folder, other) for other in self.folders if other != folder)
        self._others[folder] = others if is_counted else Counter()
        films, subtitles = set[str](), list[str]()
        for entry in self._entries(folder):
            if not isinstance(entry, str):
                yield entry
                continue
            stem, suffix = os.path.splitext(entry)
            suffix = suffix.lower()
            if suffix in VIDEO_SUFFIXES:
                films.add(stem.lower())
            if self.options.video and suffix in SUBTITLE_SUFFIXES:
                subtitles.append(entry)
            elif suffix not in _SUFFIXES:
                others[_ending(suffix, others)] += not self._is_of_index(entry)
            elif (kind := kind_of(entry)) is None or kind.is_wanted(self.options):
                yield entry
            else:
                self._left_out.add(_escape(entry))
        for entry in subtitles:
            is_read = any(entry[: dot.start()].lower() in films for dot in re.finditer(r"\.", entry))  # with its film
            others[_ending(os.path.splitext(entry)[1].lower(), others)] += not is_read

    def _entries(self, folder: str) -> Iterator[_FileEntry]:
        """Yield all files below a folder, and what cannot be listed."""
        return _walk(folder, self.options.follow_links)

    def left_out(self) -> dict[str, int]:
        """Return how many files in the folders were left out for want of an option.

        Returns:
            The numbers by fields of `SourceOptions`; none before the folders were listed.
        """
        counts = Counter(kind.option for name in self._left_out if (kind := kind_of(name)))
        return {field.name: counts[field.name] for field in fields(SourceOptions) if counts[field.name]}

    def note_index(self, store: Store) -> None:
        """Take notice of the index that this is read into: its own files are none of `others`.

        Args:
            store: The index.
        """
        self._index = tuple(map(os.path.abspath, store.places()))

    def _is_of_index(self, name: str) -> bool:
        """Return whether a file is the index, or one beside it such as ``index-wal``."""
        beside = (name[len(place) :] for place in self._index if f"{name}-".startswith(f"{place}-"))
        return any("." not in rest for rest in beside)

    def others(self) -> dict[str, int]:
        """Return how many files in the folders nothing takes, by ending.

        Returns:
            The numbers, the highest first, ``(none)`` for files without an ending; none before the folders were listed.
        """
        return ranked(+sum(self._others.values(), Counter[str]()))

    def indexed_files(self, store: Store) -> set[str]:
        """Return the names of the files in the folders that an index has documents of.

        Args:
            store: The index.

        Returns:
            Absolute names, also of files that are not there.
        """
        stamps = store.stamps(list(store.ids()))
        return {file_name(stamp.source) for id, stamp in stamps.items() if self.covers(id, stamp)}

    def _skip(self, name: str, exc: OSError) -> Reject:
        """Return a folder that was not read, as a Reject.

        Nothing that came from there counts as gone.
        """
        self._unread.add(file_id(name))
        return _unreadable(name, exc)

    def note_lost(self, seen: Collection[str], missing: Mapping[str, Stamp]) -> list[Reject]:
        """Note the folders without files that an index has documents of.

        Nothing that came from there is gone.

        Args:
            seen: The ids of all that was read.
            missing: The stamps of the documents of the index that were not read.

        Returns:
            A Reject of each.
        """
        ids = [] if self._prune_empty else [file_id(folder) for folder in self.folders]
        empty = [folder for folder in ids if not any(_is_in(id, folder) for id in chain(seen, self._left_out))]
        lost = [id for id in empty if any(_is_in(stamp.source, id) for stamp in missing.values())]
        self._unread.update(lost)
        return [lost_folder(id) for id in lost]

    @cached_property
    def _table_ids(self) -> frozenset[str]:
        return frozenset(map(file_id, self.tables))

    def covers(self, id: str, stamp: Stamp) -> bool:
        """Return whether what an index has came from what was read of these folders and tables.

        Args:
            id: A document's id.
            stamp: Its stamp in the index.

        Returns:
            True where the document is gone unless it was seen, or the file that it is a part of.
        """
        if stamp.source in self._left_out or any(_is_in(stamp.source, unread) for unread in self._unread):
            return False
        if stamp.source in self._table_ids:
            return True
        return is_file(id, stamp.source) and any(_is_in(stamp.source, file_id(folder)) for folder in self.folders)

    def was_read(self, id: str, stamp: Stamp) -> bool:
        """Return whether an id names a folder or table that was read.

        The id of a row in one counts too.

        Args:
            id: The id of a Reject.
            stamp: Its stamp in the index.

        Returns:
            True where the Reject is out of date unless it was given again.
        """
        name, _, number = id.rpartition(":")
        is_table = id in self._table_ids or (name == stamp.source and number.isdigit())
        return self.covers(id, stamp) and (is_table or os.path.isdir(id))


def _exists(name: str) -> bool:
    """Return whether there is such a file.

    One that cannot be looked at may be there.
    """
    try:
        os.lstat(name)
    except ValueError:  # a name that no file can have
        return False
    except OSError as exc:
        return exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
    return True


def _is_in(id: str, folder: str) -> bool:
    return f"{id}{os.sep}".startswith(folder.rstrip(os.sep) + os.sep)


def read_unit(unit: Unit, options: SourceOptions = NO_OPTIONS, limits: ImageLimits = DEFAULT_LIMITS) -> Iterator[Item]:
    """Read what `Paths.units` gave, here or on another machine.

    What cannot be read as a document comes as a Reject.
    """
    readers = None if options.readers is None else reader_names(options.readers)
    for item in _read_unit(unit, options, limits):
        read = replace(item, ocr=True) if options.ocr and isinstance(item, SourceDocument) else item
        if readers is not None and isinstance(read, Container):
            yield replace(read, readers=readers, parts=partial(_read_parts, read.parts, readers))
        else:
            yield read if readers is None or isinstance(read, Container) else with_readers(read, readers)


def _read_parts(
    parts: Callable[[ReadOptions], Iterator[PartItem]], readers: tuple[str, ...], options: ReadOptions
) -> Iterator[PartItem]:
    """Yield the documents of a file with the readers that were given for it."""
    for item in parts(options):
        yield with_readers(item, readers)


def _read_unit(unit: Unit, options: SourceOptions, limits: ImageLimits) -> Iterator[Item]:
    if isinstance(unit, tuple):
        for file in unit:
            yield file if isinstance(file, Reject) else _read_file(file, options)
        return
    try:
        value = {"table": unit, "columns": options.columns}
        yield from received(f"{__name__}:child_rows", value, ReadOptions(limits), name=repr(unit))
    except OSError as exc:
        yield _unreadable(unit, exc)
    except InvalidInputError as exc:
        yield Reject(file_id(unit), exc.code, CONTROLS.sub("?", str(exc)), Stamp("", file_id(unit)))


def child_rows(value: Mapping[str, Any], _: Sequence[Bytes]) -> Iterator[tuple[object, list[Bytes]]]:
    """Read the documents of a table; runs in a child process."""
    yield from sent(_read_rows(value["table"], Columns(value["columns"])), reading_of(value))


def _read_rows(table: str, columns: Columns) -> Iterator[PartItem]:
    if row_word(table) == "sample":
        columns.missing.difference_update(columns.names.pop("id", ()))
    row: Row | OSError | InvalidInputError = ""
    source = file_id(table)
    for number, row in read_rows(table, columns):
        if isinstance(row, OSError):
            raise row
        yield _read_row(table, source, number, row, columns)
    if row and columns.missing:
        what = f"no {row_word(table)} has a field {', '.join(map(repr, sorted(columns.missing)))}"
        yield Reject(source, "invalid", f"{table!r}: {what}", Stamp("", source))


def child_count(value: Mapping[str, Any], _: Sequence[Bytes]) -> Iterator[tuple[int, list[Bytes]]]:
    """Count the rows of a table; runs in a child process."""
    yield count_rows(value["table"], Columns(value["columns"])), []


def _count_rows(table: str, options: SourceOptions, limits: ImageLimits) -> int:
    """Count the rows of a table; what cannot be counted is rejected when it is read."""
    value = {"table": table, "columns": options.columns}
    try:
        count, _ = call(f"{__name__}:child_count", value, process_limits(limits), name=repr(table))
    except (OSError, InvalidInputError):
        return 0
    return int(str(count))


def _unreadable(name: str, exc: OSError) -> Reject:
    message = CONTROLS.sub("?", f"{name!r} cannot be read: {exc.strerror or exc}")
    return Reject(file_id(name), "unreadable", message, Stamp("", file_id(name)))


def lost_folder(folder: str) -> Reject:
    """Return what is said of a folder without files that an index has documents of."""
    message = (
        f"{folder!r} has no files, and the index has documents of files in it: is its disk mounted? Nothing was "
        "removed; `prune_empty` removes them"
    )
    return Reject(file_id(folder), "unreadable", CONTROLS.sub("?", message), Stamp("", file_id(folder)))


def _is_table(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in TABLE_SUFFIXES


def _walk(folder: str, follow_links: bool) -> Iterator[_FileEntry]:
    """Yield the files below a folder, without hidden ones.

    For a folder that cannot be listed, its name and the error come instead.
    """
    if remote_url(folder):
        yield from _walk_remote(folder)
        return
    left = [folder]
    while left:
        where = left.pop()
        try:
            with os.scandir(where) as listing:
                entries = sorted((entry for entry in listing if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as exc:
            yield where, exc
            continue
        folders = []
        for entry in entries:
            if _is_folder(entry):
                folders += [] if entry.is_symlink() else [entry.path]
            elif follow_links or not entry.is_symlink():
                yield entry.path
        left += reversed(folders)


def _walk_remote(folder: str) -> Iterator[_FileEntry]:
    try:
        urls = list_remote(folder)
    except OSError as exc:
        yield folder, exc
        return
    yield from (url for url in urls if "/." not in url.removeprefix(folder))


def _ending(suffix: str, others: Counter[str]) -> str:
    """Return the ending that a file is counted by. There are not too many of them."""
    if len(suffix) <= 1 or len(suffix) > _MAX_ENDING or CONTROLS.search(suffix) or " " in suffix:
        return _NO_ENDING
    return suffix if suffix in others or len(others) < _MAX_ENDINGS else _OTHER


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed
        return False


def _read_file(name: str, options: SourceOptions) -> Item:
    """Return what is in a file that is named by its absolute path or its URL."""
    id = _escape(name)
    kind = kind_of(name)
    if kind is not None and kind.has_parts(name):
        return _read_container(kind, name, id, options)  # in a folder with its option alone: see `Paths._walk`
    suffix = os.path.splitext(name)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return SourceDocument(Document(id, image=Path(name)), id)
    try:
        data = read_regular(name, "a text" if suffix in TEXT_SUFFIXES else "an image")
    except InvalidInputError as exc:
        return Reject(id, exc.code, str(exc), Stamp("", id))
    if suffix in TEXT_SUFFIXES:
        try:
            return SourceDocument(_text_document(name, id, data), id)
        except InvalidInputError as exc:
            reason = str(exc) if exc.code == "invalid" else "is binary data, and no text"
    else:
        if format_of(data):
            return SourceDocument(Document(id, image=Path(name)), id)
        texts, tables = (", ".join(sorted(suffixes)) for suffixes in (TEXT_SUFFIXES, TABLE_SUFFIXES))
        reason = f"is neither an image in a format that can be read nor named as a text ({texts}) or a table ({tables})"
    return Reject(id, "unsupported", f"{name!r} {reason}", Stamp(hashlib.sha256(data).hexdigest(), id))


def _text_document(name: str, id: str, data: bytes) -> Document:
    """Return the document of a text file; InvalidInputError for binary data."""
    text = decoded(data, language=language_of(name))
    is_markdown = name.lower().endswith(".md")
    plain = COLOURS.sub("", text.text)
    metadata, about, body = front_matter(plain) if is_markdown else ({}, About(), plain)
    return Document(id, about.over(body), None, with_unread({**metadata, **about.metadata}, text.unread))


def _read_container(kind: ContainerFormat, name: str, id: str, options: SourceOptions) -> Item:
    if remote_url(name):
        return Reject(id, "unreadable", f"{name!r} is {kind.name}, which is read on this machine alone", Stamp("", id))
    try:
        return container(kind, name, id, options)
    except InvalidInputError as exc:
        return Reject(id, exc.code, str(exc), Stamp("", id))


def file_id(name: str) -> str:
    """Return the id of a file: its URL or absolute path, with bytes that no id can have written as %XX.

    So a ``%`` that could be the beginning of such a byte is written as ``%25``.
    """
    return _escape(remote_url(name) or os.path.abspath(name))


def is_file(id: str, source: str) -> bool:
    """Return whether a document is its source or a part of that.

    Otherwise it is a row of it.
    """
    part = part_of(id)
    return source in (id, part.of if part else id)


def file_name(id: str) -> str:
    """Return the absolute name of a file of this machine, from its id."""
    return os.fsdecode(_ESCAPED.sub(lambda odd: bytes.fromhex(odd[1].decode()), os.fsencode(id)))


def _escape(path: str) -> str:
    return _ODD.sub(_percent, path)


def _percent(odd: re.Match[str]) -> str:
    is_byte = "\udc80" <= odd[0] <= "\udcff"  # as the operating system's names have them; other halves are in no name
    return "".join(f"%{byte:02X}" for byte in odd[0].encode("utf-8", "surrogateescape" if is_byte else "surrogatepass"))


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as exc:
        raise InvalidInputError("invalid", f"no JSON: {exc}") from exc
    except RecursionError as exc:
        raise InvalidInputError("invalid", "no JSON that can be read: it is nested too deeply") from exc


def _read_row(table: str, source: str, number: int, row: Row | InvalidInputError, columns: Columns) -> PartItem:
    try:
        if isinstance(row, InvalidInputError):
            raise row
        return SourceDocument(_document(row, table, columns), source)
    except InvalidInputError as exc:
        stamp = Stamp(hashlib.sha256(repr(row).encode()).hexdigest(), source)
        message = CONTROLS.sub("?", f"{Path(table).name}, {row_word(table)} {number}: {exc}")
        return Reject(f"{source}:{number}", exc.code, message, stamp)


def _document(given: Row, table: str, columns: Columns) -> Document:
    cells = [given] if isinstance(given, str) else given.values()
    joined = "".join([cell for cell in cells if isinstance(cell, str)])
    if not joined.isascii() and STRAY.search(joined):
        raise InvalidInputError("unsupported", "no text in the character set of the table")
    row = _parse(given) if isinstance(given, str) else given
    if not isinstance(row, Mapping):
        raise InvalidInputError("invalid", "a row is a JSON object")
    if None in row:  # what a row of CSV has beyond the last column
        raise InvalidInputError(
            "invalid", f"more cells than columns: {reprlib.repr(row[None])}; quote a text that has commas"
        )
    row = columns.row(row)
    if isinstance(given, str) and not any(key in row for key in RESERVED):
        has = f"none of the fields id, text and image; it has {', '.join(row)}"
        raise InvalidInputError("invalid", f"{has}: `columns` names others, such as text=NAME")
    id, text, given, metadata = row_parts(row)
    image = given if isinstance(given, bytes) else plain_text(given)
    for key, value in (("id", id), ("text", text), ("image", image)):
        if not isinstance(value, (str, bytes if key == "image" else str, type(None))):
            raise InvalidInputError("invalid", f"{key!r} is a string, not {reprlib.repr(value)}")
    image = image if isinstance(image, bytes) else _beside(table, image)
    place = None if id and row_word(table) != "sample" else id or image
    if isinstance(place, (str, Path)):
        id = file_id(str(place))
    elif not id:
        content = image if isinstance(image, bytes) else (text or "").encode("utf-8", "replace")
        id = hashlib.sha256(content).hexdigest()[:32]
    document = Document(id, text or None, image or None, metadata)
    if f"{READERS} value" in unread_in(document.metadata):
        raise InvalidInputError("invalid", f"{READERS!r} is a name or a list of names, such as group:hr")
    return document


def _beside(table: str, image: str | None) -> Path | None:
    """Return the path of an image that a table names, relative to the table."""
    if not image or remote_url(image):
        return Path(image) if image else None
    if url := remote_url(table):
        return Path(url.rpartition("/")[0], image)
    return Path(os.path.abspath(Path(table).parent / image))
