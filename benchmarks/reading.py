"""Files read: office documents beside Kreuzberg and pandoc, pages of PDF beside plain pypdfium2.

All contenders read the same files in turns, in this process; pandoc is a program, whose start counts. A page is its
text and its picture, in the same size. ``pip install kreuzberg pypandoc_binary`` for the two peers.

With ``--words`` it names the words that pandoc gives and vlmsearch does not. pandoc numbers slides and lists, and
writes raised characters as those of Unicode, which are no words of a file.

Example: ``python -m benchmarks.reading ~/Documents``
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from benchmarks.common import in_turns, print_figures, rounds_option
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.office import OFFICE_SUFFIXES, read_office
from vlmsearch.media.pdf import read_pages, scale_of

_MIME = "application/vnd.openxmlformats-officedocument."
_TYPES = {
    ".docx": f"{_MIME}wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".pptx": f"{_MIME}presentationml.presentation",
    ".rtf": "application/rtf",
    ".xlsx": f"{_MIME}spreadsheetml.sheet",
}
"""Media types of what all three read, by ending."""


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@rounds_option
@click.option("--words", is_flag=True, help="Name the words that pandoc gives, and vlmsearch does not.")
def main(folders: tuple[Path, ...], rounds: int, words: bool) -> None:
    """Read the files in FOLDERS, and print milliseconds a file by ending."""
    files = defaultdict[str, list[Path]](list)
    for path in sorted(path for folder in folders for path in (folder.rglob("*") if folder.is_dir() else [folder])):
        if path.is_file() and (path.suffix.lower() in OFFICE_SUFFIXES or path.suffix.lower() == ".pdf"):
            files[path.suffix.lower()].append(path)
    if not files:
        raise click.UsageError("there is no office document and no PDF")
    if words:
        for suffix in sorted(files.keys() & _TYPES.keys()):
            _print_missing(suffix, files[suffix])
        return
    rows = [row for suffix, paths in sorted(files.items()) for row in _rows(suffix, paths, rounds)]
    print_figures("Milliseconds a file", ("format", "files", "reader", "ms", "beside vlmsearch"), rows, left=1)


def _rows(suffix: str, paths: Sequence[Path], rounds: int) -> list[tuple[str, ...]]:
    contenders = {"pypdfium2": _plain_pdf} if suffix == ".pdf" else _peers(suffix)
    ours = _pages if suffix == ".pdf" else read_office
    readers = {"vlmsearch": partial(_try, ours), **{name: partial(_try, reader) for name, reader in contenders.items()}}
    seconds, _ = in_turns(readers, list(paths) * rounds)
    mean = {name: sum(times) / len(times) for name, times in seconds.items()}
    return [
        (suffix, str(len(paths)), name, f"{1000 * time:.1f}", f"{time / mean['vlmsearch']:.2f}")
        for name, time in mean.items()
    ]


def _print_missing(suffix: str, paths: Sequence[Path]) -> None:
    pandoc, total, missing = _peers(suffix)["pandoc"], 0, dict[Path, list[str]]()
    for path in paths:
        with suppress(InvalidInputError, subprocess.CalledProcessError):
            content, peer = read_office(path), _words(pandoc(path).stdout.decode())
            missing[path] = sorted(peer - _words(f"{content.about} {content.text}"))
            total += len(peer)
    click.echo(f"{suffix}: {sum(map(len, missing.values())):,} of {total:,} words of {len(missing)} files are missing")
    for path, words in missing.items():
        if words:
            click.echo(f"  {path.name}: {' '.join(words)}")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.replace("\u00ad", "").casefold()))


def _try(reader: Callable[[Path], object], path: Path) -> bool:
    """Read a file, and return whether it can be read."""
    try:
        reader(path)
    except Exception:  # noqa: BLE001 - peers raise what they like
        return False
    return True


def _pages(path: Path) -> None:
    for _ in read_pages(path):
        pass


def _plain_pdf(path: Path) -> None:
    from pypdfium2 import PdfDocument

    document = PdfDocument(path)
    if document.get_formtype():
        document.init_forms()
    for page in document:
        content = page.get_textpage()
        content.get_text_range()
        content.close()
        page.render(scale=scale_of(page)).close()
        page.close()
    document.close()


def _peers(suffix: str) -> Mapping[str, Callable[[Path], Any]]:
    peers: dict[str, Callable[[Path], Any]] = {}
    if find_spec("kreuzberg") and suffix in _TYPES:
        from kreuzberg import ExtractionConfig, extract_bytes_sync

        config = ExtractionConfig(output_format="plain", use_cache=False)
        peers["Kreuzberg"] = lambda path: extract_bytes_sync(path.read_bytes(), _TYPES[suffix], config=config)
    if find_spec("pypandoc") and suffix in _TYPES:
        import pypandoc

        command = [pypandoc.get_pandoc_path(), "--sandbox", "--to", "plain"]
        peers["pandoc"] = lambda path: subprocess.run([*command, path], capture_output=True, check=True)  # noqa: S603
    return peers


if __name__ == "__main__":
    main()
