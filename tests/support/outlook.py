"""Mails of Outlook, written property by property into a compound file (MS-CFB, MS-OXMSG)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeAlias, Union

Value: TypeAlias = Union[str, bytes, int, datetime]
Properties: TypeAlias = Mapping[Union[int, tuple[int, str]], Value]
Tree: TypeAlias = "dict[str, Union[bytes, Tree]]"
_END, _FREE, _FAT, _NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF
_SECTOR, _SMALL, _CUTOFF = 512, 64, 4096


def outlook_mail(
    properties: Properties, attachments: Sequence[Properties] = (), *, inner: Mapping[int, Tree] | None = None
) -> bytes:
    """Return the bytes of a ``.msg``; ``inner`` has the trees of mails that are attached, by their places."""
    return compound(mail_tree(properties, attachments, inner=inner))


def mail_tree(
    properties: Properties,
    attachments: Sequence[Properties] = (),
    *,
    inner: Mapping[int, Tree] | None = None,
    head: int = 32,
) -> Tree:
    """Return the storages of a mail; those of one that is attached have a ``head`` of 24 bytes."""
    counts = struct.pack("<8xIIII", 0, len(attachments), 0, len(attachments)).ljust(head, b"\0")[:head]
    tree = _storage(properties, counts)
    for place, given in enumerate(attachments):
        storage = _storage(given, bytes(8))
        if inner and place in inner:
            storage["__substg1.0_3701000D"] = inner[place]
        tree[f"__attach_version1.0_#{place:08X}"] = storage
    return tree


def _storage(properties: Properties, head: bytes) -> Tree:
    """Return the properties of a message: texts are UTF-16, or bytes of a code page with the kind ``001E``."""
    tree: Tree = {}
    fixed = b""
    for key, value in properties.items():
        number, kind = key if isinstance(key, tuple) else (key, "")
        if isinstance(value, int):
            fixed += struct.pack("<HHIq", 0x0003, number, 6, value)
        elif isinstance(value, datetime):
            ticks = int((value - datetime(1601, 1, 1, tzinfo=timezone.utc)).total_seconds()) * 10**7
            fixed += struct.pack("<HHIQ", 0x0040, number, 6, ticks)
        else:
            data = value.encode("utf-16-le") if isinstance(value, str) else value
            kind = kind or ("001F" if isinstance(value, str) else "0102")
            tree[f"__substg1.0_{number:04X}{kind}"] = data
            fixed += struct.pack("<HHIQ", int(kind, 16), number, 6, len(data))
    return {"__properties_version1.0": head + fixed, **tree}


def compound(tree: Tree) -> bytes:
    """Return a compound file of version 3 with these storages and streams."""
    entries: list[tuple[str, int, bytes, list[int]]] = [("Root Entry", 5, b"", [])]

    def add(parent: int, children: Tree) -> None:
        for name in sorted(children, key=lambda name: (len(name), name.upper())):
            value = children[name]
            entries.append((name, 2 if isinstance(value, bytes) else 1, value if isinstance(value, bytes) else b"", []))
            entries[parent][3].append(len(entries) - 1)
            if not isinstance(value, bytes):
                add(len(entries) - 1, value)

    add(0, tree)
    sectors: list[bytes] = []
    chains: list[int] = []

    def put(data: bytes) -> int:
        first, count = len(sectors), -(-len(data) // _SECTOR)
        sectors.extend(data[i * _SECTOR : (i + 1) * _SECTOR].ljust(_SECTOR, b"\0") for i in range(count))
        chains.extend([*range(first + 1, first + count), _END] if count else [])
        return first if count else _END

    small, small_chains, starts = b"", list[int](), list[int]()
    for _, _, data, _ in entries:
        if len(data) >= _CUTOFF:
            starts.append(put(data))
            continue
        count, first = -(-len(data) // _SMALL), len(small_chains)
        starts.append(first if count else _END)
        small_chains += [*range(first + 1, first + count), _END] if count else []
        small += data.ljust(count * _SMALL, b"\0")
    starts[0] = put(small)
    links: dict[int, int] = {}
    for _, _, _, children in entries:
        links.update(zip(children, [*children[1:], _NONE]))
    directory = b"".join(
        struct.pack(
            "<64sHBBIII36xIQ", name.encode("utf-16-le"), 2 * len(name) + 2, kind, 1, _NONE, links.get(place, _NONE),
            children[0] if children else _NONE, starts[place], len(small) if place == 0 else len(data),
        )
        for place, (name, kind, data, children) in enumerate(entries)
    )  # fmt: skip
    minifat = struct.pack(f"<{len(small_chains)}I", *small_chains)
    first_directory, first_small = put(directory), put(minifat.ljust(-(-len(minifat) // _SECTOR) * _SECTOR, b"\xff"))
    count = next(count for count in range(1, 110) if count * _SECTOR // 4 >= len(chains) + count)
    first = len(chains)
    table = [*chains, *[_FAT] * count]
    fat = struct.pack(f"<{len(table)}I", *table).ljust(count * _SECTOR, b"\xff")
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6, 0, count,
        first_directory, 0, _CUTOFF, first_small, len(minifat) // _SECTOR + 1, _END, 0,
    )  # fmt: skip
    places = [*range(first, first + count), *[_FREE] * (109 - count)]
    return header + struct.pack("<109I", *places) + b"".join(sectors) + fat
