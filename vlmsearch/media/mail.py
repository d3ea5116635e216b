"""Mail: ``.eml``, ``.mbox`` and Outlook's ``.msg``, with what it says in its headers, its text and its attachments.

Python's own parser takes a mail apart. Header fields and texts are decoded here: the parser's own decoders raise for
what mail programs write, or put marks in place of bytes that they do not know.
"""

from __future__ import annotations

import binascii
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import timezone
from email._policybase import Compat32
from email.errors import CloseBoundaryNotFoundDefect, InvalidBase64LengthDefect
from email.message import Message
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from functools import partial
from io import BufferedReader
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from vlmsearch.errors import InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media import office
from vlmsearch.media.decoding import decoded
from vlmsearch.media.files import open_regular, read_regular
from vlmsearch.media.office.content import clean
from vlmsearch.types import Scalar

MAIL_SUFFIXES = frozenset({".eml", ".mbox", ".msg"})
"""Endings, in lower case, of the files that are read."""
MAX_MESSAGE_BYTES = 100 * 2**20
"""The largest message of a mailbox that is read."""
_MAILS = frozenset({".eml", ".msg"})
_FIELDS = {"title": "subject", "author": "from", "to": "to", "cc": "cc"}
"""Metadata and the header fields that they come from."""
_MAX_DEPTH = 20
"""Mails inside mails that are read."""
_LINE = 2**20
_WORD = re.compile(r"=\?([\w.:+-]+)(?:\*[\w-]*)?\?([bq])\?(.*?)\?=", re.IGNORECASE | re.DOTALL)
"""An encoded word of RFC 2047, wherever it stands: programs put them inside words and quotes, too."""
_FROM = re.compile(rb"From .*\d:\d\d.*\d{4}")
_BARE_FROM = re.compile(rb"From \S*\s*$")
_FIELD = re.compile(rb">?From |[!-9;-~]+:")
_QUOTED_FROM = re.compile(rb"^(>*)>From ")
_PARTS = re.compile(rb"^--([\w'()+,./:=?-]+)[ \t]*\r?\n(?=content-)", re.IGNORECASE | re.MULTILINE)
"""A boundary before a part, of a mail that does not name it."""
_HEAD = 512
_DELETED = re.compile(rb"(?mi)^X-Mozilla-Status:\s*[0-9a-f]{3}[89a-f]")
"""Mozilla's mark of a deleted message, which stays in the file: a bit of the last digit."""
_FORM_WORD = re.compile(r"https?://\S+|(\w+)")
"""The words of a form, without the links that plain ones spell out."""
_PGP = re.compile(r"(?s)-----BEGIN PGP (MESSAGE|SIGNATURE)-----.*?(?:-----END PGP \1-----|\Z)")
# signatures and keys, for programs; what a Macintosh keeps beside a file, such as its icon; the same text once more,
# for some programs; the place of an attachment that the reader deleted
_UNWANTED = re.compile(
    r"application/((pgp|(x-)?pkcs7)-signature|pgp-keys|applefile)|text/(watch-html|x-amp-html|x-moz-deleted)"
)
"""Parts that hold nothing for a reader."""
_REPORTS = frozenset({"message/delivery-status", "message/disposition-notification", "message/feedback-report"})
"""Parts that are made of header fields alone."""
CARDS = frozenset({"text/calendar", "text/vcard", "text/x-vcard", "text/directory", "application/ics"})
"""Media types of invitations and business cards."""
_CARD_LINE = re.compile(r'(?m)^(?:[\w-]+\.)?([\w-]+)((?:;(?:"[^"]*"|[^":\n])*)?):(.*?)\r?$')
_CARD_NAME = re.compile(r';CN="?([^";:]+)')
_CARD_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\d")
_CARD_FIELDS = re.compile(
    "SUMMARY|DESCRIPTION|LOCATION|DTSTART|DTEND|DUE|ORGANIZER|ATTENDEE|COMMENT|FN|ORG|TITLE|ROLE|TEL|EMAIL|ADR|NOTE|URL"
)
"""Fields of invitations (RFC 5545) and of business cards (RFC 6350) that people read."""


class _Raw(Compat32):
    """The policy that leaves header fields as they are in the file."""

    def header_fetch_parse(self, _: str, value: str) -> str:
        """Return a field."""
        return value


_RAW = _Raw()


@dataclass(frozen=True)
class Attachment:
    """An attachment: its file name, its media type, and its bytes, or the mail that it is."""

    name: str
    kind: str
    data: bytes = b""
    mail: Mail | None = None


@dataclass
class Mail:
    """A mail as it is read.

    Attributes:
        metadata: Its subject as ``title``, its sender as ``author``, ``to``, ``cc``, ``date`` and ``sent``.
        texts: The texts of its parts, in order.
        cards: Invitations and business cards, which often come twice.
        attachments: Its attachments, with those of mails that are attached.
        unread: Numbers of parts that were not read, by kind.
    """

    metadata: dict[str, Scalar] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    cards: dict[str, None] = field(default_factory=dict)
    attachments: list[Attachment] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """Return subject, sender, text and the names of the attachments, a paragraph each."""
        names = "\n".join(attachment.name for attachment in self.attachments)
        above = (str(self.metadata.get(key, "")) for key in ("title", "author"))
        text = re.sub("\r\n?", "\n", "\n\n".join([*above, *self.texts, *self.cards, names]))
        return clean(re.sub(r"\n\s*\n", "\n\n", text))

    def take(self, part: Message, depth: int = 0) -> None:
        """Add what is in a part."""
        kind, name, parts = part.get_content_type(), _file_name(part), _parts(part)
        self.unread["damaged part"] += any(isinstance(defect, CloseBoundaryNotFoundDefect) for defect in part.defects)
        if _UNWANTED.fullmatch(kind) or name.lower() == "smime.p7s":
            return
        if kind == "multipart/encrypted" or kind.endswith("pkcs7-mime"):
            self.unread["encrypted part" if "signed" not in str(part.get_param("smime-type")) else "signed part"] += 1
        elif kind == "multipart/alternative" and parts:
            self._take_alternatives(parts, depth)
        elif kind in _REPORTS and parts:
            self.texts += ("\n".join(f"{key}: {_words(value)}" for key, value in block.items()) for block in parts)
        elif part.get_content_maintype() == "message":
            self._take_mail(part, name, depth)
        elif parts:
            for child in parts:
                self.take(child, depth)
        elif part.get_content_maintype() == "multipart":
            self._take_unmarked(part, depth)
        elif kind == "application/ms-tnef" or name.lower() == "winmail.dat":
            self.unread["winmail.dat"] += 1
        else:
            self._take_leaf(part, kind, name, depth)

    def _take_leaf(self, part: Message, kind: str, name: str, depth: int) -> None:
        charset, suffix = str(part.get_content_charset("")), os.path.splitext(name)[1].lower()
        data = _bytes(part)
        self.unread["damaged part"] += any(isinstance(defect, InvalidBase64LengthDefect) for defect in part.defects)
        is_text = kind.startswith("text/")
        is_body = kind in CARDS or (is_text and not name and part.get_content_disposition() != "attachment")
        if suffix in _MAILS and depth < _MAX_DEPTH:
            self._take_message(data, suffix, name, depth)
            return
        try:
            text = decoded(data, label=charset) if is_body or (is_text and charset) else None
        except InvalidInputError:  # of no text
            text = None
        if text and charset and kind != "text/rtf" and not data.isascii():  # else a page may name it
            data = f"\ufeff{text.text}".encode()
        if text is None or not is_body or (kind == "text/rtf" and not data.startswith(b"{")):
            self.attachments.append(Attachment(name, kind, data))
            return
        self.unread.update(text.unread)
        if kind in CARDS:
            self.cards[clean(card_text(text.text))] = None
        elif kind == "text/plain":
            self._take_plain(part, text.text)
        else:
            content = office.read_bytes(data, ".rtf" if kind == "text/rtf" else ".html", "the text of the mail")
            self.texts.append(content.text)
            self.unread.update(content.unread)

    def _take_message(self, data: bytes, suffix: str, name: str, depth: int) -> None:
        """Take a mail that is attached as a file."""
        try:
            self._add_mail(_read(_parsed(data, suffix), depth + 1), name)
        except InvalidInputError:
            self.attachments.append(Attachment(name, "application/octet-stream", data))

    def _take_plain(self, part: Message, text: str) -> None:
        self.unread["encrypted part"] += _PGP.findall(text).count("MESSAGE")
        text = _PGP.sub("", text).replace("\r\n", "\n")
        is_flowed = str(part.get_param("format")).lower() == "flowed"
        self.texts.append(_joined(text, str(part.get_param("delsp")).lower() == "yes") if is_flowed else text)

    def _take_alternatives(self, parts: list[Message], depth: int) -> None:
        """Take one of several forms of a text: the plain one, unless that leaves out many words, or the most."""
        plain, rich = Mail(), Mail()
        for part in parts:
            (plain if part.get_content_type() == "text/plain" else rich).take(part, depth)
        words, plain_words = (set(_FORM_WORD.findall(" ".join(side.texts))) for side in (rich, plain))
        left_out = len(words - plain_words)
        is_stub = 4 * left_out > len(words) and 4 * len(words) >= len(plain_words)
        self.texts += (rich if is_stub or left_out > len(plain_words - words) else plain).texts
        for side in (plain, rich):
            self.cards |= side.cards
            self.attachments += side.attachments
            self.unread += side.unread

    def _take_mail(self, part: Message, name: str, depth: int) -> None:
        """Take a mail inside this one, and its attachments."""
        parts = _parts(part)
        if not parts or depth >= _MAX_DEPTH:
            self.unread["attachment"] += 1
            return
        message, encoding = parts[0], part.get("content-transfer-encoding", "")
        if encoding.strip().lower() == "base64" and not message.keys():  # Python's parser takes that for its text
            message["content-transfer-encoding"] = "base64"
            message = _parsed(_bytes(message))
        self._add_mail(_read(message, depth + 1), name)

    def _add_mail(self, mail: Mail, name: str) -> None:
        self.attachments.append(Attachment(name or str(mail.metadata.get("title", "")), "message/rfc822", mail=mail))
        self.attachments += mail.attachments

    def _take_unmarked(self, part: Message, depth: int) -> None:
        """Take the parts of a mail whose boundary is missing or wrong: a line that looks like one counts."""
        data = _bytes(part)
        boundary = _PARTS.search(data)
        head = b'Content-Type: multipart/mixed; boundary="%b"\n\n' % boundary[1] if boundary else b""
        parts = _parts(_parsed(head + data)) if boundary else []
        for child in parts:
            self.take(child, depth)
        self.texts += [] if parts else [_text(data)]


def read_mails(path: Path, only: int | None = None) -> Iterator[tuple[int | None, Mail | InvalidInputError]]:
    """Yield the mails of a file, each with its number in a mailbox.

    One is in memory at a time. A message that cannot be read comes as the reason. One that was deleted keeps its
    number, and does not come.

    Args:
        path: The file.
        only: The number of the message that is wanted, of a mailbox; None for all.

    Raises:
        InvalidInputError: ``unreadable``, ``empty``, ``corrupt`` or ``too_large``.
        MissingDependencyError: lxml is not installed.
    """
    suffix = path.suffix.lower()
    if suffix in _MAILS:
        yield None, _read_bytes(read_regular(path, "a mail"), suffix, repr(str(path)))
        return
    for number, data in enumerate(_messages(path), 1):
        if only in (None, number) and not _DELETED.search(data[:_HEAD]):
            try:
                yield number, _read_bytes(data, ".eml", f"message {number} of {str(path)!r}")
            except InvalidInputError as exc:
                yield number, exc


def attachment_bytes(path: Path, message: int | None, number: int) -> bytes:
    """Return an attachment of a mail, or of a message of a mailbox.

    Raises:
        InvalidInputError: There is none of that number, or the file cannot be read, as for `read_mails`.
    """
    for at, mail in read_mails(path, message):
        if at == message and isinstance(mail, Mail) and number <= len(mail.attachments):
            return mail.attachments[number - 1].data
    raise InvalidInputError("invalid", f"{str(path)!r} has no attachment {number} there")


def _messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a mailbox; one that is too large only as far as that.

    A line that begins with ``From`` begins a message where it has a date or follows an empty line, and a header field
    comes next: programs quote others or not, and some write no empty line between messages.
    """
    lines: list[bytes] = []
    held, size, is_blank, count = b"", 0, True, 0
    with open_regular(path, "a mailbox") as file:
        for line in iter(partial(BufferedReader(file).readline, _LINE), b""):
            if held and _FIELD.match(line):
                if count:
                    yield b"".join(lines)
                lines, size, count = [], 0, count + 1
            elif size <= MAX_MESSAGE_BYTES:
                lines.append(held)
            held, was_blank, is_blank = b"", is_blank, not line.strip()
            if _FROM.match(line) or (was_blank and _BARE_FROM.match(line)):
                held = line
            elif size <= MAX_MESSAGE_BYTES:
                lines.append(_QUOTED_FROM.sub(rb"\1From ", line) if line.startswith(b">") else line)
            size += len(line)
    if not count:
        raise InvalidInputError("corrupt", f"{str(path)!r} is no mailbox: no line begins with 'From '")
    yield b"".join(lines)


def _read_bytes(data: bytes, suffix: str, name: str) -> Mail:
    """Return the mail in a file; ``corrupt`` for whatever stops the parser."""
    if suffix == ".eml" and not _FIELD.search(data[:_LINE]) and b"\0" in data:
        raise InvalidInputError("corrupt", f"{name} is no mail: it has no header")
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidInputError("too_large", f"{name} is too large: a mail has at most {MAX_MESSAGE_BYTES:,} bytes")
    try:
        return _read(_parsed(data, suffix))
    except (InvalidInputError, MissingDependencyError, MemoryError):
        raise
    except Exception as exc:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is no mail: {one_line(exc)}") from exc


def _parsed(data: bytes, suffix: str = ".eml") -> Message:
    """Return the parts of a mail."""
    if suffix == ".msg":
        from vlmsearch.media.outlook import message_of

        return message_of(data)
    return BytesParser(policy=_RAW).parsebytes(data.removeprefix(b"\xef\xbb\xbf").lstrip())


def _read(message: Message, depth: int = 0) -> Mail:
    """Return what is in a mail."""
    fields = {key: _words(", ".join(message.get_all(name, []))) for key, name in _FIELDS.items()}
    mail = Mail({key: value for key, value in fields.items() if value})
    for value in (*message.get_all("date", []), *message.get_all("received", [])):
        with suppress(TypeError, ValueError, IndexError, OverflowError):
            sent = parsedate_to_datetime(value.rpartition(";")[2].strip())
            moment = (sent if sent.tzinfo else sent.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
            mail.metadata |= {"date": 10_000 * sent.year + 100 * sent.month + sent.day, "sent": moment.isoformat()}
            break
    mail.take(message, depth)
    mail.unread = +mail.unread
    return mail


def _parts(part: Message) -> list[Message]:
    given = part.get_payload() if part.is_multipart() else ()
    return [child for child in given if isinstance(child, Message)]


def _bytes(part: Message) -> bytes:
    """Return the bytes that are encoded in a part.

    Its header is left out, at which Python looks, and raises for a damaged one.
    """
    bare = copy(part)
    encoding = re.match(r"\s*([\w-]+)", part.get("content-transfer-encoding", ""))  # a comment may follow
    for name in ("content-type", "content-transfer-encoding"):
        del bare[name]
    bare["content-transfer-encoding"] = encoding[1] if encoding else "8bit"
    data = bare.get_payload(decode=True)
    if not isinstance(data, bytes):
        return b""
    if any(isinstance(defect, InvalidBase64LengthDefect) for defect in part.defects):  # not decoded: a cut one
        digits = re.sub(rb"[^A-Za-z0-9+/]", b"", data)
        return binascii.a2b_base64(digits[: len(digits) // 4 * 4])
    return data


def _file_name(part: Message) -> str:
    """Return the name of the file that a part is; "" for none."""
    given = part.get_param("filename", None, "content-disposition") or part.get_param("name", "")
    if isinstance(given, tuple):  # of RFC 2231
        name = _text(given[2].encode("raw-unicode-escape"), given[0] or "")
    else:
        name = _words(str(given))
    return re.split(r"[\\/]", clean(name))[-1].strip()


def _words(field: str) -> str:
    """Return a header field as people read it, in one line."""
    words: list[tuple[str, bytes]] = []
    end = 0
    for word in _WORD.finditer(field):
        if not words or field[end : word.start()].strip():  # space between encoded words is none
            words.append(("", field[end : word.start()].encode("utf-8", "surrogateescape")))
        words.append((word[1].lower(), _word_bytes(word)))
        end = word.end()
    words.append(("", field[end:].encode("utf-8", "surrogateescape")))
    runs = groupby(words, itemgetter(0))  # a character may be cut between words
    text = "".join(_text(b"".join(data for _, data in run), charset) for charset, run in runs)
    return clean(re.sub(r'"([^"]*)"(?=\s*<)', r"\1", " ".join(text.split())))


def _word_bytes(word: re.Match[str]) -> bytes:
    data = word[3].encode("utf-8", "surrogateescape")
    if word[2] in "qQ":
        return binascii.a2b_qp(data, header=True)
    try:
        return binascii.a2b_base64(data + b"==")
    except binascii.Error:
        return word[0].encode("utf-8", "surrogateescape")


def _text(data: bytes, label: str = "") -> str:
    with suppress(ValueError):  # bytes of no text, or a damaged label
        return decoded(data, label=label).text
    return data.decode("ascii", "replace")


def _joined(text: str, is_delsp: bool) -> str:
    """Return a text of ``format=flowed`` with its paragraphs on lines of their own."""
    lines: list[str] = []
    before, is_open = "", False
    for line in text.split("\n"):
        words = line.lstrip(">")
        quotes = line[: len(line) - len(words)]
        words = words.removeprefix(" ")
        if is_open and quotes == before and words != "-- ":
            lines[-1] += words
        else:
            lines.append(f"{quotes} {words}" if quotes else words)
        before, is_open = quotes, words.endswith(" ") and words != "-- "
        if is_open and is_delsp:
            lines[-1] = lines[-1][:-1]
    return "\n".join(lines)


def card_text(text: str) -> str:
    """Return the fields of an invitation or a business card that people read, a line each."""
    lines = []
    text = re.sub(r"(?s)BEGIN:(VTIMEZONE|VALARM)\b.*?END:\1", "", re.sub(r"\r?\n[ \t]", "", text))
    for name, parameters, value in _CARD_LINE.findall(text):
        if _CARD_FIELDS.fullmatch(name.upper()):
            fields = re.split(r"(?<!\\);", _CARD_TIME.sub(r"\1-\2-\3 \4:\5", value))
            values = filter(None, (*_CARD_NAME.findall(parameters), *fields))
            lines.append(re.sub(r"\\(.)", lambda char: "\n" if char[1] in "nN" else char[1], ", ".join(values)))
    return "\n".join(lines)
