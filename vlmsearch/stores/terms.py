"""The terms of texts and queries: what documents are found by, in any script.

* A word of a script with spaces is its stem, without case and diacritics. English has the stems of Snowball's English
  stemmer (Porter2), other languages those of their own (https://snowballstem.org).
* In scripts without spaces, each character is a term, and so is each pair of neighbours. Hangul counts as one, since
  endings are part of its words. A character is a letter with the signs that belong to it.
* Characters that nobody sees, such as soft hyphens, are in no word (Unicode's Default_Ignorable_Code_Point). The
  non-joiner of Arabic script is a break, as Persian has it within words.
* A word with such a break, or a hyphen at the end of a line, is also one term: "well-" before "known" is found by
  "well-known", by "known" and by "wellknown".
* A code of letters and digits is a term, and so are its parts: ``AB-4711`` is found by "ab4711", "AB 4711" and "4711".

The ``language`` of an index says which stems: a code of `LANGUAGES` for all documents, ``none`` for words as they are,
and ``auto`` for those of each document's own language. That is told by its letters and its frequent words, and is
English where nothing speaks for another one. A word of a query has the stems of all languages that the documents have.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.types import Document

AUTO, NONE = "auto", "none"
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
MAX_QUERY_TERMS = 64
"""Distinct terms of a query that count: the first ones."""
MAX_REPEATS = 5
"""Times that a term of a query counts at most."""
_TELLING_CHARS = 500
"""The beginning of a text whose letters tell its script."""
_REMEMBERED = 50_000
"""Words whose terms are remembered."""

_OF_NUMBERS = 2
"""Times that a term with a digit counts: models hardly tell numbers and codes apart."""
_MARKS = (  # signs that belong to the letter before them, and that \w leaves out
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0df3\u0e31-\u0e4e"
    "\u0eb1-\u0ecd\u0f18-\u0f39\u0f71-\u0fbc\u102b-\u109d\u17b4-\u17d3\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
)
_UNSPACED = (  # Thai, Lao, Myanmar, Khmer, kana and Han; and Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_ARABIC = "[\u0620-\u06ff]"
_NON_JOINER = f"\u200c(?<={_ARABIC}.)(?={_ARABIC})"
_IGNORED = f"\u00ad\r?\n|[{_UNSEEN}](?:(?<!{_ARABIC}\u200c)|(?!{_ARABIC}))"
_WORD = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_PART_OF_WORD = rf"(?:[^\W\d_]|[{_MARKS}])+"
_CUT_WORD = rf"(?<!\w)({_PART_OF_WORD})(?:[-\u2010]\r?\n|{_NON_JOINER})({_PART_OF_WORD})"
_COMPOUND = rf"(?<![\w-])({_PART_OF_WORD})(?:[-\u2010]|{_NON_JOINER})({_PART_OF_WORD})(?![\w-])"
_ASCII_WORDS = "".join(sign.lower() if sign.isalnum() else " " for sign in map(chr, range(128))).encode().ljust(256)
_CODE = re.compile(r"(?<![^\W_])[^\W_]+(?:[-_./][^\W_]+)+")
_RUN = f"([{_UNSPACED}]+)|[^{_UNSPACED}]+"
_UNSPACED_CHARACTER = f"[{_UNSPACED}]"
_CHARACTER = rf"(?s:.)[{_MARKS}]*"
_PART = re.compile(r"\d+|\D+")
WRITTEN_WORD = rf"(?:[{_UNSPACED}][{_MARKS}]*){{1,2}}|[^\s{_UNSPACED}]+"
"""A word between spaces, or two characters of a script without spaces."""
_SCRIPTS = (  # the last letter of each, and the languages that are written with it, the usual one first
    ("\u024f", ""),
    ("\u036f", ""),
    ("\u03ff", "el"),
    ("\u052f", "ru sr"),
    ("\u058f", "hy"),
    ("\u05ff", "yi"),
    ("\u06ff", "ar fa"),
    ("\u08ff", "ar fa"),
    ("\u097f", "hi ne"),
    ("\u0b7f", ""),
    ("\u0bff", "ta"),
    ("\u1eff", ""),
    ("\u1fff", "el"),
)
_OF_SCRIPTS = {"HIRAGANA": "Japanese", "KATAKANA": "Japanese", "CJK": "Chinese", "HANGUL": "Korean"}
_USUAL = frozenset({"el", "ru", "hy", "ar", "hi", "ta"})
_OTHER_SCRIPTS = frozenset(code for _, codes in _SCRIPTS for code in codes.split())
_PERSIAN = frozenset("پچژگ")

_FREQUENT = """
ca: i el la els les de del dels un una amb per que és són no més però com també aquest aquesta ha han al als o
cs: a je se na v z do že s o to jsou jako pro ale který která byl byla jeho by při nebo podle také
da: og i at det er en et den til på som de med af for ikke der var har fra jeg du han blev eller om
de: der die das und ist ein eine einen einem einer des dem den im am zu zum zur mit von vom auf für nicht auch als bei \
nach aus wie sich sind wird werden oder aber wir ich sie es was wo kann hat über unter
eo: la kaj de en estas al ke ne por kun pri el oni ĝi sed kiu tiu mi vi ili ankaŭ aŭ
es: el la los las de del un una y en es que no por para con se su al lo como más pero son está este esta qué cómo o mi
et: ja on ei see et oli kui ka mis oma ning või aga ta ma kes nii seda
eu: eta da ez du bat dira zen hau ere baina edo dute izan da egin
fi: ja on ei se että oli hän mutta kun niin myös ovat tai joka ole kuin hänen tämä ne mikä miten
fr: le la les des un une et est en du de dans pour que qui pas sur avec au aux ce cette il elle sont ne plus par ou où \
mais son sa ses se nous vous je comment
ga: agus an na ar ag is i le sé sí ní bhí go do an mar ach seo sin atá
hu: a az és hogy nem egy is van volt ez de meg csak ha mint vagy el ki azt már
id: yang dan di ini itu dari dengan untuk tidak dalam adalah pada ke akan ada atau juga saya kami oleh bagaimana
it: il lo la i gli le di del della dei un una e è che non per con si in da al sono come più ma anche questo questa \
nel nella alla o
lt: ir yra kad į su iš tai ne bet buvo ar kaip apie jo jos šis ši per
nl: de het een en van in is dat op te zijn met voor niet aan er ook als om maar bij uit door naar hoe ik je we die dit
no: og i å det er en et den til på som de med av for ikke var har fra jeg du han ble eller om også
pl: i w na z się nie do to że jest o jak a po co od za przez dla ale czy są był była jego tym oraz lub
pt: o a os as de do da dos das um uma e é em no na que não para com por se ao mais como mas foi são este esta você
ro: și în de la cu pe un o este nu că din pentru sunt mai ce se au fost care sau al a
sv: och i att det är en ett den till på som de med av för inte var har från jag du han blev eller om också
tr: ve bir bu da de için ile çok ne gibi daha olarak var o mi ama en kadar olan sonra nasıl
"""
_SPOKEN = "en es pt fr de it tr pl id nl ro sv hu cs ca no da fi et lt eu ga eo"
"""The languages in Latin script: of two that a text may be in, the one with more speakers is the likelier."""
_LETTERS = """
ca: ç·ïŀ
cs: ěřůčšžňťď
da: æøå
de: äöüß
eo: ĉĝĥĵŝŭ
es: ñ¿¡áíóú
et: õäöü
fi: äö
fr: çœèêëîïôûâæ
hu: őűáéö
it: àèìòù
lt: ėųįąčšž
no: æøå
pl: łąęśźżćń
pt: ãõçâêáíóú
ro: ășțâîşţ
sv: äöå
tr: ğışçöü
"""
_STOP_WORDS = """
a about above after again against all am an and any are as at be because been before being below between both but by
can could d did do does doing don down during each few for from further had has have having he her here hers herself
him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only
or other our ours ourselves out over own re s same she should so some such t than that the their theirs them
themselves then there these they this those through to too under until up ve very was we were what when where which
while who whom why will with would you your yours yourself yourselves
"""


def _lines(table: str) -> Iterable[tuple[str, str]]:
    return ((line[:2], line[3:]) for line in table.strip().splitlines())


_STOP_WORDS_OF: Mapping[str, frozenset[str]] = {
    "en": frozenset(_STOP_WORDS.split()),
    **{code: frozenset(words.split()) for code, words in _lines(_FREQUENT)},
}


def _languages_by(given: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    languages: dict[str, tuple[str, ...]] = {}
    for code, members in given:
        for member in members:
            languages[member] = (*languages.get(member, ()), code)
    return languages


_WORD_LANGUAGES = _languages_by(_STOP_WORDS_OF.items())
_LETTER_LANGUAGES = _languages_by((code, letters.strip()) for code, letters in _lines(_LETTERS))
_TELLING_WORDS, _TELLING_LETTERS = frozenset(_WORD_LANGUAGES), frozenset(_LETTER_LANGUAGES)


def check_language(language: str) -> str:
    """Return ``language`` where words can be compared by it.

    Args:
        language: A code of `LANGUAGES`, ``auto`` or ``none``.

    Returns:
        The same.

    Raises:
        ConfigError: There is no such language; the message lists all.

    Example:
        >>> check_language("de")
        'de'
    """
    if language not in LANGUAGES and language not in (AUTO, NONE):
        raise ConfigError(
            f"words cannot be compared by language={language}: it is auto (by the language of each document), "
            f"{', '.join(LANGUAGES)}, or none (words as they are)"
        )
    return language


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


@cache
def stemmer_release() -> str:
    """Return the name and release of the stemmer: other releases may make other terms.

    Returns:
        Such as ``snowballstemmer 3.1.0``.
    """
    from importlib.metadata import version

    return f"snowballstemmer {version('snowballstemmer')}"


def plain_words(text: str) -> list[str]:
    """Return the words of a text, without case, in their order.

    Args:
        text: The text.

    Returns:
        The words; what stands between spaces in a script without them.

    Example:
        >>> plain_words("Two Dogs, running")
        ['two', 'dogs', 'running']
    """
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).decode().split()  # half the time of a regular expression
    return _WORD.findall(_folded(text))


def separate_words(text: str) -> list[str]:
    """Return the words of a text as `plain_words`, and each character of a script without spaces.

    Args:
        text: The text.

    Returns:
        The words and characters, in their order.

    Example:
        >>> separate_words("Two 東京")
        ['two', '東', '京']
    """
    words = plain_words(text)
    if text.isascii():
        return words
    runs = (run for word in words for run in _compiled(_RUN).finditer(word))
    return [part for run in runs for part in (_compiled(_CHARACTER).findall(run[0]) if run[1] else [run[0]])]


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    """Compile one of the long expressions, which words in ASCII need none of."""
    return re.compile(expression)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", _compiled(_IGNORED).sub("", well_formed(text))).casefold()
    return unicodedata.normalize("NFC", folded)


def language_of(words: Collection[str]) -> str:
    """Return the language whose letters and frequent words are in a text in Latin script.

    Args:
        words: The words of the text, from `plain_words`.

    Returns:
        Its code; ``en`` where nothing, or less than two things, speak for another.

    Example:
        >>> language_of(["ein", "hund", "im", "schnee"]), language_of(["die", "hard"])
        ('de', 'en')
    """
    letters = "" if (joined := "".join(words)).isascii() else joined
    return _told(_TELLING_WORDS.intersection(words), _TELLING_LETTERS.intersection(letters))


def language_clues(text: str) -> Counter[str]:
    """Return the languages that a text may be in, and how many things speak for each.

    Args:
        text: The text.

    Returns:
        Numbers of frequent words and letters of languages in Latin script, and of all letters of another script, by
        names in English. Where several languages are written with a script, that is named.

    Example:
        >>> language_clues("wie repariere ich das Fahrrad").most_common(1), language_clues("где книга")
        ([('German', 3)], Counter({'Cyrillic': 8}))
    """
    words = plain_words(text)
    letters = filter(str.isalpha, "".join(words)[:_TELLING_CHARS])
    scripts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    [(script, count)] = scripts.most_common(1) or [("LATIN", 0)]
    if script != "LATIN":
        own = next((script for script in _OF_SCRIPTS if script in scripts), script) if script in _OF_SCRIPTS else script
        return Counter({_OF_SCRIPTS.get(own, own.capitalize()): count})
    told = Counter(code for word in _TELLING_WORDS.intersection(words) for code in _WORD_LANGUAGES[word])
    told.update(code for letter in _TELLING_LETTERS.intersection("".join(words)) for code in _LETTER_LANGUAGES[letter])
    return Counter({LANGUAGES[code].capitalize(): times for code, times in told.items()})


@lru_cache(maxsize=10_000)  # captions share their few frequent words
def _told(words: frozenset[str], letters: frozenset[str]) -> str:
    told = Counter(code for word in words for code in _WORD_LANGUAGES[word])
    told.update(code for letter in letters for code in _LETTER_LANGUAGES[letter])
    best = max(told, key=lambda code: (told[code], -_SPOKEN.index(code)), default="en")
    return best if told[best] >= 2 and told[best] > told["en"] else "en"


def terms_of(text: str, language: str) -> tuple[list[str], str]:
    """Return the terms of a document.

    Args:
        text: Its text.
        language: The index's: of `LANGUAGES`, ``auto`` or ``none``.

    Returns:
        The terms, each as often as it is in the text, and the language whose stems they are.

    Example:
        >>> terms_of("A dog, two dogs: AB-4711", "auto")
        (['a', 'dog', 'two', 'dog', 'ab', '4711', 'ab4711'], 'en')
        >>> terms_of("東京", "auto")[0]
        ['東', '京', '東京']
    """
    words, codes, own = words_to_find(text, language)
    return [*chain.from_iterable(terms_of_word(word, own) for word in words), *codes], own


def words_to_find(text: str, language: str) -> tuple[list[str], list[str], str]:
    """Return what the terms of a document are made of.

    Args:
        text: Its text.
        language: The index's: of `LANGUAGES`, ``auto`` or ``none``.

    Returns:
        Its words; the terms that are no words but codes; and the language whose stems `terms_of_word` makes.
    """
    words = plain_words(text)
    if language == AUTO:
        language = language_of(words) if text.isascii() or _PERSIAN.isdisjoint(text) else "fa"
    if _may_cut(text):
        words += [f"{start}{end}" for start, end in _compiled(_CUT_WORD).findall(_folded(text))]
    return words, _codes(text), language


def _may_cut(text: str) -> bool:
    return "\u200c" in text or "-\n" in text or "-\r" in text or "\u2010\n" in text or "\u2010\r" in text


def _codes(text: str) -> list[str]:
    """Return the codes that separators are in, such as AB-4711, without them."""
    codes = _CODE.findall(text) if "-" in text or "_" in text or "." in text or "/" in text else ()
    joined = ("".join(_WORD.findall(_folded(code))) for code in codes)
    return [code for code in joined if _is_code(code)]


def _is_code(word: str) -> bool:
    return not word.isalpha() and has_number(word) and any(map(str.isalpha, word))


@lru_cache(maxsize=_REMEMBERED)
def terms_of_word(word: str, language: str) -> tuple[str, ...]:
    """Return the terms of one of the `plain_words`."""
    if word.isascii():
        return (word, *_PART.findall(word)) if _is_code(word) else (_stem(word, language),)
    terms: list[str] = []
    for run in _compiled(_RUN).finditer(word):
        if run[1]:
            characters = _compiled(_CHARACTER).findall(run[0])
            terms += characters
            terms += map("".join, pairwise(characters))
        elif _is_code(run[0]):
            terms += [run[0], *_PART.findall(run[0])]
        else:
            terms.append(_stem(run[0], language))
    return tuple(term for term in terms if term)


def _stem(word: str, language: str) -> str:
    """Return the stem of a word, without diacritics. It is "" for a word of nothing but diacritics."""
    code = _language_for(word, language)
    stem = _snowball(word, code) if code else word
    return stem if stem.isascii() else plain(stem)


def plain(text: str) -> str:
    """Return a text without diacritics."""
    return "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char))


def _language_for(word: str, language: str) -> str:
    """Return the language to stem a word by: a document's own where it is written in that script."""
    if language == NONE:
        return ""
    first = word[0]
    codes = next((codes for last, codes in _SCRIPTS if first <= last), "").split() if first > "\u024f" else None
    if codes is None or (not codes and "\u1e00" <= first <= "\u1eff"):
        return "en" if language in _OTHER_SCRIPTS and language != "sr" else language
    if language in codes:
        return language
    return next((code for code in codes if code in _USUAL), "")


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802

    def stemWords(self, words: list[str]) -> list[str]: ...  # noqa: N802


@cache
def _stemmer(language: str) -> tuple[_Stemmer, threading.Lock]:
    import snowballstemmer

    stemmer = snowballstemmer.stemmer(LANGUAGES[language])
    stemmer.maxCacheSize = 0  # making room among its words takes thrice as long as stemming one
    return stemmer, threading.Lock()


def _snowball(word: str, language: str) -> str:
    stemmer, lock = _stemmer(language)
    with lock:  # a stemmer keeps the word that it works on
        return stemmer.stemWord(word)


def stems_of(words: Sequence[str], languages: Collection[str]) -> list[tuple[str, str]]:
    """Return words with the stems that documents in some languages have: many in a tenth of the time."""
    stems: list[tuple[str, str]] = []
    for initial, some in groupby(sorted(words), itemgetter(0)):
        alike = list(some)
        for code in {_language_for(initial, language) for language in languages}:
            stemmer, lock = _stemmer(code or "en")
            with lock:
                stemmed = stemmer.stemWords(alike) if code else alike
            stems += zip(alike, [stem if stem.isascii() else plain(stem) for stem in stemmed])
    return stems


# ---- queries


@dataclass(frozen=True)
class QueryTerm:
    """A term of a query.

    Attributes:
        term: The term, by the language of the query.
        words: The words of the query that it stands for, also those that are written in one word without their hyphen.
        times: Times that it counts, at most `MAX_REPEATS`.
        language: The index's.

    Example:
        >>> [term] = query_terms("dogs, dog", "auto")
        >>> term.term, term.words, term.times, term.of(["en", "de"])
        ('dog', ('dogs', 'dog'), 2, ('dog', 'dogs'))
    """

    term: str
    words: tuple[str, ...]
    times: int
    language: str
    is_stem: bool = True

    def of(self, languages: Iterable[str]) -> tuple[str, ...]:
        """Return what documents in some languages have in the place of the term.

        Args:
            languages: Languages of documents.

        Returns:
            The terms, each once.
        """
        if not self.is_stem:
            return (self.term,)
        if self.language != AUTO:
            return tuple(dict.fromkeys(_stem(word, self.language) for word in self.words))
        codes = sorted(languages)
        if any("\u0600" <= word[0] <= "\u08ff" for word in self.words):
            codes += ["ar", "fa"]
        return tuple(dict.fromkeys(_stem(word, code) for word in self.words for code in codes))


def query_words(query: str, language: str) -> dict[str, int]:
    """Return the words of a query that count.

    Args:
        query: Any string.
        language: The index's: of `LANGUAGES`, ``auto`` or ``none``.

    Returns:
        The first `MAX_QUERY_TERMS` distinct ones, each with the times that it counts, at most `MAX_REPEATS`. Words such
        as "the" are left out, unless the query holds nothing else.

    Example:
        >>> query_words("the dog and dogs", "auto")
        {'dog': 1, 'dogs': 1}
    """
    words = plain_words(query)
    stop_words = _STOP_WORDS_OF.get(_own_language(words, language), frozenset())
    counted = Counter([word for word in words if word not in stop_words] or words)
    return {word: min(times, MAX_REPEATS) for word, times in islice(counted.items(), MAX_QUERY_TERMS)}


def are_codes(query: str) -> bool:
    """Return whether a query is nothing but codes and numbers: each of its words has a digit.

    Example:
        >>> are_codes("AB-4711"), are_codes("number 77")
        (True, False)
    """
    return all(map(has_number, query.split())) and bool(query.strip())


def has_number(text: str) -> bool:
    """Return whether a text has a digit.

    Example:
        >>> has_number("number 77"), has_number("a dog")
        (True, False)
    """
    return any(character.isdecimal() for character in text)


def _own_language(words: Collection[str], language: str) -> str:
    return language_of(words) if language == AUTO else language


def query_terms(query: str, language: str) -> list[QueryTerm]:
    """Return the terms of a query.

    Args:
        query: Any string.
        language: The index's: of `LANGUAGES`, ``auto`` or ``none``.

    Returns:
        The first `MAX_QUERY_TERMS` distinct terms of its `query_words`, and of the codes in it. A term counts as often
        as the query says it, one with a digit twice as often, but at most `MAX_REPEATS` times.

    Example:
        >>> [(term.term, term.times) for term in query_terms("the dog and dogs", "auto")]
        [('dog', 2)]
        >>> [term.term for term in query_terms("東京", "auto")]
        ['東', '京', '東京']
    """
    own = _own_language(plain_words(query), language)
    terms: dict[str, QueryTerm] = {}
    parts = _compiled(_COMPOUND).findall(_folded(query)) if "-" in query or not query.isascii() else ()
    compounds = {word: [start + end] for start, end in parts for word in (start, end)}

    def add(term: str, word: str, times: int, *, is_stem: bool) -> None:
        said = terms.get(term, QueryTerm(term, (), 0, language, is_stem))
        words = (*said.words, word, *(compounds.get(word, ()) if is_stem else ()))
        terms[term] = replace(said, words=words, times=min(said.times + times, MAX_REPEATS))

    for word, times in query_words(query, language).items():
        is_stem = not _is_code(word) and (word.isascii() or not _compiled(_UNSPACED_CHARACTER).search(word))
        for term, count in Counter(terms_of_word(word, own)).items():
            add(term, word, times * count * (_OF_NUMBERS if has_number(term) else 1), is_stem=is_stem)
    for code in _codes(query):
        add(code, code, _OF_NUMBERS, is_stem=False)
    return list(islice(terms.values(), MAX_QUERY_TERMS))


def spans_of(text: str, terms: Iterable[QueryTerm], language: str) -> list[tuple[int, int]]:
    """Return where a text says terms of a query.

    Args:
        text: The text.
        terms: The terms, from `query_terms`.
        language: Language of the index.

    Returns:
        Where each of them begins and ends, in characters, in their order.

    Example:
        >>> spans_of("A dog!", query_terms("dogs", "auto"), "auto")
        [(2, 5)]
    """
    ignored = () if text.isascii() else _compiled(_IGNORED).finditer(text)
    if unseen := {place for run in ignored for place in range(*run.span())}:
        seen = [place for place in range(len(text)) if place not in unseen]
        spans = spans_of("".join(text[place] for place in seen), terms, language)
        return [(seen[start], seen[end - 1] + 1) for start, end in spans]
    own = _own_language(plain_words(text), language)
    wanted = {term for asked in terms for term in asked.of([own])}
    spans = []
    for word in _WORD.finditer(text):
        for run in _compiled(_RUN).finditer(word[0]):
            start = word.start() + run.start()
            if not run[1]:
                if any(not wanted.isdisjoint(terms_of_word(plain, own)) for plain in plain_words(run[0])):
                    spans.append((start, start + len(run[0])))
                continue
            spans += _marked(run[0], start, wanted)
    for cut in _compiled(_CUT_WORD).finditer(text) if _may_cut(text) else ():
        if not wanted.isdisjoint(terms_of_word(_folded(cut[1] + cut[2]), own)):
            spans = [span for span in spans if not cut.start() <= span[0] < cut.end()] + [cut.span()]
    return sorted(spans)


def _marked(run: str, start: int, wanted: set[str]) -> list[tuple[int, int]]:
    """Return where a run without spaces has wanted pairs. Characters that no pair was wanted of count, too."""
    characters = [(part.start(), part.end(), _folded(part[0])) for part in _compiled(_CHARACTER).finditer(run)]
    pairs = [(first[0], second[1]) for first, second in pairwise(characters) if f"{first[2]}{second[2]}" in wanted]
    spans: list[tuple[int, int]] = []
    for begin, end in pairs or [(begin, end) for begin, end, character in characters if character in wanted]:
        if spans and begin <= spans[-1][1] - start:
            spans[-1] = spans[-1][0], start + end
        else:
            spans.append((start + begin, start + end))
    return spans
