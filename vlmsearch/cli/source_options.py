"""The options that say what is taken of files, for `index` and `watch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from vlmsearch.cli.common import add_options, option
from vlmsearch.indexing.items import SourceOptions


def source_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options of `SourceOptions`. The function gets them as ``source``."""

    @wraps(function)
    def wrapper(
        *args: object, pdf: bool, video: bool, office: bool, ocr: bool, no_follow: bool, **kwargs: object
    ) -> object:
        source = SourceOptions(pdf=pdf, video=video, office=office, ocr=ocr, follow_links=not no_follow)
        return function(*args, source=source, **kwargs)

    options = [
        option("--pdf", is_flag=True, help="Index the pages of PDF files."),
        option("--video", is_flag=True, help="Index a frame of each scene of films, with subtitles."),
        option("--office", is_flag=True, help="Index the text of office documents, e-books and web pages."),
        option("--ocr", is_flag=True, help="Read the text in images, pages and frames that come without text."),
        option("--no-follow", is_flag=True, help="Follow no symbolic links to files."),
    ]
    return add_options(options)(wrapper)
