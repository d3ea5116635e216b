"""Outlook's ``.msg``: a compound file of properties (MS-OXMSG), turned into the parts of a mail."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from email.message import Message
from email.parser import BytesParser, HeaderParser
from email.utils import format_datetime
from typing import TYPE_CHECKING

from vlmsearch._util.extras import install_command
from vlmsearch.errors import InvalidInputError, one_line
from vlmsearch.media.decoding import decoded

if TYPE_CHECKING:
    from olefile import OleFileIO

_EMBEDDED, _STREAM = 5, 2
_CODE_PAGES = {
    932: "shift_jis",
    936: "gbk",
    949: "euc-kr",
    950: "big5",
    20866: "koi8-r",
    50220: "iso-2022-jp",
    65001: "utf-8",
}
"""Character sets by their numbers in Windows, beside those of ``windows-`` and ``iso-8859-``."""
_RTF_START = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
"""The text before compressed RTF, to which it refers (MS-OXRTFCP)."""
_WINDOW = 4096
_TIMES = (0x0060, 0x0061)
"""The properties of the beginning and the end of an appointment."""
_FIELD = re.compile("__substg1.0_(3A|[89A-F].)..001[EF]$")
"""Streams with texts of contacts, or of properties that have names."""
_EPOCH, _LAST = datetime(1601, 1, 1, tzinfo=timezone.utc), 2**61
"""The time 0, and one that no mail has."""


def message_of(data: bytes) -> Message:
    """Return the parts of a mail.

    Raises:
        InvalidInputError: ``corrupt``; ``unreadable`` where olefile is not installed, so that it is tried again.
    """
    try:
        from olefile import OleFileIO
    except ImportError as exc:
        raise InvalidInputError("unreadable", f"mail of Outlook needs olefile: {install_command('msg')}") from exc
    try:
        return _message(_Storage(OleFileIO(data), [], 32))
    except (OSError, ValueError, struct.error, IndexError) as exc:
        raise InvalidInputError("corrupt", f"a mail of Outlook is damaged: {one_line(exc)}") from exc


class _Storage:
    """The properties of a message or an attachment, by their numbers."""

    def __init__(self, ole: OleFileIO, path: list[str], head: int) -> None:
        self.ole, self.path = ole, path
        entries = self._stream("__properties_version1.0")[head:]
        entries = entries[: len(entries) // 16 * 16]
        self._fixed: dict[int, int] = dict(struct.iter_unpack("<2xH4xQ", entries))
        page = self.number(0x3FDE) or self.number(0x3FFD)
        is_iso = 28591 <= page <= 28606
        self.charset = f"iso-8859-{page - 28590}" if is_iso else _CODE_PAGES.get(page, f"windows-{page}")

    def number(self, property: int) -> int:
        """Return a number or a time; 0 where it is missing."""
        return self._fixed.get(property, 0)

    def data(self, property: int) -> bytes:
        """Return bytes; none where they are missing."""
        return self._stream(f"__substg1.0_{property:04X}0102")

    def text(self, *properties: int) -> str:
        """Return the text of the first property that has one."""
        for property in properties:
            if data := self._stream(f"__substg1.0_{property:04X}001F"):
                return str(data, "utf-16-le", "replace").strip("\0")
            if data := self._stream(f"__substg1.0_{property:04X}001E"):
                return decoded(data, label=self.charset).text.strip("\0")
        return ""

    def fields(self) -> str:
        """Return what an item says beside a text, such as the place of an appointment."""
        times = [_EPOCH + timedelta(microseconds=at // 10) for at in map(self.number, _TIMES) if 0 < at < _LAST]
        texts = (self.text(int(name[12:16], 16)) for name in self._names("__substg1.0_") if _FIELD.match(name))
        return "\n".join(dict.fromkeys([*(f"{time:%Y-%m-%d %H:%M} UTC" for time in times), *texts]))

    def attachments(self) -> Iterator[Message]:
        """Yield the attachments in their order."""
        for name in self._names("__attach_version1.0_"):
            yield _attachment(_Storage(self.ole, [*self.path, name], 8))

    def _names(self, start: str) -> list[str]:
        """Return the names of streams and storages that begin so, in their order."""
        depth = len(self.path)
        names = {entry[depth] for entry in self.ole.listdir() if entry[:depth] == self.path}
        return sorted(name for name in names if name.startswith(start))

    def _stream(self, name: str) -> bytes:
        path = [*self.path, name]
        return bytes(self.ole.openstream(path).read()) if self.ole.get_type(path) == _STREAM else b""


def _message(storage: _Storage) -> Message:
    message = Message()
    for name, value in HeaderParser().parsestr(storage.text(0x007D)).raw_items():
        if not name.lower().startswith("content-"):
            message[name] = value
    sender, address = storage.text(0x0C1A, 0x0042), storage.text(0x5D01, 0x0C1F)
    sent = storage.number(0x0039) or storage.number(0x0E06)
    given = {
        "Subject": storage.text(0x0037),
        "From": f"{sender} <{address}>" if "@" in address and address != sender else sender,
        "To": storage.text(0x0E04).replace("; ", ", "),
        "Cc": storage.text(0x0E03).replace("; ", ", "),
        "Date": format_datetime(_EPOCH + timedelta(microseconds=sent // 10)) if 0 < sent < _LAST else "",
    }
    for name, value in given.items():
        if value and name not in message:
            message[name] = value
    plain, page = storage.text(0x1000), storage.text(0x1013)
    bodies = [_part("text/plain", plain.encode(), charset="utf-8")] if plain else []
    bodies += [_part("text/html", page.encode(), charset="utf-8")] if page else []
    bodies += [_part("text/html", data, charset=storage.charset)] if (data := storage.data(0x1013)) else []
    bodies += [_part("text/rtf", _expanded(data))] if not bodies and (data := storage.data(0x1009)) else []
    both = [_part("multipart/alternative", bodies)] if bodies else []
    is_mail = storage.text(0x001A).startswith(("IPM.Note", "REPORT."))
    fields = [] if is_mail else [_part("text/plain", storage.fields().encode(), charset="utf-8")]
    message["Content-Type"] = "multipart/mixed"
    message.set_payload([*both, *fields, *storage.attachments()])
    return message


def _attachment(storage: _Storage) -> Message:
    name = storage.text(0x3707, 0x3704, 0x3001)
    kind, data = storage.text(0x370E) or "application/octet-stream", storage.data(0x3701)
    if storage.number(0x3705) == _EMBEDDED:
        inner = _Storage(storage.ole, [*storage.path, "__substg1.0_3701000D"], 24)
        return _part("message/rfc822", [_message(inner)], name=name)
    if kind.lower().startswith("multipart/"):  # a signed mail, as it was sent
        return BytesParser().parsebytes(data)
    return _part(kind, data, name=name)


def _part(kind: str, content: bytes | Sequence[Message], **parameters: str) -> Message:
    part = Message()
    part.add_header("Content-Type", kind, **{key: value for key, value in parameters.items() if value})
    part.set_payload(content.decode("ascii", "surrogateescape") if isinstance(content, bytes) else [*content])
    return part


def _expanded(data: bytes) -> bytes:
    """Return compressed RTF as it was before (MS-OXRTFCP)."""
    _, size, kind, _ = struct.unpack_from("<I I 4s I", data)
    if kind != b"LZFu":
        return data[16 : 16 + size]
    text, at = bytearray(_RTF_START), 16
    while at < len(data):
        flags, at = data[at], at + 1
        for bit in range(8):
            if flags >> bit & 1 == 0:
                text += data[at : at + 1]
                at += 1
                continue
            reference = int.from_bytes(data[at : at + 2], "big")
            distance, at = (len(text) - (reference >> 4)) % _WINDOW, at + 2
            if at > len(data) or distance == 0 or len(text) > len(_RTF_START) + size:
                return bytes(text[len(_RTF_START) : len(_RTF_START) + size])
            for _ in range((reference & 15) + 2):
                text.append(text[-distance] if distance <= len(text) else 0)
    return bytes(text[len(_RTF_START) : len(_RTF_START) + size])
