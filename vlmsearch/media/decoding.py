"""The text in bytes of any character set.

Labels are those of the Encoding Standard (https://encoding.spec.whatwg.org/): ``iso-8859-1`` is Windows-1252, and
``gb2312`` is GB 18030. Without a label, chardet (0BSD) proposes character sets. Proposals lose by what no word has: a
Greek letter beside a Latin one, a capital or a sign between small letters, controls.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO

from vlmsearch.errors import InvalidInputError

STRAY = re.compile("[\udc80-\udcff]")
"""The surrogates that bytes are read as which have no character."""
COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and moves of a terminal, which programs write into their logs."""
UNCERTAIN, UNREADABLE = "uncertain character set", "unreadable character"
"""Kinds of what is not read for sure: all characters, where the choice was close, and single ones."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_ESCAPES = {b"\x1b$)C": "iso2022_kr", b"\x1b$": "iso2022_jp_ext", b"\x1b(J": "iso2022_jp_ext"}
"""Escapes that say which character set has the bytes of ASCII for its letters."""
_LANGUAGES = {
    "da dan de deu ger en eng es spa fi fin fr fra fre is it ita nb nob nl nld dut no nor pt por pob sv swe": (
        *("cp1252", "mac-roman", "cp850", "cp437", "iso8859-15"),
    ),
    "be bg bul mk ru rus sr srp uk ukr": ("cp1251", "koi8-r", "koi8-u", "cp866", "mac-cyrillic", "iso8859-5", "cp855"),
    "cs ces cze hr hrv hu hun pl pol ro ron rum sk slk slo sl slv": ("cp1250", "iso8859-2", "cp852", "mac-latin2"),
    "et est lt lit lv lav": ("cp1257", "iso8859-13", "iso8859-4", "cp775"),
    "el ell gre": ("cp1253", "iso8859-7", "cp737", "mac-greek"),
    "tr tur az aze": ("cp1254", "iso8859-9", "cp857"),
    "he heb": ("cp1255", "iso8859-8", "cp862"),
    "ar ara fa fas per ur urd": ("cp1256", "iso8859-6", "cp864"),
    "vi vie": ("cp1258",),
    "th tha": ("cp874",),
    "ja jpn": ("cp932", "euc_jis_2004"),
    "ko kor": ("cp949",),
    "zh chi zho chs cht": ("gb18030", "big5hkscs"),
}
"""Character sets of old texts, the likelier ones first, by the codes of their languages."""
_SETS = [name for sets in _LANGUAGES.values() for name in sets]
_FIRST = frozenset(sets[0] for sets in _LANGUAGES.values())
_CODECS = {"gbk": "gb18030", "euc-jp": "euc_jis_2004", "x-user-defined": "", "replacement": ""}
"""Python's names of character sets, where webencodings has others or none."""
_DOUBLE = frozenset({"big5hkscs", "cp932", "cp949", "euc_jis_2004", "gb18030"})
"""Character sets whose letters have two bytes, as some of UTF-8 have."""
_ACCIDENTS = 8
"""Fewer letters of two bytes may be valid UTF-8 by accident."""
_THREE_BYTES = re.compile(rb"[\xe0-\xef][\x80-\xbf]{2}")
_HEAD = 2**16
"""Bytes at the beginning of a table that decide on its character set."""
_SAMPLE = 2**13
"""Bytes of lines with letters beyond ASCII that are compared."""
_CLOSE, _DOUBT = 0.02, 0.1
"""Difference of the evidence for two texts below which the choice is close.

The second number is divided by the letters beyond ASCII, and added: few letters are little evidence.
"""
_PRIOR = 0.02
"""Score of the likeliest character set before any evidence, times the letters beyond ASCII.

The first ones of other languages have half of it.
"""
_SIGNS = 0.2
"""Score of a text whose characters beyond ASCII are all `_PROPER`."""
_FEW = 0.05
"""Share of controls in a text at most.

In a text with a label, twice the share of characters may be unreadable.
"""
_HIGH = bytes(range(128, 256))
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1a\x1b"))
_ODD = re.compile(
    r"[\x80-\x9f\udc80-\udcff\ue000-\uf8ff]"  # controls, and what has no meaning
    r"|[a-zß-ÿ][À-ÖØ-ÞĂĄĆČĎĐĒĖĘĚĢĪĶĹĽŁŃŅŇŐŔŘŚŞŠŢŤŪŮŰŸŹŻŽ]|[а-џ][Ѐ-Я]"  # a capital inside a word  # noqa: RUF001
    r"|[A-Za-zÀ-ɏ][Ͱ-ۿ]|[Ͱ-ۿ][A-Za-zÀ-ɏ]|(?<![^\W_])[Ͱ-ۿ](?![^\W_])"  # another alphabet, a letter of it alone
    r"|(?<=[^\W\d_])[¡-©«¬®-¶¸¹»-¿×÷ˆ-˝†-•‰₠-◿](?=[^\W\d_])"  # a sign  # noqa: RUF001
    r"|(?<=[^\W\d_])[⁰-₎─-▟]|[─-▟](?=[^\W_])"  # a box beside a letter
)
"""Characters that stand in no text, or seldom."""
_PROPER = re.compile(
    r"(?<=[eknty])’(?=s\b)|(?<=n)’(?=t\b)|(?<=\w)’(?=(?:d|ll|m|re|ve)\b)|(?<= )[–—](?= )"  # noqa: RUF001
    r"|(?<!\w)“(?=\w)|(?<=[\w.,!?])”(?!\w)|€(?= ?\d)|(?<=\d)€|(?<=\d )€|(?<=\d)°|§(?= ?\d)|(?m:^)•(?= )"
)
"""Signs where they stand in texts, which have few other characters in English."""
_OTHER = re.compile("[^\0-\x7f]")
_LINE = re.compile(rb"[^\n]{1,400}\n?")
_NO_TEXT = re.compile("[\0-\x08\x0e-\x19\x7f-\x9f\ue000-\uf8ff\ufffd-\uffff]")
_META = re.compile(rb"(?is)<!--.*?-->|<\?xml([^>]{0,200})|<meta[\s/]([^>]{0,500})")
_ATTRIBUTE = re.compile(rb"(?s)([^\s=/>\"']+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))")
_CHARSET = re.compile(rb"(?i)charset\s*=\s*[\"']?\s*([^\s;\"']+)")
_ERRORS = "vlmsearch.stray"


@dataclass(frozen=True)
class DecodedText:
    """A text that was bytes.

    Attributes:
        text: The text, with U+FFFD in place of bytes that cannot be read.
        encoding: Python's name of the character set.
        unread: Numbers of what is not read for sure, by kind.
    """

    text: str
    encoding: str
    unread: Mapping[str, int] = field(default_factory=dict)


def decoded(data: bytes, *, label: str = "", language: str = "") -> DecodedText:
    """Return the text of bytes.

    A byte order mark counts before all, and valid UTF-8 before a label: other texts are UTF-8 by rare accidents alone.
    Browsers follow a wrong label even there. Labels do not count where they leave many bytes without a character.

    Args:
        data: The bytes of a text.
        label: The name of its character set, such as ``gb2312``. An unknown one is none.
        language: The tag of its language, such as ``pt-BR`` or ``rus``, or "".

    Raises:
        InvalidInputError: ``unsupported`` where the bytes are those of no text.

    Example:
        >>> decoded("“Straße” für 12 €".encode("cp1252"), label="iso-8859-1").text
        '“Straße” für 12 €'
    """
    if mark := _mark(data):
        return _read(data[len(mark) :], _MARKS[mark])
    text, named = _read(data, "utf-8"), _codec(label)
    has_controls = len(data) - len(data.translate(None, _CONTROLS)) > _FEW * len(data)
    if has_controls or (text.unread and b"\0" in data):
        if codec := _wide_codec(data):
            return _read(data, codec)
        raise InvalidInputError("unsupported", "it is binary data, and no text")
    if escape := next((escape for escape in _ESCAPES if data.isascii() and escape in data), b""):
        return _read(data, _ESCAPES[escape])
    ascii_bytes, bad = len(data.translate(None, _HIGH)), text.unread.get(UNREADABLE, 0)
    others = len(text.text) - ascii_bytes - bad
    if others >= bad and (named not in _DOUBLE or not 0 < others < _ACCIDENTS or _THREE_BYTES.search(data)):
        return text
    if named not in ("", "utf-8"):
        text = _read(data, named)
        if text.unread.get(UNREADABLE, 0) <= 2 * _FEW * (len(data) - ascii_bytes):
            return text
    return _guessed(data, language)


def opened_text(file: IO[bytes], *, is_unicode: bool = False) -> tuple[TextIOWrapper, DecodedText]:
    """Return an open file as text, and its beginning, which decides on its character set.

    If that is ASCII, the first lines with other bytes decide. Bytes that cannot be read are `STRAY` surrogates.

    Args:
        file: A file at its beginning, which can seek.
        is_unicode: Whether other texts than those of Unicode are broken ones in UTF-8, as in JSON.

    Raises:
        InvalidInputError: As for `decoded`.
    """
    head = file.read(_HEAD)
    text = decoded(_whole_lines(head))
    if text.encoding == "utf-8" and head.isascii() and not is_unicode:
        while (sample := file.read(_HEAD)) and sample.isascii():
            pass
        with suppress(InvalidInputError):
            decisive = decoded(_whole_lines(sample + file.read(_HEAD)))
            text = replace(text, encoding=decisive.encoding, unread=decisive.unread)
    file.seek(len(_mark(head)))
    codecs.register_error(_ERRORS, _stray)
    encoding = "utf-8" if is_unicode and not text.encoding.startswith("utf") else text.encoding
    return TextIOWrapper(file, encoding, errors=_ERRORS, newline=""), text


def _whole_lines(data: bytes) -> bytes:
    """Return the beginning of a file without a line that may be cut."""
    cut = data.rfind(b"\n") + 1 if len(data) >= _HEAD else 0
    return data[:cut] or data


def page_label(data: bytes) -> str:
    """Return the name that a web page gives its character set, as browsers look for it.

    See https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding.
    """
    for head in _META.finditer(data[:4096]):
        values = {name.lower(): b"".join(value) for name, *value in _ATTRIBUTE.findall(head[1] or head[2] or b"")}
        is_type = values.get(b"http-equiv", b"").lower() == b"content-type"
        named = _CHARSET.search(values.get(b"content", b"")) if is_type else None
        if label := values.get(b"encoding" if head[1] else b"charset") or (named[1] if named else b""):
            return "utf-8" if label.lower().startswith(b"utf-16") else label.decode("ascii", "replace")
    return ""


def language_of(name: str | Path) -> str:
    """Return the tag of the language in the name of a file, "" for none.

    Example:
        >>> language_of("film.pt-BR.forced.srt")
        'pt-BR'
    """
    parts = Path(name).stem.split(".")[:0:-1]
    return next((part for part in parts if _sets_of(part)), "")


def _mark(data: bytes) -> bytes:
    return next(filter(data.startswith, _MARKS), b"")


def _codec(label: str) -> str:
    """Return Python's name of the character set of a label, "" for none."""
    import webencodings

    if known := webencodings.lookup(label):
        return str(_CODECS.get(known.name, known.codec_info.name))
    name = label.lower().replace("ibm", "cp")  # those of DOS, which mail has
    return name if name in _SETS else ""


def _sets_of(language: str) -> tuple[str, ...]:
    code = re.split("[-_]", language.lower())[0]
    return next((sets for codes, sets in _LANGUAGES.items() if code in codes.split()), ())


def _read(data: bytes, codec: str) -> DecodedText:
    """Return the text of bytes in a character set, and how many characters cannot be read."""
    try:
        return DecodedText(data.decode(codec), codec)
    except UnicodeDecodeError:
        codecs.register_error(_ERRORS, _stray)
    text, count = STRAY.subn("\ufffd", data.decode(codec, "surrogateescape" if codec == "utf-8" else _ERRORS))
    return DecodedText(text, codec, {UNREADABLE: count} if count else {})


def _stray(error: UnicodeError) -> tuple[str, int]:
    """Return the text of a byte that Python's character set lacks, and where to go on.

    Those of Windows have controls there, and GBK has the euro.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    byte, codec = error.object[error.start], error.encoding
    if codec.startswith("utf"):
        return chr(0xDC80 | byte), error.end
    is_control = codec == "charmap" and byte < 0xA0
    char = "€" if codec == "gb18030" and byte == 0x80 else chr(byte if is_control else 0xDC80 | byte)
    return char, error.start + 1


def _wide_codec(data: bytes) -> str:
    """Return UTF-32 or UTF-16 for bytes that are a text in it, or else "".

    The bytes in front of each character, which say its block, have fewer values than those after it.
    """
    head = data[:_HEAD]
    even, odd = len(set(head[::2])), len(set(head[1::2]))
    for codec in ("utf-32-le", "utf-32-be", "utf-16-le" if odd < even else "utf-16-be" if even < odd else "ascii"):
        text = codecs.getincrementaldecoder(codec)("replace").decode(head)
        if text and not _NO_TEXT.search(text):
            return codec
    return ""


def _guessed(data: bytes, language: str) -> DecodedText:
    """Return the text of bytes in the likeliest character set."""
    import chardet

    lines = (line[0] for line in _LINE.finditer(data) if not line[0].isascii())
    sample = data if len(data) <= _SAMPLE else b"".join(islice(lines, _SAMPLE // 40))[:_SAMPLE]
    hits = chardet.detect_all(sample, ignore_threshold=True, compat_names=False, include_encodings=_SETS)
    hints = _sets_of(language)
    candidates = []
    for codec, confidence in ((hit["encoding"], hit["confidence"]) for hit in hits if hit["encoding"] in _SETS):
        text = _read(sample, codec).text
        others = max(len(_OTHER.findall(text)), 1)
        proper = len(_PROPER.findall(text)) / others * codec.startswith("cp12")  # Macintosh and DOS have letters there
        odd = min(len(_ODD.findall(text)) / others, 1)
        evidence = confidence * (1 - odd) ** 3 * (2 if codec in hints else 1) + _SIGNS * proper
        prior = _PRIOR / others * (codec == (hints or _SETS)[0] or (codec in _FIRST) / 2)
        candidates.append((evidence + prior, -_SETS.index(codec), evidence, text))
    if not candidates:
        raise InvalidInputError("unsupported", "it is binary data, and no text")
    _, place, best, text = max(candidates)
    close = _CLOSE + _DOUBT / max(len(_OTHER.findall(text)), 1)
    rival = max((evidence for *_, evidence, other in candidates if other != text), default=0.0)
    whole = _read(data, _SETS[-place])
    return whole if best - rival >= close else replace(whole, unread={**whole.unread, UNCERTAIN: 1})
