"""Server-sent events (WHATWG HTML, section 9.2.6), as far as servers of language models use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def event_data(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each event; one that the end of the stream cuts off is left out.

    Lines end in LF or CR LF alone: text in JSON may hold every other separator of Unicode.
    """
    data: list[str] = []
    for line in _lines(chunks):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
