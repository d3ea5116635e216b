"""Outlook's ``.msg``: a compound file of properties (MS-OXMSG), turned into the parts of a mail."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.message import Message
from email.parser import BytesParser, HeaderParser
from email.utils import format_datetime
from typing import TYPE_CHECKING

from vlmsearch._util.extras import install_command
from vlmsearch.errors import InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media.decoding import decoded

if TYPE_CHECKING:
    from olefile import OleFileIO

_EMBEDDED = 5
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
_EPOCH = datetime(1601, 1, 1, tzinfo=timezone.utc)


def message_of(data: bytes) -> Message:
    """Return the parts of a mail.

    Raises:
        InvalidInputError: ``corrupt``.
        MissingDependencyError: olefile is not installed.
    """
    try:
        from olefile import OleFileIO
    except ImportError as exc:
        raise MissingDependencyError(f"mail of Outlook needs olefile: {install_command('msg')}") from exc
    try:
        return _message(_Storage(OleFileIO(data), [], 32))
    except (OSError, ValueError, struct.error, IndexError) as exc:
        raise InvalidInputError("corrupt", f"a mail of Outlook is damaged: {one_line(exc)}") from exc


class _Storage:
    """The properties of a message or an attachment, by their numbers."""

    def __init__(self, ole: OleFileIO, path: list[str], head: int) -> None:
        self.ole, self.path = ole, path
        entries = self._stream("__properties_version1.0")[head:]
        self._fixed = {
            number: value for _, number, _, value in struct.iter_unpack("<HHI8s", entries[: len(entries) // 16 * 16])
        }

    def number(self, property: int, default: int = 0) -> int:
        """Return a number."""
        return struct.unpack("<I4x", self._fixed[property])[0] if property in self._fixed else default

    def time(self, property: int) -> datetime | None:
        """Return a time."""
        ticks = struct.unpack("<Q", self._fixed.get(property, bytes(8)))[0]
        return _EPOCH + timedelta(microseconds=ticks // 10) if ticks else None

    def data(self, property: int) -> bytes:
        """Return bytes; none where they are missing."""
        return self._stream(f"__substg1.0_{property:04X}0102")

    def text(self, *properties: int) -> str:
        """Return the text of the first property that has one."""
        for property in properties:
            if data := self._stream(f"__substg1.0_{property:04X}001F"):
                return data.decode("utf-16-le", "replace").strip("\0")
            if data := self._stream(f"__substg1.0_{property:04X}001E"):
                with suppress(LookupError, ValueError):
                    return data.decode(self.charset or "utf-8").strip("\0")
                return decoded(data).strip("\0")
        return ""

    @property
    def charset(self) -> str:
        """Return the character set of texts in bytes."""
        page = self.number(0x3FDE) or self.number(0x3FFD)
        if 28591 <= page <= 28606:
            return f"iso-8859-{page - 28590}"
        return _CODE_PAGES.get(page, f"windows-{page}" if page else "")

    def storages(self, prefix: str) -> list[list[str]]:
        """Return the paths of the storages whose names begin so."""
        depth = len(self.path)
        names = {tuple(entry[: depth + 1]) for entry in self.ole.listdir() if entry[:depth] == self.path}
        return sorted(list(name) for name in names if len(name) > depth and name[depth].startswith(prefix))

    def _stream(self, name: str) -> bytes:
        path = [*self.path, name]
        return self.ole.openstream(path).read() if self.ole.get_type(path) == 2 else b""


def _message(storage: _Storage) -> Message:
    message = Message()
    for name, value in HeaderParser().parsestr(storage.text(0x007D)).raw_items():
        if not name.lower().startswith("content-"):
            message[name] = value
    sender, address = storage.text(0x0C1A, 0x0042), storage.text(0x5D01, 0x0C1F)
    sent = storage.time(0x0039) or storage.time(0x0E06)
    given = {
        "Subject": storage.text(0x0037),
        "From": f"{sender} <{address}>" if "@" in address and address != sender else sender,
        "To": storage.text(0x0E04),
        "Cc": storage.text(0x0E03),
        "Date": format_datetime(sent) if sent else "",
    }
    for name, value in given.items():
        if value and name not in message:
            message[name] = value.replace("; ", ", ") if name in ("To", "Cc") else value
    plain, html = storage.text(0x1000), storage.data(0x1013)
    text = html or storage.text(0x1013).encode()
    bodies = [_leaf("text/plain", plain.encode(), "utf-8")] if plain else []
    bodies += [_leaf("text/html", text, storage.charset if html else "utf-8")] if text else []
    rtf = storage.data(0x1009) if not bodies else b""
    bodies += [_leaf("text/rtf", _expanded(rtf))] if rtf else []
    attached = [_attachment(storage, path) for path in storage.storages("__attach_version1.0_")]
    return _multipart(message, "mixed", [_multipart(Message(), "alternative", bodies), *attached])


def _attachment(storage: _Storage, path: list[str]) -> Message:
    attachment = _Storage(storage.ole, path, 8)
    name = attachment.text(0x3707, 0x3704, 0x3001)
    kind = attachment.text(0x370E) or "application/octet-stream"
    if attachment.number(0x3705) == _EMBEDDED:
        part = _leaf("message/rfc822", b"", name=name)
        part.set_payload([_message(_Storage(storage.ole, [*path, "__substg1.0_3701000D"], 24))])
        return part
    data = attachment.data(0x3701)
    if kind.lower().startswith("multipart/"):  # a signed mail, as it was sent
        return BytesParser().parsebytes(data)
    return _leaf(kind, data, name=name)


def _multipart(part: Message, kind: str, children: Iterable[Message]) -> Message:
    part["Content-Type"] = f"multipart/{kind}"
    part.set_payload([*children])
    return part


def _leaf(kind: str, data: bytes, charset: str = "", *, name: str = "") -> Message:
    part = Message()
    part["Content-Type"] = kind
    if charset:
        part.set_param("charset", charset)
    if name:
        part.add_header("Content-Disposition", "attachment", filename=name)
    part.set_payload(data.decode("ascii", "surrogateescape"))
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
