"""Small files that cost what reads them its memory, its time or its life; and mutations of ordinary files."""

from __future__ import annotations

import gzip
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from av.packet import Packet
from PIL import Image

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
_TYPES = (
    f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>'
)


def _relation(target: str, kind: str) -> str:
    link = f'<Relationship Id="rId1" Type="{_OFFICE}/{kind}" Target="{target}"/>'
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{link}</Relationships>'


def _zip(path: Path, parts: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)


def _nested_epub(path: Path) -> None:
    container = (
        f'<container xmlns="{_OASIS}:container" version="1.0"><rootfiles>'
        '<rootfile full-path="p.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>'
        '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="c"/></spine></package>'
    )
    page = "<html><body>" + "<div>" * 200_000 + "x" + "</div>" * 200_000 + "</body></html>"
    parts = {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "p.opf": package, "c.xhtml": page}
    _zip(path, parts)


def _nested_odt(path: Path) -> None:
    names = f'xmlns:office="{_OASIS}:office:1.0" xmlns:text="{_OASIS}:text:1.0"'
    body = "<text:section>" * 200_000 + "<text:p>x</text:p>" + "</text:section>" * 200_000
    content = (
        f"<office:document-content {names}><office:body><office:text>{body}"
        "</office:text></office:body></office:document-content>"
    )
    _zip(path, {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def _wide_docx(path: Path) -> None:
    cell = '<w:tc><w:tcPr><w:gridSpan w:val="2000000000"/></w:tcPr><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc>'
    text = f'<w:document xmlns:w="{_WORD}"><w:body><w:tbl><w:tr>{cell}</w:tr></w:tbl></w:body></w:document>'
    links = _relation("word/document.xml", "officeDocument")
    _zip(path, {"[Content_Types].xml": _TYPES, "_rels/.rels": links, "word/document.xml": text})


def _sparse_xlsx(path: Path) -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="100000"><c r="ZZ100000"><v>2</v></c></row>'
    book = (
        f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets><sheet name="S" sheetId="1" r:id="rId1"/></sheets>'
        "</workbook>"
    )
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _relation("xl/workbook.xml", "officeDocument"),
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": _relation("worksheets/sheet1.xml", "worksheet"),
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEET}"><sheetData>{rows}</sheetData></worksheet>',
    }
    _zip(path, parts)


def _repeating_parquet(path: Path) -> None:
    """A dictionary of one text of 16 MiB, which all rows have."""
    text = pa.array(["a" * 2**24], pa.large_string())
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), text)
    table = pa.table({"id": [f"r{row}" for row in range(64)], "text": texts})
    pq.write_table(table, path, compression="zstd", store_schema=False)


def _long_name_tar(path: Path) -> None:
    """A tar with the name of a file that is 1 GiB long, compressed."""
    size = 2**30
    name, file = tarfile.TarInfo("././@LongLink"), tarfile.TarInfo("a.txt")
    name.type, name.size, file.size = tarfile.GNUTYPE_LONGNAME, size, 1
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(name.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size // 2**24):
            packed.write(bytes(2**24))
        packed.write(file.tobuf() + b"x".ljust(512, b"\0") + bytes(1024))


def pdf_of(objects: list[bytes]) -> bytes:
    """A PDF of some objects, of which the first is its catalogue."""
    data, places = b"%PDF-1.7\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%btrailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return data + end % (len(objects) + 1, table, len(objects) + 1, len(data))


def nested_forms(levels: int) -> bytes:
    """A PDF whose page draws ten forms, each of which draws ten forms, and so on."""

    def form(content: bytes, extra: bytes = b"") -> bytes:
        return b"<<%b/Length %d>>\nstream\n%b\nendstream" % (extra, len(content), content)

    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>>>",
        form(b"/F Do " * 10),
    ]
    for level in range(levels):
        kind = b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]"
        if level == levels - 1:
            objects.append(form(b"0 0 500 500 re f", kind))
        else:
            objects.append(form(b"/F Do " * 10, kind + b"/Resources<</XObject<</F %d 0 R>>>>" % (6 + level)))
    return pdf_of(objects)


def _growing_film(path: Path) -> None:
    """A film whose header says 64 by 64, and whose frames after the first are 16,000 by 16,000."""

    def jpeg(side: int) -> bytes:
        data = BytesIO()
        Image.new("L", (side, side), 99).convert("RGB").save(data, "JPEG", quality=20, subsampling=0)
        return data.getvalue()

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=1)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuvj444p"
        frames = [jpeg(64)] + [jpeg(16_000)] * 4
        for number, data in enumerate(frames):
            packet = Packet(data)
            packet.stream, packet.time_base = stream, Fraction(1)
            packet.pts = packet.dts = number
            packet.is_keyframe = True
            container.mux(packet)


def _film_with_brackets(path: Path) -> None:
    """A film whose title is 200,000 brackets that are not closed."""
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "<{" * 100_000
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for angle in (0, 180):
            picture = Image.linear_gradient("L").resize((64, 64)).rotate(angle)
            frame = av.VideoFrame.from_ndarray(np.asarray(picture.convert("RGB")))
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _page_of_tags(path: Path) -> None:
    path.write_bytes(b"<p>a page</p>" + b"<a " * 60_000)


HOSTILE: dict[str, tuple[Callable[[Path], object], frozenset[str]]] = {
    "nested.epub": (_nested_epub, frozenset({"corrupt"})),
    "nested.odt": (_nested_odt, frozenset({"corrupt"})),
    "wide.docx": (_wide_docx, frozenset({"too_large"})),
    "sparse.xlsx": (_sparse_xlsx, frozenset({"too_large"})),
    "repeating.parquet": (_repeating_parquet, frozenset({"too_large", ""})),
    "long-name.tar": (_long_name_tar, frozenset({"too_large"})),
    "forms.pdf": (lambda path: path.write_bytes(nested_forms(9)), frozenset({"too_large", "timeout"})),
    "slow.pdf": (lambda path: path.write_bytes(nested_forms(5)), frozenset({"too_large", "timeout"})),
    "growing.avi": (_growing_film, frozenset({"too_large", "truncated", "corrupt", ""})),
    "brackets.mkv": (_film_with_brackets, frozenset({""})),
    "tags.html": (_page_of_tags, frozenset({""})),
}
"""Files by name: what writes them, and the codes that they may be rejected with, "" for none."""


def write_hostile(folder: Path) -> None:
    """Write all of them into a folder."""
    for name, (write, _) in HOSTILE.items():
        write(folder / name)


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield files with bytes that are changed, cut out, doubled or swapped, the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 8, 64))):
            at, length = chance.randrange(len(changed)), chance.choice((1, 1, 4, 64, 1024))
            kind = chance.randrange(5)
            if kind == 0:
                changed[at] = chance.randrange(256)
            elif kind == 1:
                changed[at : at + length] = chance.randbytes(length)
            elif kind == 2 and len(changed) > length + 64:
                del changed[at : at + length]
            elif kind == 3:
                changed[at:at] = changed[at : at + length]
            else:
                changed[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"))
        yield bytes(changed)
