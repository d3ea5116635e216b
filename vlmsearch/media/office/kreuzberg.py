"""Formats that Kreuzberg reads (https://github.com/Goldziher/kreuzberg, MIT)."""

from __future__ import annotations

from vlmsearch.errors import InvalidInputError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.office.content import AUTHORS_JOINT, Content, clean
from vlmsearch.media.office.package import Package


def read_as(kind: str, data: bytes, name: str) -> Content:
    """Return the content of a document of a media type."""
    from kreuzberg import ExtractionConfig, KreuzbergError, extract_bytes_sync

    config = ExtractionConfig(output_format="plain", use_cache=False, extraction_timeout_secs=60)
    try:
        result = extract_bytes_sync(data, kind, config=config)
    except (KreuzbergError, RuntimeError, OSError, ValueError) as exc:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: {one_line(exc)}") from exc
    if data.startswith(b"PK"):
        package = Package(data, name)
        ends = ("docProps/core.xml", ".psmdcp", "meta.xml", ".opf")
        about = next((package.about(member) for member in package.names if member.endswith(ends)), About())
        return Content(clean(result.content), about)
    title, authors = result.metadata.get("title"), result.metadata.get("authors")
    return Content(clean(result.content), About(title or "", AUTHORS_JOINT.join(authors or ())))
