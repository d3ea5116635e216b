"""Ranking by words with the text index that MongoDB itself has (``$text``, which Atlas has too).

MongoDB finds the documents, and its ``textScore`` says which are read. It grows with how often a word is in a document
and with the part of its words that this is. But it does not count a rare word more than a frequent one. So the texts of
the first ones, `_SPARE` more than are asked for, are scored again by BM25.

The number of documents that hold a word is exact for an index of up to `_SAMPLED` documents. In a larger one it is
exact for words that are in fewer than a hundredth of them. For others it is estimated from a sample of `_SAMPLED`, with
a standard error of at most a third. So the idf of a word, in nats, is off by about 0.3 at worst. The mean length of
documents is estimated from the sample, too. The sample is read again when the number of documents has changed by a
thirtieth. Where it holds the whole index, it is read again after every change of that number and every write of this
object.

A query that holds only stop words of the index's language finds nothing, for the index has no stop words in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pymongo.errors import OperationFailure

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.stores.mongodb.connection import LIVE, Row, Rows
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.stores.words import (
    K1,
    LANGUAGES,
    LEAST_IDF,
    MAX_QUERY_WORDS,
    B,
    Term,
    check_language,
    idf,
    plain_stem,
    plain_words,
)

T = TypeVar("T")
# https://www.mongodb.com/docs/manual/reference/text-search-languages/
_LANGUAGES = {code: code for code in ("da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "none", "pt", "ro", "ru")}
_LANGUAGES |= {"no": "nb", "sv": "sv", "tr": "tr"}
_INDEX = "vlmsearch_words"
_NO_ROW_HAS_THIS = "language_of_words"
_INDEX_NOT_FOUND = 27
_SEPARATORS = re.compile(r"[\x00-\x20\x7f\"'_-]+")
"""Characters that begin a phrase or a negation, end a string, or separate words on other stores."""
_SAMPLED = 1000
"""Documents of the sample from which frequencies of words are estimated."""
_FREQUENT = 10
"""Documents of the sample that hold a word whose documents are not counted one by one."""
_SPARE = 100
"""Documents that are scored beyond those that are asked for."""
_STEPS = 30
"""Statistics are of an index whose size has changed by less than one part in so many."""
_MOST_COUNTS = 20_000
_MOST_BYTES = 256 * 2**10
"""Bytes of the words of a row at most: the text index takes terms of 4 MB, and none of a longer text."""


def check_mongo_language(language: str) -> None:
    """Raise ConfigError unless MongoDB can compare words by ``language``."""
    if check_language(language) not in _LANGUAGES:
        named = LANGUAGES.get(language, "parts of words")
        raise ConfigError(
            f"MongoDB cannot compare words by language={language} ({named}): it has {', '.join(sorted(_LANGUAGES))}; "
            "sqlite: has the others"
        )


def indexed_words(words: str) -> str:
    """Return the words of a text for the text index; of a long text, each distinct word once."""
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


def find_words(rows: Rows, words: str, limit: int, condition: Row) -> list[Row]:
    """Find the first rows that pass ``condition`` and share words with a `search_string`, by MongoDB's own score."""
    score: Row = {"$meta": "textScore"}
    cursor = rows.find({"$text": {"$search": words}, **condition}, {"version": 1, "words": 1, "score": score})
    return _without_index(lambda: list(cursor.sort([("score", score), ("_id", 1)]).limit(limit + _SPARE)), [])


class WordStatistics:
    """Frequencies of words in the texts of an index, and the mean length of these.

    Args:
        texts: The words of all rows, or of `_SAMPLED` of them.
        documents: Number of all rows.
        language: Language by which words are compared.
    """

    def __init__(self, texts: Sequence[str], documents: int, language: str) -> None:
        of_texts = list(map(plain_words, texts))
        self.documents = max(documents, len(texts)) if len(texts) == _SAMPLED else len(texts)
        self._language = language
        self._sampled = len(texts)
        self._mean_length = sum(map(len, of_texts)) / max(len(texts), 1)
        self._in_sample = Counter(
            stem for words in of_texts for stem in {plain_stem(word, language) for word in set(words)}
        )
        self._counts: dict[str, float] = {}

    def holding(self, stem: str, count: Callable[[], int]) -> float:
        """Return how many rows hold a stem; ``count`` counts them."""
        known = self._counts.get(stem)
        if known is None:
            seen = self._in_sample[stem]
            known = seen * self.documents / max(self._sampled, 1)
            if seen < _FREQUENT and self._sampled < self.documents:
                known = max(count(), seen)  # MongoDB counts none for its own stop words
            if len(self._counts) >= _MOST_COUNTS:
                self._counts.clear()
            self._counts[stem] = known
        return known

    def scores(self, rows: Iterable[Row], terms: Iterable[Term], min_score: float) -> list[VersionedHit]:
        """Score rows by BM25, best first, then by id; those that share no stem get ``min_score``."""
        weights = {term.text: term.times * idf(term.holding, self.documents) * (K1 + 1) for term in terms}
        hits: list[VersionedHit] = []
        for row in rows:
            words = plain_words(row["words"])
            norm = K1 * (1 - B + B * len(words) / max(self._mean_length, 1))
            shared = Counter(stem for word in words if (stem := plain_stem(word, self._language)) in weights)
            score = sum(weights[stem] * count / (count + norm) for stem, count in shared.items())
            hits.append(VersionedHit(row["_id"], score or min_score, row["version"]))
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def read_statistics(rows: Rows, size: int, language: str) -> WordStatistics:
    """Read the statistics of the words of a collection of about ``size`` rows."""
    cursor = rows.find(LIVE, {"words": 1, "draw": 1}).sort([("draw", 1), ("_id", 1)]).limit(_SAMPLED)
    return WordStatistics([row.get("words", "") for row in cursor], size, language)


def size_class(size: int, writes: int) -> tuple[int, int]:
    """Return a value that is the same for collections whose statistics are near enough to each other."""
    return (size, writes) if size < _SAMPLED else (round(math.log(size) * _STEPS), -1)


def count_rows(rows: Rows, word: str) -> int:
    """Count the rows that hold a word; none where there is no text index."""
    return _without_index(lambda: rows.count_documents({"$text": {"$search": word}}), 0)


def _without_index(call: Callable[[], T], otherwise: T) -> T:
    """Call a function; return ``otherwise`` where the collection or its text index is not there."""
    try:
        return call()
    except OperationFailure as exc:
        if exc.code != _INDEX_NOT_FOUND:
            raise
        return otherwise


LEAST_SCORE = LEAST_IDF
"""The score of a row that MongoDB finds and that shares no word as they are compared here."""
