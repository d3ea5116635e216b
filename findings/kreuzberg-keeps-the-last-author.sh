#!/usr/bin/env bash
# Kreuzberg 4.10.4: of a book's creators (EPUB, dc:creator twice, which the format allows) the metadata holds the last one
# alone. Of an OpenDocument text it holds who edited it last and not who wrote it (meta:initial-creator), and of a
# spreadsheet with the same meta.xml neither title nor author.
# Seen:
#   epub: title 'Winter', authors ['Ben Ode'], says True
#   odt: title 'Winter', authors ['Ben Ode'], says True
#   ods: title None, authors None, says True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kreuzberg==4.10.4
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import zipfile

from kreuzberg import extract_file_sync

DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'


def write(path, media_type, files):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", media_type, zipfile.ZIP_STORED)
        for name, text in files.items():
            archive.writestr(name, text)
    return path


book = write(
    "book.epub",
    "application/epub+zip",
    {
        "META-INF/container.xml": '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "book.opf": f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id"><metadata {DC}>'
        '<dc:identifier id="id">urn:x</dc:identifier><dc:title>Winter</dc:title><dc:language>en</dc:language>'
        "<dc:creator>Ann Lee</dc:creator><dc:creator>Ben Ode</dc:creator></metadata>"
        '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>',
        "a.xhtml": '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Winter</title></head>'
        "<body><p>It snows.</p></body></html>",
    },
)
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
TEXT, TABLE = ("urn:oasis:names:tc:opendocument:xmlns:%s:1.0" % name for name in ("text", "table"))
META = (
    f'<office:document-meta xmlns:office="{OFFICE}" xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0" {DC}>'
    "<office:meta><dc:title>Winter</dc:title><meta:initial-creator>Ann Lee</meta:initial-creator>"
    "<dc:creator>Ben Ode</dc:creator></office:meta></office:document-meta>"
)
BODIES = {
    "text": "<office:text><text:p>It snows.</text:p></office:text>",
    "spreadsheet": '<office:spreadsheet><table:table table:name="A"><table:table-row><table:table-cell '
    'office:value-type="string"><text:p>It snows.</text:p></table:table-cell></table:table-row></table:table>'
    "</office:spreadsheet>",
}
MANIFEST = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
seen = [("epub", extract_file_sync(book))]
for kind, body in BODIES.items():
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    path = write(
        f"a.{'odt' if kind == 'text' else 'ods'}",
        media_type,
        {
            "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{MANIFEST}"><manifest:file-entry '
            f'manifest:full-path="/" manifest:media-type="{media_type}"/></manifest:manifest>',
            "meta.xml": META,
            "content.xml": f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{TEXT}" '
            f'xmlns:table="{TABLE}"><office:body>{body}</office:body></office:document-content>',
        },
    )
    seen.append((path.rpartition(".")[2], extract_file_sync(path)))
facts = {}
for name, result in seen:
    metadata = result.metadata if isinstance(result.metadata, dict) else vars(result.metadata)
    facts[name] = (metadata.get("title"), metadata.get("authors"))
    print(f"{name}: title {facts[name][0]!r}, authors {facts[name][1]!r}, says {'It snows' in result.content}")
if facts != {"epub": ("Winter", ["Ben Ode"]), "odt": ("Winter", ["Ben Ode"]), "ods": (None, None)}:
    sys.exit("changed: other titles or authors")
PYTHON
