"""The words of documents, and ranking by them with SQLite's FTS5.

The ``language`` of an index says how words are compared:

* ``en``: by their stems (Porter, "An algorithm for suffix stripping", Program 14(3), 1980), without case and
  diacritics; words such as "the" count only in a query that holds nothing else;
* another code of `LANGUAGES`: by the stems of that language's Snowball stemmer;
* ``none``: as they are, without case and diacritics;
* ``parts``: by parts of words, for languages that are written without spaces and for codes such as AB-4711.

Documents are ranked by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond",
Foundations and Trends in Information Retrieval 3(4), 2009) as FTS5 computes it
(https://www.sqlite.org/fts5.html#the_bm25_function): `idf`, k1 1.2, b 0.75. A word counts as often as the query
says it: a question that repeats a word is mostly about it.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.types import Document

LANGUAGES = MappingProxyType(
    {
        "ar": "arabic",
        "ca": "catalan",
        "cs": "czech",
        "da": "danish",
        "de": "german",
        "el": "greek",
        "en": "english",
        "eo": "esperanto",
        "es": "spanish",
        "et": "estonian",
        "eu": "basque",
        "fa": "persian",
        "fi": "finnish",
        "fr": "french",
        "ga": "irish",
        "hi": "hindi",
        "hu": "hungarian",
        "hy": "armenian",
        "id": "indonesian",
        "it": "italian",
        "lt": "lithuanian",
        "ne": "nepali",
        "nl": "dutch",
        "no": "norwegian",
        "pl": "polish",
        "pt": "portuguese",
        "ro": "romanian",
        "ru": "russian",
        "sr": "serbian",
        "sv": "swedish",
        "ta": "tamil",
        "tr": "turkish",
        "yi": "yiddish",
    }
)
"""The languages whose words are stemmed: two-letter codes, and Snowball's names."""
MAX_QUERY_WORDS = 64
"""Distinct words of a query that count: the first ones."""
MAX_REPEATS = 5
"""Times that a word of a query counts at most."""
MAX_QUERY_PARTS = 32
"""Words, or pairs of characters in scripts without spaces, that count where parts of words are compared."""
MAX_WORD_CHARS = 64
"""Characters of one word of a query that count where parts of words are compared."""
MAX_SCORED = 20_000
"""Documents that the words of a query hold together before the most frequent words only add to scores."""

K1 = 1.2
"""The parameter k1 of BM25: how soon more of the same word in a document adds less to its score."""
B = 0.75
"""The parameter b of BM25: how much the length of a document counts."""
LEAST_IDF = 1e-6
"""The idf of a word that is in half of all documents or more."""

_MARKS = (  # signs that belong to the letter before them, and that \w leaves out
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0df3\u0e31-\u0e4e"
    "\u0eb1-\u0ecd\u0f18-\u0f39\u0f71-\u0fbc\u102b-\u109d\u17b4-\u17d3\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
)
_WORD = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_ASCII_WORD = re.compile("[a-z0-9]+")
_CODE = re.compile(rf"(?:[^\W_]|[{_MARKS}])+(?:[-_./](?:[^\W_]|[{_MARKS}])+)*")
_UNSPACED = (  # Thai, Lao, Myanmar, Khmer, kana and Han
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"([{_UNSPACED}]+)|[^{_UNSPACED}]+")
_GRAM = 3
"""Characters of the parts of words that are indexed; shorter parts are found as their beginnings."""
_UNICODE = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
_STOP_WORDS = """
a about above after again against all am an and any are as at be because been before being below between both but by
can could d did do does doing don down during each few for from further had has have having he her here hers herself
him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only
or other our ours ourselves out over own re s same she should so some such t than that the their theirs them
themselves then there these they this those through to too under until up ve very was we were what when where which
while who whom why will with would you your yours yourself yourselves
"""
_ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())


class Term(NamedTuple):
    """One of the terms of a query that documents are ranked by.

    Attributes:
        text: The stem that is compared, or the query for FTS5.
        times: Times that it counts: as often as the query says it.
        holding: Number of documents that hold it; an estimate where a store does not count them.

    Example:
        >>> Term("dog", times=2, holding=17)
        Term(text='dog', times=2, holding=17)
    """

    text: str
    times: int
    holding: float


def words_of(document: Document) -> str:
    """Return the words that a document is found by.

    Args:
        document: The document.

    Returns:
        The text. Without a text, the words of the name of its image file, without the extension; "" with neither.

    Example:
        >>> words_of(Document("1", image=Path("photos/IMG_0042-GoldenRetriever.jpg")))
        'IMG 0042 GoldenRetriever Golden Retriever'
    """
    if document.text and not document.text.isspace():
        return document.text
    if not isinstance(document.image, Path):
        return ""
    return " ".join(word for piece in _WORD.findall(document.image.stem) for word in _with_parts(piece))


def _with_parts(piece: str) -> list[str]:
    """Return a word, and the words in it where it is written in camel case."""
    starts = [0, *(i for i in range(1, len(piece)) if _starts_word(piece, i)), len(piece)]
    parts = [piece[start:end] for start, end in pairwise(starts)]
    return [piece, *parts] if len(parts) > 1 else [piece]


def _starts_word(piece: str, i: int) -> bool:
    """Return whether a word begins at ``i``, as in goldenRetriever and in USFlag."""
    return piece[i].isupper() and (not piece[i - 1].isupper() or piece[i + 1 : i + 2].islower())


def check_language(language: str) -> str:
    """Return ``language`` where words can be compared by it.

    Args:
        language: A code of `LANGUAGES`, ``none`` or ``parts``.

    Returns:
        The same.

    Raises:
        ConfigError: There is no such language; the message lists all.

    Example:
        >>> check_language("de")
        'de'
    """
    if language not in LANGUAGES and language not in ("none", "parts"):
        raise ConfigError(
            f"words cannot be compared by language={language}: it is one of {', '.join(LANGUAGES)}, none (words as "
            "they are) or parts (parts of words, for languages without spaces and for codes)"
        )
    return language


def idf(holding: float, documents: float) -> float:
    """Return the inverse document frequency of a word: log-odds, in nats, that a document does not hold it.

    Args:
        holding: Number of documents that hold the word.
        documents: Number of all documents.

    Returns:
        The frequency, at least `LEAST_IDF`.

    Example:
        >>> round(idf(1, 1000), 2), idf(900, 1000)
        (6.5, 1e-06)
    """
    return max(math.log((max(documents - holding, 0) + 0.5) / (holding + 0.5)), LEAST_IDF)


def most_score(terms: Iterable[Term], documents: float) -> float:
    """Return the score by BM25 that no document can exceed: that of one that holds all words infinitely often.

    Args:
        terms: The terms of a query, also those that no document holds.
        documents: Number of all documents.

    Returns:
        The score; 0 for a query without words.

    Example:
        >>> round(most_score([Term("dog", 1, 1), Term("photo", 1, 900), Term("zebra", 1, 0)], 1000), 1)
        31.0
    """
    return sum(term.times * idf(term.holding, documents) * (K1 + 1) for term in terms)


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, for stores that have no FTS5.

    Args:
        text: The text.

    Returns:
        All words, in their order.

    Example:
        >>> plain_words("Two Dogs, running")
        ['two', 'dogs', 'running']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(unicodedata.normalize("NFC", well_formed(text)).casefold())


def query_words(query: str, language: str) -> dict[str, list[str]]:
    """Return the stems that count in a query, each with its words in the query.

    Args:
        query: The query.
        language: Of `LANGUAGES`, or ``none``.

    Returns:
        The stems of the first `MAX_QUERY_WORDS` distinct words. A word is there as often as the query says it, but at
        most `MAX_REPEATS` times. For ``en``, words such as "the" are left out, unless the query holds nothing else.

    Example:
        >>> query_words("the dog and dogs", "en")
        {'dog': ['dog', 'dogs']}
    """
    stems: dict[str, list[str]] = {}
    for word, times in _counted(plain_words(query), language).items():
        if stem := plain_stem(word, language):
            stems.setdefault(stem, []).extend([word] * times)
    return stems


def _counted(words: Sequence[str], language: str) -> dict[str, int]:
    """Return the words of a query that count, each with how often it does."""
    if language == "en":
        words = [word for word in words if word not in _ENGLISH_STOP_WORDS] or words
    return {word: min(times, MAX_REPEATS) for word, times in islice(Counter(words).items(), MAX_QUERY_WORDS)}


def query_terms(query: str, language: str) -> dict[str, str]:
    """Return the words of a query that rank documents, each with the stem that is compared: for explanations.

    Args:
        query: The query.
        language: Of `LANGUAGES`, ``none`` or ``parts``.

    Returns:
        The first `MAX_QUERY_WORDS`; with ``parts``, what stands between spaces.

    Example:
        >>> query_terms("the dogs of AB-4711", "en")
        {'dogs': 'dog', 'ab': 'ab', '4711': '4711'}
    """
    if language == "parts":
        return {word: word for word in _folded(well_formed(query)).split()[:MAX_QUERY_PARTS] if _WORD.search(word)}
    words = _counted(plain_words(query), language)
    return {word: stem for word in words if (stem := plain_stem(word, language))}


def spans_of(text: str, terms: Mapping[str, str], language: str) -> list[tuple[int, int]]:
    """Return where a text says words of a query.

    Args:
        text: The text.
        terms: The terms, from `query_terms`.
        language: Language of the terms.

    Returns:
        Where each such word begins and ends, in characters, in their order.

    Example:
        >>> spans_of("A dog!", {"dogs": "dog"}, "en")
        [(2, 5)]
    """
    if language == "parts":
        words = "|".join(sorted((re.escape(word) for term in terms for word in _WORD.findall(term)), key=len)[::-1])
        return [match.span() for match in re.finditer(words, text, re.IGNORECASE)] if words else []
    stems = set(terms.values())
    return [
        match.span()
        for match in _WORD.finditer(text)
        if any(plain_stem(word, language) in stems for word in plain_words(match[0]))
    ]


class FullText:
    """A ranking of the rows of a database by their words: an FTS5 table without the texts themselves.

    Every method takes a connection to the database and leaves transactions to the caller. An object may be used from
    several threads.

    Args:
        table: Name of the table.
        language: A code of `LANGUAGES`, ``none`` or ``parts``.

    Raises:
        ConfigError: There is no such language.

    Example:
        >>> database = sqlite3.connect(":memory:")
        >>> words = FullText("words", "en")
        >>> words.create(database)
        >>> words.insert(database, [(1, "a dog in the snow"), (2, "two cars")])
        >>> [row for row, score in words.search(database, "dogs")]
        [1]
    """

    def __init__(self, table: str, language: str) -> None:
        self.table = table
        self.language = check_language(language)
        self._encode: Callable[[str], str] = {"en": well_formed, "none": well_formed, "parts": _parts}.get(
            language, self._stems
        )

    @property
    def stemmer(self) -> str:
        """Return which release of a stemmer makes the words: other releases make other words.

        Returns:
            Its name and release; "" where SQLite alone makes them.

        Example:
            >>> FullText("words", "de").stemmer.partition(" ")[0], FullText("words", "en").stemmer
            ('snowballstemmer', '')
        """
        return "" if self.language in ("en", "none", "parts") else _stemmer_release()

    def create(self, db: sqlite3.Connection) -> None:
        """Create the table.

        Args:
            db: The database; it has no such table.
        """
        tokenizer = {"en": f"porter {_UNICODE}", "parts": "ascii"}.get(self.language, _UNICODE)
        db.execute(f"""CREATE VIRTUAL TABLE "{self.table}" USING fts5(body, content='', tokenize="{tokenizer}")""")

    def drop(self, db: sqlite3.Connection) -> None:
        """Drop the table, if it is there.

        Args:
            db: The database.
        """
        db.execute(f'DROP TABLE IF EXISTS "{self.table}"')

    def insert(self, db: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
        """Add rows that are not there.

        Args:
            db: The database.
            rows: The number of each row, and its words.
        """
        encoded = ((row, self._encode(words)) for row, words in rows)
        db.executemany(f'INSERT INTO "{self.table}" (rowid, body) VALUES (?, ?)', encoded)  # noqa: S608 - our name

    def delete(self, db: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
        """Remove rows.

        Args:
            db: The database.
            rows: The number of each row, and exactly the words that it was added with.
        """
        encoded = ((row, self._encode(words)) for row, words in rows)
        command = f"""INSERT INTO "{self.table}" ("{self.table}", rowid, body) VALUES ('delete', ?, ?)"""  # noqa: S608
        db.executemany(command, encoded)

    def search(self, db: sqlite3.Connection, query: str, *, wanted: int | None = None) -> Iterator[tuple[int, float]]:
        """Find the rows that share words with a query, as `ranked` does for its `terms`.

        Args:
            db: The database.
            query: Any string; quotes and operators in it mean nothing.
            wanted: Rows that are wanted; None for all that share a word.

        Returns:
            The rows with their scores, best first.
        """
        return self.ranked(db, self.terms(db, query), wanted=wanted)

    def terms(self, db: sqlite3.Connection, query: str) -> list[Term]:
        """Return the terms of a query as FTS5 is asked for them, each with the number of rows that hold it.

        The first `MAX_QUERY_WORDS` distinct words count, each as often as the query says it, but at most `MAX_REPEATS`
        times; where parts of words are compared, the first `MAX_QUERY_PARTS` count, each once.

        Args:
            db: The database.
            query: Any string; quotes and operators in it mean nothing.

        Returns:
            The terms, those that no row holds among them.
        """
        return [Term(text, times, self._count(db, text)) for text, times in self._asked(query).items()]

    def scores(self, db: sqlite3.Connection, query: str, rows: Collection[int]) -> Iterator[tuple[int, float]]:
        """Score given rows.

        Args:
            db: The database.
            query: Any string; quotes and operators in it mean nothing.
            rows: The rows.

        Returns:
            The rows that share words with the query, with the scores that `search` gives them.
        """
        asked = self._asked(query) if rows else {}
        if asked:
            # the plus has SQLite look through the rows once: for each row alone, FTS5 would count all rows again
            within = "AND +rowid IN (SELECT value FROM json_each(?))"
            yield from self._ranked(db, _any_of(asked.items()), within, json.dumps(list(rows)))

    def ranked(
        self, db: sqlite3.Connection, terms: Iterable[Term], *, wanted: int | None = None
    ) -> Iterator[tuple[int, float]]:
        """Find the rows that hold terms of a query.

        The terms may be in more than `MAX_SCORED` rows together. Then the most frequent ones only add to the scores of
        rows that hold a rarer one, if ``wanted`` rows do: other rows would mostly come behind, and scoring takes time.

        Args:
            db: The database.
            terms: The terms, from `terms`.
            wanted: Rows that are wanted; None for all that hold a term.

        Returns:
            The rows with their scores, which are above 0: best first, and equal scores in the order of the rows.
        """
        held = sorted((term for term in terms if term.holding), key=lambda term: term.holding)
        if not held:
            return
        rare = len(held) if wanted is None else self._rare(db, held, wanted)
        base = _any_of((term.text, term.times) for term in held[:rare])
        if rare == len(held):
            yield from self._ranked(db, base, "ORDER BY rank, rowid")
            return
        alone = dict(self._ranked(db, base))
        scores = dict(alone)
        for term in held[rare:]:
            for row, score in self._ranked(db, f"({base}) AND {term.text}"):
                if row in alone:  # another connection may have committed since
                    scores[row] += term.times * (score - alone[row])
        yield from sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))

    def _rare(self, db: sqlite3.Connection, terms: list[Term], wanted: int) -> int:
        """Return how many of the terms, the rarest first, bring rows of their own."""
        rare, scored = 1, terms[0].holding
        while rare < len(terms) and (
            scored + terms[rare].holding <= MAX_SCORED
            or self._count(db, _any_of((term.text, 1) for term in terms[:rare])) < wanted
        ):
            scored += terms[rare].holding
            rare += 1
        return rare

    def _count(self, db: sqlite3.Connection, term: str) -> int:
        sql = f'SELECT count(*) FROM "{self.table}" WHERE "{self.table}" MATCH ?'  # noqa: S608
        return int(db.execute(sql, (term,)).fetchone()[0])

    def _ranked(self, db: sqlite3.Connection, match: str, order: str = "", *values: str) -> Iterator[tuple[int, float]]:
        sql = f'SELECT rowid, -rank FROM "{self.table}" WHERE "{self.table}" MATCH ? {order}'  # noqa: S608
        yield from db.execute(sql, (match, *values))

    def _asked(self, query: str) -> dict[str, int]:
        """Return the FTS5 queries for the terms of a query, each with how often it counts."""
        query = well_formed(query)
        if self.language == "parts":
            parts = (part for code in _CODE.findall(_folded(query)) for part in _part_terms(code))
            return dict.fromkeys(islice(dict.fromkeys(parts), MAX_QUERY_PARTS), 1)
        stemmed = self.language not in ("en", "none")  # FTS5 stems English itself
        asked = Counter[str]()
        for word, times in _counted(
            plain_words(query) if stemmed else _WORD.findall(query.lower()), self.language
        ).items():
            asked[f'"{_stem(word, self.language) if stemmed else word}"'] += times
        return asked

    def _stems(self, words: str) -> str:
        """Return a text's words as their stems."""
        return " ".join(_stem(word, self.language) for word in plain_words(words))

    def check(self, db: sqlite3.Connection) -> None:
        """Check that the index is whole.

        Args:
            db: The database.

        Raises:
            sqlite3.DatabaseError: The index is damaged.
        """
        db.execute(f"""INSERT INTO "{self.table}" ("{self.table}") VALUES ('integrity-check')""")  # noqa: S608

    def agrees(self, db: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> bool:
        """Check whether the table finds and ranks exactly these rows, by making it once more elsewhere.

        Args:
            db: The database; it may be one that is only read.
            rows: The number of each row, and its words.

        Returns:
            False also where it is damaged.
        """
        with closing(sqlite3.connect("")) as other:  # in a temporary file
            made = FullText(self.table, self.language)
            made.create(other)
            made.insert(other, rows)
            try:
                with self._vocabulary(db) as here, made._vocabulary(other) as there:
                    return all(_have_equal(db, other, query) for query in self._contents()) and all(
                        here(term) == there(term)
                        for (term, *_) in other.execute(f"SELECT * FROM {_VOCABULARY}")  # noqa: S608
                    )
            except sqlite3.DatabaseError as exc:
                if str(exc) == "interrupted":
                    raise
                return False

    def _contents(self) -> Sequence[str]:
        """Return queries for all that FTS5 keeps but the places of terms: lengths of rows, and the terms."""
        return (
            f'SELECT id, sz FROM "{self.table}_docsize" ORDER BY id',  # noqa: S608 - our names
            f'SELECT nullif(block, zeroblob(length(block))) FROM "{self.table}_data" WHERE id = 1',  # noqa: S608
            f"SELECT term, doc, cnt FROM {_VOCABULARY} ORDER BY term",  # noqa: S608
        )

    @contextmanager
    def _vocabulary(self, db: sqlite3.Connection) -> Iterator[Callable[[str], object]]:
        """Give a function that returns a sum over the places of a term, which it looks up by the term."""
        places = f"{_VOCABULARY}_places"
        for name, kind in ((_VOCABULARY, "row"), (places, "instance")):
            db.execute(f"DROP TABLE IF EXISTS {name}")
            db.execute(f'CREATE VIRTUAL TABLE {name} USING fts5vocab(main, "{self.table}", {kind})')
        total = f"SELECT count(*), sum((doc * 1000003 + offset) % 2147483647) FROM {places} WHERE term = ?"  # noqa: S608
        yield lambda term: db.execute(total, (term,)).fetchone()
        for name in (_VOCABULARY, places):
            db.execute(f"DROP TABLE {name}")


_VOCABULARY = "temp.vocabulary"


def _have_equal(first: sqlite3.Connection, second: sqlite3.Connection, query: str) -> bool:
    return all(row == same for row, same in zip_longest(first.execute(query), second.execute(query)))


def _any_of(terms: Iterable[tuple[str, int]]) -> str:
    """Return the FTS5 query for rows that hold any of the terms; a term counts as often as it stands there."""
    return " OR ".join(text for text, times in terms for _ in range(times))


@cache
def _stemmer_release() -> str:
    return f"snowballstemmer {version('snowballstemmer')}"


@cache
def _stemmer(language: str) -> tuple[Callable[[str], str], threading.Lock]:
    import snowballstemmer

    return snowballstemmer.stemmer(LANGUAGES[language]).stemWord, threading.Lock()


@lru_cache(maxsize=200_000)
def _stem(word: str, language: str) -> str:
    stem, lock = _stemmer(language)
    with lock:  # a stemmer keeps the word that it works on
        return stem(word)


@lru_cache(maxsize=200_000)
def plain_stem(word: str, language: str) -> str:
    """Return the stem of one of the `plain_words`, without diacritics.

    Args:
        word: The word.
        language: Of `LANGUAGES`, or ``none`` for words as they are.

    Returns:
        The stem; "" for a word that is nothing but diacritics. For ``en``, it is that of Snowball's English, a later
        form of Porter's.

    Example:
        >>> plain_stem("dogs", "en")
        'dog'
    """
    stem = word if language == "none" else _stem(word, language)
    if stem.isascii():
        return stem
    return "".join(char for char in unicodedata.normalize("NFD", stem) if not unicodedata.combining(char))


def _folded(text: str) -> str:
    return (
        text.lower()
        if text.isascii()
        else unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    )


def _parts(words: str) -> str:
    """Return the parts of a text's words: "abcd" becomes "abc bcd cd d", a part from each character on."""
    return " ".join(part for word in _WORD.findall(_folded(well_formed(words))) for part in _grams(word))


def _grams(word: str) -> list[str]:
    return [word[i : i + _GRAM] for i in range(len(word))]


def _part_terms(code: str) -> Iterator[str]:
    """Yield the FTS5 queries for a code such as AB-4711: for all of it, and for each of its words.

    A word in a script without spaces may be a sentence: each pair of its characters is looked for.
    """
    words = [word[:MAX_WORD_CHARS] for word in _WORD.findall(code)[:MAX_QUERY_PARTS]]
    if len(words) > 1:
        yield _part_term(words)
    for run in (run for word in words for run in _RUN.finditer(word)):
        pairs = [run[0][i : i + 2] for i in range(len(run[0]) - 1)] if run[1] else []
        yield from (_part_term([part]) for part in pairs or [run[0]])


def _part_term(words: list[str]) -> str:
    """Return the FTS5 query for words in a row; the first may begin within a word, and the last end within one."""
    *before, last = words
    grams = [gram for word in before for gram in _grams(word)]
    grams += _grams(last)[: max(len(last) - _GRAM + 1, 1)]
    return f'"{" ".join(grams)}"' + ("*" if len(last) < _GRAM else "")
