"""Files of several documents: what comes of each format, and the option that it is taken with.

An entry in `KINDS` adds a format: endings, the field of `SourceOptions`, and the function that gives the parts of a
file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from vlmsearch._util.messages import Bytes
from vlmsearch._util.pillow import as_bmp
from vlmsearch._util.unread import unread_metadata
from vlmsearch.errors import InvalidInputError, MissingDependencyError
from vlmsearch.indexing.facts import day_metadata
from vlmsearch.indexing.image_text import with_mark
from vlmsearch.indexing.items import Container, PartItem, ReadOptions, SourceDocument, SourceOptions
from vlmsearch.indexing.passages import with_passages
from vlmsearch.indexing.reading import reading_of, received, sent
from vlmsearch.media.about import About
from vlmsearch.media.files import open_regular
from vlmsearch.media.images import read_image, tiff_pages
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.mail import MAIL_SUFFIXES
from vlmsearch.media.office import OFFICE_SUFFIXES
from vlmsearch.media.office.content import Content
from vlmsearch.media.taken import day_taken
from vlmsearch.media.tiff import TIFF_SUFFIXES, has_pages, unread_pages
from vlmsearch.media.video import VIDEO_SUFFIXES, subtitles_beside
from vlmsearch.stores.base import Store
from vlmsearch.types import Document, Part, Reject, Scalar, Stamp, part_of

Read: TypeAlias = Callable[["File", ImageLimits], Iterator[PartItem]]
CHILD = f"{__name__}:child_parts"
"""The function that reads a file in a child process."""
_CHUNK = 2**20
NOTHING_UNREAD: Mapping[str, int] = {}
_COVER = 0.1
"""The part of a film after which its first frame is shown.

That frame is perhaps not its title.
"""


@dataclass(frozen=True)
class File:
    """A file of several documents: its absolute path, its id, its version, and what decides how it is read."""

    path: Path
    id: str
    version: str
    ocr: bool = False
    follow_links: bool = True

    def part(self, fragment: str, text: str | None, image: bytes | None, metadata: dict[str, Scalar]) -> SourceDocument:
        """Return the document of a part.

        Its image, if it has one, is named by the path with the same fragment.
        """
        path = None if image is None else Path(f"{self.path}{fragment}")
        document = Document(f"{self.id}{fragment}", text or None, path, metadata)
        return SourceDocument(document, self.id, image, ocr=self.ocr)

    def whole(
        self,
        about: About,
        text: str,
        metadata: Mapping[str, Scalar],
        *,
        cover: tuple[str, bytes | None] = ("", None),
        unread: Mapping[str, int] = NOTHING_UNREAD,
    ) -> SourceDocument:
        """Return the document of the file itself, which says title and author above its text.

        Its text is the name of the file where there is no other. The cover is the fragment and the image of a part.
        What was not read of the file is in the metadata.
        """
        fragment, image = cover
        path = Path(f"{self.path}{fragment}") if fragment else None
        given = {**metadata, **about.metadata, **unread_metadata(unread)}
        document = Document(self.id, about.over(text) or self.path.stem, path, given)
        return SourceDocument(document, self.id, image, digest=self.version)

    def reject(self, exc: InvalidInputError, fragment: str = "") -> Reject:
        """Return a file that cannot be used, or a part of it, as a Reject.

        It is tried again when the file changes.
        """
        version = "" if exc.code == "unreadable" else self.version
        return Reject(f"{self.id}{fragment}", exc.code, str(exc), Stamp(version, self.id))


@dataclass(frozen=True)
class ContainerFormat:
    """A format of files: its name, the endings of the files, the option that takes them, and their reader.

    Without an option they are always taken.

    ``edition`` is raised where the same file gives other documents than before. ``beside`` finds another file that
    belongs to it, and is told whether that may be a link. ``has_images`` says whether the parts have images, in which
    text may be read. ``has_texts`` says whether the texts may be long. ``has_parts`` looks into a file:
    without parts it is a plain image.
    """

    name: str
    suffixes: frozenset[str]
    option: str
    read: Read
    edition: int = 1
    beside: Callable[[Path, bool], Path | None] = lambda *_: None
    has_images: bool = True
    has_texts: bool = True
    has_parts: Callable[[str], bool] = lambda _: True

    def is_wanted(self, options: SourceOptions) -> bool:
        """Return whether options take such files from folders."""
        return not self.option or getattr(options, self.option)


def container(kind: ContainerFormat, name: str, id: str, options: SourceOptions) -> Container:
    """Return a file of a kind; InvalidInputError ``unreadable`` where its bytes cannot be read."""
    beside = kind.beside(Path(name), options.follow_links)
    digests = [_digest(name), *([_digest(str(beside))] if beside else [])]
    version = hashlib.sha256(json.dumps([*digests, [kind.option, kind.edition]]).encode()).hexdigest()
    ocr = options.ocr and kind.has_images
    version = with_passages(version) if options.passages and kind.has_texts else version
    version = with_mark(version) if ocr else version
    file, is_named = File(Path(name), id, version, ocr, options.follow_links), not kind.is_wanted(options)
    return Container(id, id, version, partial(_read_parts, file, is_named))


def _read_parts(file: File, is_named: bool, reading: ReadOptions) -> Iterator[PartItem]:
    """Read the parts of a file in a child process.

    A file that cannot be read is rejected, also for want of an extra that no option asks for.
    """
    value = {**asdict(file), "path": str(file.path)}
    try:
        yield from received(CHILD, value, reading, name=repr(str(file.path)))
    except InvalidInputError as exc:
        yield file.reject(exc)
    except MissingDependencyError as exc:
        if not is_named:
            raise
        yield file.reject(_missing(str(file.path), exc))


def _missing(name: str, exc: MissingDependencyError) -> InvalidInputError:
    return InvalidInputError("unreadable", f"{name!r} cannot be read: {exc}")


def child_parts(value: Mapping[str, Any], _: Sequence[Bytes]) -> Iterator[tuple[object, list[Bytes]]]:
    """Read the parts of a file; runs in a child process."""
    given = {name: value[name] for name in ("id", "version", "ocr", "follow_links")}
    file = File(Path(value["path"]), **given)
    reading = reading_of(value)
    kind = kind_of(value["path"])
    if kind is not None:
        yield from sent(kind.read(file, reading.limits), reading)


def _digest(name: str) -> str:
    """SHA-256 over the bytes of a file."""
    digest = hashlib.sha256()
    with open_regular(name, "a") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _pages(file: File, limits: ImageLimits) -> Iterator[PartItem]:
    """Yield the pages of a PDF, and the whole file: its title, and its first page as its image."""
    from vlmsearch.media import pdf

    cover: tuple[str, bytes | None] = ("", None)
    try:
        count, about, counts = pdf.describe(file.path)
        unread = Counter(counts)
        for page in pdf.read_pages(file.path, limits):
            if isinstance(page, pdf.Page):
                fragment = f"#page={page.number}"
                cover = (fragment, page.image) if page.number == 1 else cover
                unread += Counter(page.unread)
                yield file.part(fragment, page.text, page.image, {"page": page.number})
            else:
                number, exc = page
                yield file.reject(exc, f"#page={number}")
    except InvalidInputError as exc:
        yield file.reject(exc)
        return
    yield file.whole(about, "", {"pages": count, "parts": count}, cover=cover, unread=unread)


def _images(file: File, limits: ImageLimits) -> Iterator[PartItem]:
    """Yield the pages of a TIFF, and the whole file with the image of the first."""
    cover: tuple[str, bytes | None] = ("", None)
    number = 0
    try:
        dated = day_metadata(day_taken(read_image(file.path, limits)))
        for number, draw in enumerate(tiff_pages(file.path, limits), start=1):
            fragment = f"#page={number}"
            try:
                image = draw()
            except InvalidInputError as exc:
                yield file.reject(exc, fragment)
                continue
            cover = cover if cover[0] else (fragment, image)
            yield file.part(fragment, None, image, {"page": number, **dated})
    except InvalidInputError as exc:
        yield file.reject(exc)
        return
    yield file.whole(About(), "", {"pages": number, "parts": number, **dated}, cover=cover)


def _frames(file: File, limits: ImageLimits) -> Iterator[PartItem]:
    """Yield a frame of each scene of a film, and the whole film: its title, and a frame from after its beginning."""
    from vlmsearch.media import video

    cover: tuple[str, bytes | None] = ("", None)
    count, is_past = 0, False
    try:
        header = video.describe(file.path, file.follow_links)
        dated = day_metadata(header.day)
        for frame in video.scenes(file.path, limits=limits, follow_links=file.follow_links):
            fragment, image = f"#t={frame.seconds:.3f}", as_bmp(frame.image)
            if count == 0 or (not is_past and frame.seconds >= _COVER * (header.duration or 0.0)):
                cover, is_past = (fragment, image), count > 0
            count += 1
            yield file.part(fragment, frame.text, image, {"seconds": frame.seconds, **dated})
    except InvalidInputError as exc:
        yield file.reject(exc)
        return
    metadata: dict[str, Scalar] = {"parts": count, **dated}
    metadata |= {"duration": round(header.duration, 3)} if header.duration else {}
    yield file.whole(header.about, "", metadata, cover=cover, unread=header.unread)


def _document(file: File, _: ImageLimits) -> Iterator[PartItem]:
    """Yield the text of an office document, an e-book or a web page: one document, which has no parts."""
    from vlmsearch.media import office

    try:
        content = office.read_office(file.path)
    except InvalidInputError as exc:
        yield file.reject(exc)
        return
    yield file.whole(content.about, content.text, {}, unread=content.unread)


def _mail(file: File, limits: ImageLimits) -> Iterator[PartItem]:
    """Yield a mail and its attachments, or those of each message of a mailbox.

    The mailbox itself comes last.
    """
    from vlmsearch.media import mail
    from vlmsearch.media.attachments import read_attachment

    messages = parts = 0
    try:
        for number, message in mail.read_mails(file.path):
            messages += 1
            if not isinstance(message, mail.Mail):
                yield file.reject(message, str(Part("", message=number)))
                continue
            unread = Counter(message.unread)
            for at, attachment in enumerate(message.attachments, 1):
                part = Part("", message=number, attachment=at)
                try:
                    content = read_attachment(attachment, limits)
                except MissingDependencyError as exc:
                    yield file.reject(_missing(f"{file.path}{part}", exc), str(part))
                    continue
                unread["attachment"] += content is None
                image = content if isinstance(content, bytes) else None
                left = content.unread if isinstance(content, Content) else unread_pages(image or b"")
                text = content.text if isinstance(content, Content) else ""
                if image or text or left:
                    named = {"title": attachment.name, "filename": attachment.name} if attachment.name else {}
                    inner = attachment.mail.metadata if attachment.mail else {}
                    metadata = {**message.metadata, **named, **inner, **unread_metadata(left)}
                    yield file.part(str(part), text if image else text or attachment.name or part.name, image, metadata)
                    parts += 1
            if number is None:
                count = {"parts": parts} if parts else {}
                yield file.whole(About(), message.text, {**message.metadata, **count}, unread=+unread)
            else:
                part = Part("", message=number)
                metadata = {**message.metadata, **unread_metadata(+unread)}
                yield file.part(str(part), message.text or part.name, None, metadata)
                parts += 1
    except InvalidInputError as exc:
        yield file.reject(exc)
        return
    if file.path.suffix.lower() == ".mbox":
        yield file.whole(About(), "", {"messages": messages, "parts": parts})


KINDS = (
    ContainerFormat("a PDF", frozenset({".pdf"}), "pdf", _pages, 3),
    ContainerFormat("a TIFF of several pages", TIFF_SUFFIXES, "", _images, has_parts=has_pages),
    ContainerFormat("a film", VIDEO_SUFFIXES, "video", _frames, 4, beside=subtitles_beside, has_texts=False),
    ContainerFormat("an office document or a web page", OFFICE_SUFFIXES, "office", _document, 4, has_images=False),
    ContainerFormat("a mail", MAIL_SUFFIXES, "office", _mail),
)
CONTAINER_SUFFIXES = frozenset().union(*(kind.suffixes for kind in KINDS))


def with_parts(store: Store, ids: Iterable[str]) -> list[str]:
    """Return ids, with those of all parts in the index of the files among them."""
    given = list(ids)
    files = {id for id in given if kind_of(id)}
    parts = (id for id in store.ids() if (part := part_of(id)) and part.of in files) if files else ()
    return list(dict.fromkeys([*given, *parts]))


def kind_of(name: str) -> ContainerFormat | None:
    """Return the kind of a file, by how its name ends.

    None for a file that is one document.
    """
    suffix = os.path.splitext(name)[1].lower()
    return next((kind for kind in KINDS if suffix in kind.suffixes), None)
