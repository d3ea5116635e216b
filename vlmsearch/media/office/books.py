"""E-books: ``.epub``, of EPUB 2 and 3 (https://www.w3.org/TR/epub-33/)."""

from __future__ import annotations

import posixpath
import re
from collections import Counter

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.office import pages
from vlmsearch.media.office.content import Content
from vlmsearch.media.office.package import NOTHING, Package

_KINDS = (
    (r"mimetype|META-INF/.*", NOTHING),  # how the archive is packed, signed and shown
    (r"(?i).*\.(css|xpgt|otf|ttf|ttc|woff2?|eot)", NOTHING),  # styles and fonts
    (r"(?i).*\.x?html?", "page"),  # damaged, or not of the book
    (r"(?i).*\.(js|pls|smil)", NOTHING),  # programs; how words are spoken, and when
    (r"(?i)(.*/)?(page-?map\.xml|iTunes.*|\.DS_Store|Thumbs\.db|__MACOSX/.*)", NOTHING),  # of programs
)
_PAGE, _IN_SPINE = re.compile("(?i)htm|oeb1|dtbook"), re.compile("(?i)htm|oeb1|xml")
"""Parts of types and endings of pages, and of those in the spine, such as drawings."""
_CONTENTS = "application/x-dtbncx+xml"
"""The type of the table of contents of EPUB 2. That of EPUB 3 is a page with the property ``nav``."""
_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PROTECTED = (
    "//*[local-name()='EncryptedData'][not(*[@Algorithm='http://www.idpf.org/2008/embedding' or "
    "@Algorithm='http://ns.adobe.com/pdf/enc#RC'])]//*[local-name()='CipherReference']/@URI"
)
"""XPath of what is encrypted. The two named ways only keep fonts from those who unpack a book."""


def read(data: bytes, name: str) -> Content:
    """Return the content of a book: its pages in order, then those outside of the order, such as notes.

    Tables of contents repeat the headings: only lines with a word that is nowhere else in the book are read of them.
    The titles of single pages are left out, since no reader shows them, and many are those of a program.

    Raises:
        InvalidInputError: As for `Package`; ``unsupported`` where its pages are protected.
    """
    package = Package(data, name)
    files = package.xml(_CONTAINER).iter("{*}rootfile") if _CONTAINER in package.names else ()
    named = [package.named("", file.get("full-path", "")) for file in files]
    description = next(filter(None, [*named, *(name for name in package.names if name.endswith(".opf"))]), "")
    if not description:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: it names no pages")
    root = package.xml(description)
    manifest = {item.get("id"): item for item in root.iter("{*}item")}
    spine = [manifest.get(reference.get("idref")) for reference in root.iter("{*}itemref")]
    unread = Counter({"missing part": spine.count(None)})
    encrypted = package.xml(_ENCRYPTION).xpath(_PROTECTED) if _ENCRYPTION in package.names else ()
    protected = {package.named("", reference) for reference in encrypted}
    texts: dict[str, str] = {}
    contents: dict[str, str] = {}
    for item in dict.fromkeys([*(item for item in spine if item is not None), *manifest.values()]):
        href, kind = item.get("href", ""), item.get("media-type", "")
        member = package.named(posixpath.dirname(description), href)
        is_contents = kind == _CONTENTS or "nav" in item.get("properties", "").split()
        if not member:
            unread["missing part"] += not re.match(r"\w+:", href)
        elif is_contents or (_IN_SPINE if item in spine else _PAGE).search(kind + posixpath.splitext(member)[1]):
            if member in protected:
                raise InvalidInputError("unsupported", f"{name} is protected against copying: its text cannot be read")
            try:
                page = pages.read(package.read(member), name)
            except InvalidInputError as exc:
                if exc.code == "too_large":
                    raise
                package.leave(member)
                continue
            (contents if is_contents else texts).setdefault(member, page.text)
            unread.update(page.unread)
    about = package.about(description)
    known = {about.title, *"\n".join(texts.values()).splitlines()}
    labels = dict.fromkeys(line for text in contents.values() for line in text.splitlines() if line not in known)
    words = _words("\n".join((*known, about.author))) if labels else set()
    lines = (line for line in labels if _words(line) - words)
    text = "\n\n".join(filter(None, (*texts.values(), "\n".join(lines))))
    return Content(text, about, package.unread(_KINDS, unread))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d]+", text.casefold()))
