"""Ranking by words with the text index that MongoDB itself has (``$text``, which Atlas has too).

A score is MongoDB's ``textScore``: it grows with how often a word is in a document and how large a part of its words it
is, but unlike BM25 does not count a rare word more than a frequent one. A query that holds only stop words of the
index's language finds nothing, for the index has no stop words in it.
"""

from __future__ import annotations

import re
from typing import Any

from pymongo.errors import OperationFailure

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.stores.mongodb.connection import Row, Rows
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.stores.words import LANGUAGES, MAX_QUERY_WORDS, check_language

# https://www.mongodb.com/docs/manual/reference/text-search-languages/
_LANGUAGES = {code: code for code in ("da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "none", "pt", "ro", "ru")}
_LANGUAGES |= {"no": "nb", "sv": "sv", "tr": "tr"}
_INDEX = "vlmsearch_words"
_NO_ROW_HAS_THIS = "language_of_words"
_INDEX_NOT_FOUND = 27
_SEPARATORS = re.compile(r"[\x00-\x20\x7f\"'_-]+")
"""What begins a phrase or a negation, what would end a string, and what separates words on other stores."""
_MOST_BYTES = 256 * 2**10
"""How long the words of a row may be: the text index takes terms of 4 MB, and of more it takes none."""


def check_mongo_language(language: str) -> None:
    """Raise ConfigError unless MongoDB can compare words by ``language``."""
    if check_language(language) not in _LANGUAGES:
        named = LANGUAGES.get(language, "parts of words")
        raise ConfigError(
            f"MongoDB cannot compare words by language={language} ({named}): it has {', '.join(sorted(_LANGUAGES))}; "
            "sqlite: has the others"
        )


def indexed_words(words: str) -> str:
    """Return what the text index is given: the words apart, and of a long text each distinct word once."""
    clean = " ".join(_split(words))
    if len(clean) * 4 > _MOST_BYTES and len(clean.encode()) > _MOST_BYTES:
        clean = " ".join(dict.fromkeys(clean.lower().split())).encode()[:_MOST_BYTES].decode(errors="ignore")
    return clean


def search_string(query: str) -> str:
    """Return the first distinct words of a query as ``$search`` takes them, free of operators."""
    return " ".join(list(dict.fromkeys(word.lower() for word in _split(query)))[:MAX_QUERY_WORDS])


def _split(text: str) -> list[str]:
    return _SEPARATORS.sub(" ", well_formed(text)).split()


def create_text_index(rows: Rows, language: str) -> None:
    """Make the text index of a collection unless it is there; makes the collection too."""
    if _INDEX not in rows.index_information():
        options: dict[str, Any] = {"default_language": _LANGUAGES[language], "language_override": _NO_ROW_HAS_THIS}
        rows.create_index([("words", "text")], name=_INDEX, **options)


def find_words(rows: Rows, words: str, limit: int, condition: Row) -> list[VersionedHit]:
    """Find the rows that pass ``condition`` and share words with a `search_string`: best first, ties by id.

    A collection that was dropped has no index either; it holds nothing.
    """
    score: Row = {"$meta": "textScore"}
    found = rows.find({"$text": {"$search": words}, **condition}, {"version": 1, "score": score})
    try:
        return [
            VersionedHit(row["_id"], row["score"], row["version"])
            for row in found.sort([("score", score), ("_id", 1)]).limit(limit)
        ]
    except OperationFailure as exc:
        if exc.code != _INDEX_NOT_FOUND:
            raise
        return []
