"""Documents in ZIP archives: their members, and an inventory of those that were not read.

The inventory does not depend on a reader. Each member that was not opened is looked up in a table of kinds, and counts
as an ``other part`` where no pattern fits. So a part that nobody thought of is said, and not lost.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING
from unicodedata import normalize
from urllib.parse import unquote

from vlmsearch._util.extras import install_command
from vlmsearch.errors import InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.office.content import AUTHORS_JOINT

if TYPE_CHECKING:
    from lxml.etree import _Element

MAX_BYTES = 100 * 2**20
"""The most bytes that all members unpack to together."""
NOTHING = ""
"""The kind of members that hold nothing for a reader."""
OTHER = "other part"
"""The kind of members that no pattern fits."""
_MEDIA = (
    (r"(?i).*\.(png|jpe?g|gif|bmp|tiff?|webp|svgz?|svm|emf|wmf|emz|wmz|ico|pict|jxr|wdp|heic|avif)", "picture"),
    (r"(?i).*\.(mp4|m4v|mov|avi|wmv|webm|mkv|mpe?g|3gp)", "film"),
    (r"(?i).*\.(mp3|m4a|wav|ogg|oga|opus|flac|aac|wma|aiff?|midi?)", "sound"),
)
"""Kinds of members that are the same in all formats, tried after those of the format."""
_SAFE = {"resolve_entities": False, "no_network": True, "huge_tree": True}
PARSER_OPTIONS = {"remove_comments": True, "remove_pis": True, **_SAFE}
"""Options of every parser of a member: no entity is resolved, and nothing else is read."""
_OLE = b"\xd0\xcf\x11\xe0"


class Package:
    """The members of a document in a ZIP archive.

    Args:
        data: The bytes of the file.
        name: The name of the file in messages, quoted.

    Raises:
        InvalidInputError: ``corrupt``; ``unsupported`` where it is encrypted, or in an older format.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._name = name
        self._left = MAX_BYTES
        self._opened: set[str] = set()
        self._roles: dict[str, str] = {}
        self.damaged = 0
        """Number of XML members that were not read as a whole, since they are damaged."""
        if data.startswith(_OLE):
            raise InvalidInputError("unsupported", f"{name} is encrypted, or in a format of before 2007: save it anew")
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except Exception as exc:
            raise self._corrupt(exc) from exc
        self.names = tuple(dict.fromkeys(info.filename for info in self._archive.infolist() if not info.is_dir()))
        self._by_key = {_key(member): member for member in self.names}

    def read(self, member: str) -> bytes:
        """Return the bytes of a member, which counts as read.

        Raises:
            InvalidInputError: ``corrupt``; ``too_large``; ``unsupported`` where it is encrypted.
        """
        try:
            with self._archive.open(member) as file:
                data = file.read(self._left + 1)
        except RuntimeError as exc:
            raise InvalidInputError("unsupported", f"{self._name} is encrypted: save it without its password") from exc
        except Exception as exc:
            raise self._corrupt(exc) from exc
        self._left -= len(data)
        if self._left < 0:
            raise InvalidInputError("too_large", f"{self._name} is too large: it unpacks to over {MAX_BYTES:,} bytes")
        self._opened.add(member)
        return data

    def xml(self, member: str) -> _Element:
        """Return the root of an XML member, which counts as read.

        Of a damaged one that is what can be read, and `damaged` counts it. Entities are not resolved.

        Raises:
            InvalidInputError: As for `read`; ``corrupt`` where nothing of it can be read.
        """
        return self._parsed(member, self.read(member))

    def _parsed(self, member: str, data: bytes) -> _Element:
        try:
            from lxml import etree
        except ImportError as exc:
            raise MissingDependencyError(f"office documents need lxml: {install_command('office')}") from exc
        try:
            return etree.fromstring(data, etree.XMLParser(**PARSER_OPTIONS))
        except etree.XMLSyntaxError as exc:
            with suppress(etree.XMLSyntaxError):
                root = etree.fromstring(data, etree.XMLParser(recover=True, **PARSER_OPTIONS))
                if root is not None:
                    self.damaged += 1
                    return root
            raise self._corrupt(f"{member}: {one_line(exc)}") from exc

    def part(self, member: str) -> _Element | None:
        """Return the root of an XML member, or None where nothing of it can be read.

        The member counts as read, and `damaged` counts one that is damaged in part or as a whole.

        Raises:
            InvalidInputError: As for `read`, but not ``corrupt``.
        """
        try:
            return self.xml(member)
        except InvalidInputError as exc:
            if exc.code != "corrupt":
                raise
            self.damaged += 1
            self._opened.add(member)
            return None

    def relations(self, member: str = "", role: str = "") -> dict[str, tuple[str, str]]:
        """Return the relations of a member, or of the whole package (ECMA-376, part 2).

        A role is the type of a relation after that of its owner, such as ``slide>image``. `unread` knows all targets
        by their roles, also those that are elsewhere.

        Args:
            member: A member; "" for the package.
            role: The role of the member.

        Returns:
            Role and target of each relation by its identifier, where the target is a member.
        """
        folder, name = posixpath.split(_slashed(member))
        part = self._by_key.get(_key(posixpath.join(folder, "_rels", f"{name}.rels")))
        root = None if part is None else self.part(part)
        relations = {}
        for relation in () if root is None else root.iter("{*}Relationship"):
            target = relation.get("Target", "")
            kind = f"{role.rpartition('>')[2]}>{relation.get('Type', '').rpartition('/')[2]}"
            named = "" if relation.get("TargetMode") == "External" else self.named(folder, target)
            if named:
                relations[relation.get("Id", "")] = kind, named
            self._roles.setdefault(named or target, kind)
        return relations

    def named(self, folder: str, reference: str) -> str:
        """Return the member that a URL reference names, in letters of any case; "" for none."""
        path = posixpath.join("/", folder, re.split("[#?]", reference)[0])
        return self._by_key.get(_key(posixpath.normpath(path)), "")

    def leave(self, member: str) -> None:
        """Count a member as not read, although it was opened."""
        self._opened.discard(member)

    def about(self, member: str) -> About:
        """Return the title and the authors in a member with Dublin Core.

        The first authors of an OpenDocument text count, and not its last editor. A damaged description is none.
        """
        try:
            root = self.xml(member)
        except InvalidInputError:
            return About()
        names = ("{*}title", "{*}initial-creator", "{*}creator")
        title, first, last = ([*filter(None, map(_text, root.iter(name)))] for name in names)
        return About(title[0] if title else "", AUTHORS_JOINT.join(dict.fromkeys(first or last)))

    def unread(self, kinds: Iterable[tuple[str, str]], *counts: Counter[str]) -> dict[str, int]:
        """Return the numbers of members that nothing opened, by kind.

        Args:
            kinds: Patterns of whole names or roles of members, each with a kind; `NOTHING` if no reader misses them.
                The first one that fits counts.
            counts: What else was not read, to add.
        """
        table = [(re.compile(pattern), kind) for pattern, kind in (*kinds, *_MEDIA)]
        total = sum(counts, Counter({"damaged part": self.damaged}))
        names = dict.fromkeys([*self.names, *self._roles])
        labels = ((_slashed(name), self._roles.get(name, name)) for name in names if name not in self._opened)
        total.update(_kind(label, table) for label in labels)
        return {kind: count for kind, count in sorted(total.items()) if kind and count}

    def _corrupt(self, why: object) -> InvalidInputError:
        reason = one_line(why) if isinstance(why, Exception) else why
        return InvalidInputError("corrupt", f"{self._name} is damaged, or is not what its name says: {reason}")


def _kind(labels: tuple[str, str], table: Sequence[tuple[re.Pattern[str], str]]) -> str:
    return next((kind for pattern, kind in table if any(map(pattern.fullmatch, labels))), OTHER)


def _key(path: str) -> str:
    return _slashed(normalize("NFC", unquote(path))).lstrip("/").lower()


def _slashed(path: str) -> str:
    """Return a path without the backslashes of archives by .NET."""
    return path.replace("\\", "/")


def _text(element: _Element) -> str:
    return " ".join("".join(map(str, element.itertext())).split())
