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
  So is a long number, however its digits are grouped. A query of a code is met by the whole code alone.
* The words in a name of code are terms, too: ``parseHttpResponse`` is found by "parse http response". ``C++``, ``C#``
  and ``.NET`` are terms of their own.

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
from typing import NamedTuple, Protocol

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
_SPACED_LETTERS = 3
"""The number of the first kind of code whose letters are beside a space."""
_SHORT_NUMBER, _SHORT_DECIMAL, _OF_PHONE = 5, 7, 8
"""Digits at most of numbers with points, with a single point, and of local phones."""
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
_PART_OF_WORD = rf"(?<![\w{_MARKS}])(?:[^\W\d_]|(?!\w)[{_MARKS}])+"  # no two ways to match: else Thai takes for ever
_CUT_WORD = rf"({_PART_OF_WORD})(?:[-\u2010]\r?\n|{_NON_JOINER})({_PART_OF_WORD})"
_COMPOUND = rf"(?<!-)({_PART_OF_WORD})(?:[-\u2010]|{_NON_JOINER})({_PART_OF_WORD})(?![\w{_MARKS}-])"
_ASCII_WORDS = "".join(sign.lower() if sign.isalnum() else " " for sign in map(chr, range(128))).encode().ljust(256)
_CODES = (  # the last one is no code where it says an amount
    re.compile(
        r"(?<![^\W_])(?:[^\W_]+(?:[-_./\u2013][^\W_]+)+"
        r"|(?:[\dA-Fa-f]{2}:){5}[\dA-Fa-f]{2}|[A-Z]{2}\d\d(?: \d{4}){3,}(?: \d{1,4})?)"
    ),
    re.compile(r"(?<!\d)\d+(?:[-./,'\u2019\u2013]\d+)+"),
    re.compile(r"\+?\(?(?<!\d)\d+(?:(?:[-./,'\u2019\u2013]|[() \u00a0\u2009\u202f]{1,3})\d+)+|\+\d{9,}"),
    re.compile(r"(?<![^\W_])(?:[^\W\d_]{1,4}[-/])?[^\W\d_]{1,4}[ \u00a0]\d+(?![^\W_])"),
    re.compile(r"(?<![^\W_])\d+(?:[.,]\d+)?[ \u00a0\u202f][^\W\d_]{1,3}(?![^\W_])"),
)
_SPACE = re.compile(r"[()\s]")
_YEARS = re.compile(r"(?:1[5-9]|20)\d\d\D(?:1[5-9]|20)\d\d")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}([.,'\u2019 \u00a0\u2009\u202f])\d{3}(?:\1\d{3})*(?!\1?\d)")
_DOTTED = re.compile(r"(?<!\d)\d+(?:[.,]\d+)+")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NOT_OF_CODE = re.compile(r"(?<!\d)\.|\.(?!\d)|[^\w.]|_|(?<![^\W_])v(?=\d+\.)")
_PHONE = re.compile(r"\+|\(?0|\(?\d{3}\D{1,2}\d{3}\D\d{4}$")
_LONG_WORD = re.compile(r"[^\W\d_]{5}")
_SIGNED = re.compile(r"(?<![^\W_])[a-z]+\+\+|(?<![^\W_])[a-z]#(?![^\W_])|\.net(?![^\W_])", re.IGNORECASE)
_CASES = "".join("a" if sign.islower() else "A" if sign.isupper() else " " for sign in map(chr, range(256))).encode(
    "latin-1"
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_RUN = f"([{_UNSPACED}]+)|[^{_UNSPACED}]+"
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d\S*(?:[^\S\n]{1,3}[^\s\d]*\d\S*)*(?=([^\S\n]?\S*))")
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
        'IMG 0042 GoldenRetriever'
    """
    if document.text and not document.text.isspace():
        return document.text
    if not isinstance(document.image, Path):
        return ""
    return " ".join(_WORD.findall(document.image.stem))


@cache
def rules_of(language: str) -> str:
    """Return which rules make the words of an index: the release of the stemmer, and the number of those for codes.

    Others may make other terms.

    Args:
        language: The index's.

    Returns:
        Such as ``snowballstemmer 3.1.0, codes 2``; "" for an index without words, or with words as they are.

    Example:
        >>> rules_of("none")
        ''
    """
    return "" if language in ("", NONE) else f"snowballstemmer {_stemmer_release()}, codes 2"


@cache
def _stemmer_release() -> str:
    import snowballstemmer

    folders = [*Path(snowballstemmer.__file__).parents[1].glob("snowballstemmer-*.dist-info")]
    if len(folders) == 1:  # each search asks, and importlib.metadata takes longer to import than the folder to list
        return folders[0].stem.partition("-")[2]
    from importlib.metadata import version

    return version("snowballstemmer")


def other_rules(made_by: str, language: str) -> str:
    """Say which rules made the words of an index, where they are not those of today.

    Args:
        made_by: The `rules_of` the version that made them.
        language: The index's.

    Returns:
        Part of a sentence; "" where the rules are the same.

    Example:
        >>> other_rules("snowballstemmer 2.2.0", "none")
        'made by snowballstemmer 2.2.0, and here is none'
    """
    here = rules_of(language)
    return "" if made_by == here else f"made by {made_by or 'an unknown stemmer'}, and here is {here or 'none'}"


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
    letters = [] if text.isascii() else filter(str.isalpha, "".join(words)[:_TELLING_CHARS])
    scripts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    [(script, count)] = scripts.most_common(1) or [("LATIN", 0)]
    if script != "LATIN":
        own = next((script for script in _OF_SCRIPTS if script in scripts), script) if script in _OF_SCRIPTS else script
        language = _OF_SCRIPTS.get(own, own.capitalize())  # what may be Chinese may be Japanese, too
        return Counter({language: count, **({"Japanese": count - 1} if language == "Chinese" else {})})
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
    has_codes = _DIGIT.search(text) is not None  # as `has_number`, and without a call: most texts have none
    codes = [term for code in _codes(_around_digits(text)) for term in code.terms] if has_codes else []
    signed = _signed(text)
    codes += map(str.lower, signed)
    words = plain_words(_SIGNED.sub(" ", text) if signed else text)
    if language == AUTO:
        language = language_of(words) if text.isascii() or _PERSIAN.isdisjoint(text) else "fa"
    if _may_cut(text):
        words += [f"{start}{end}" for start, end in _compiled(_CUT_WORD).findall(_folded(text))]
    words += plain_words(" ".join(part for name in _names(text) for part in name if len(part) > 1))
    return words, codes, language


def _names(text: str) -> list[list[str]]:
    """Return the parts of each name in camel case, such as goldenRetriever and USFlag."""
    letters = text.encode("ascii", "replace").translate(_CASES)
    if b"aA" not in letters and b"AAaa" not in letters:
        return []
    runs = (run[0] for word in _WORD.findall(text) for run in _compiled(_RUN).finditer(word))
    return [parts for run in runs if len(parts := _HUMP.split(run)) > 1]


def _may_cut(text: str) -> bool:
    return "\u200c" in text or "-\n" in text or "-\r" in text or "\u2010\n" in text or "\u2010\r" in text


def _signed(text: str) -> list[str]:
    """Return the names with signs, such as C++."""
    return _SIGNED.findall(text) if "#" in text or "++" in text or ".n" in text or ".N" in text else []


def _around_digits(text: str) -> str:
    """Return the words with a digit and their neighbours, a line for each run."""
    runs, end = [], 0
    for run in _DIGITS.finditer(text):
        before = text.rfind(" ", end, max(text.rfind(" ", end, run.start()), end))
        runs.append(text[max(before, end) : run.end(1)])
        end = run.end()
    return "\n".join(runs)


class _Code(NamedTuple):
    """A code, or a number, that is written with separators.

    Attributes:
        start: Where it begins in the text.
        end: Where it ends.
        terms: What documents that say it have. The last one is what all forms of it have.
        is_whole: Whether a query asks for the whole of it alone.
    """

    start: int
    end: int
    terms: tuple[str, ...]
    is_whole: bool


def _codes(text: str) -> list[_Code]:
    """Return the codes that separators are in, such as AB-4711, the longest first."""
    codes: dict[tuple[int, int], _Code] = {}
    for kind, expression in enumerate(_CODES if has_number(text) else ()):
        for match in expression.finditer(text):
            said = _folded(match[0])
            term = _joined(said)
            if _is_code(term):
                letters = "".join(filter(str.isalpha, match[0]))
                is_spaced = kind >= _SPACED_LETTERS
                if is_spaced and letters.lower() in _STOP_WORDS_OF["en"]:
                    continue
                is_name = kind == _SPACED_LETTERS and letters.isupper() and not text[match.end() :][1:2].isdecimal()
                is_whole = is_name if is_spaced else not _LONG_WORD.search(said)
                terms: tuple[str, ...] = (term,)
                if is_spaced and "/" in said:  # ISO/IEC 27001
                    first, _, second = said.partition("/")
                    terms = _joined(second), first + second.split()[-1]
            elif (
                not has_number(term)
                or not ("." in term or _GROUPED.fullmatch(said) or len(term) > _SHORT_NUMBER)
                or _YEARS.fullmatch(said)
            ):
                continue
            else:
                terms = (term, *_phone(said, term))
                spaces = len(_SPACE.findall(said))
                is_whole = not spaces or spaces > 1 or len(terms) > 1 or _GROUPED.match(said) is not None
            codes.setdefault(match.span(), _Code(*match.span(), terms, is_whole))
    return sorted(codes.values(), key=lambda code: code.start - code.end)


def _joined(code: str) -> str:
    """Return a folded code without separators; points stay in short numbers, versions and addresses."""
    code = _GROUPED.sub(lambda number: "".join(filter(str.isdecimal, number[0])), code)
    return _NOT_OF_CODE.sub("", _DOTTED.sub(_number, code))


def _number(dotted: re.Match[str]) -> str:
    groups = re.split("[.,]", dotted[0])
    is_short = len("".join(groups)) <= (_SHORT_NUMBER if len(groups) > 2 else _SHORT_DECIMAL)
    return ("." if is_short or _ADDRESS.fullmatch(dotted[0]) else "").join(groups)


def _phone(said: str, digits: str) -> tuple[str, ...]:
    """Return the end of what may be a telephone number, which it has with any prefix."""
    return (digits[-_OF_PHONE:],) if len(digits) > _OF_PHONE and digits.isdecimal() and _PHONE.match(said) else ()


def _is_code(word: str) -> bool:
    return not word.isalpha() and has_number(word) and any(map(str.isalpha, word))


@lru_cache(maxsize=_REMEMBERED)
def terms_of_word(word: str, language: str) -> tuple[str, ...]:
    """Return the terms of one of the `plain_words`."""
    if word.isascii():
        if word.isdecimal():
            return (word, *_phone(word, word))
        return (word, *_stems(word, language)) if _is_code(word) else (_stem(word, language),)
    terms: list[str] = []
    for run in _compiled(_RUN).finditer(word):
        if run[1]:
            characters = _compiled(_CHARACTER).findall(run[0])
            terms += characters
            terms += map("".join, pairwise(characters))
        elif _is_code(run[0]):
            terms += [run[0], *_stems(run[0], language)]
        else:
            terms.append(_stem(run[0], language))
    return tuple(term for term in terms if term)


def _stems(code: str, language: str) -> list[str]:
    return [_stem(part, language) for part in _PART.findall(code)]


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
    rest, codes = _without_codes(query)
    words = plain_words(rest)
    stop_words = _STOP_WORDS_OF.get(_own_language(words, language), frozenset())
    counted = Counter([word for word in words if word not in stop_words] or ([] if codes else words))
    counted.update(codes.keys())
    return {word: min(times, MAX_REPEATS) for word, times in islice(counted.items(), MAX_QUERY_TERMS)}


def _without_codes(query: str) -> tuple[str, dict[str, str]]:
    """Return a query without its whole codes; and their terms, by what it says."""
    terms: dict[str, str] = {}
    for code in _codes(query):
        said = query[code.start : code.end]
        if code.is_whole and not said.isspace():
            terms[said] = code.terms[-1]
            query = query[: code.start] + " " * len(said) + query[code.end :]
    terms.update((name, name.lower()) for name in _signed(query))
    return _SIGNED.sub(" ", query), terms


def are_codes(query: str) -> bool:
    """Return whether a query is nothing but codes, numbers and names such as C++.

    Example:
        >>> are_codes("AB-4711"), are_codes("number 77")
        (True, False)
    """
    rest, codes = _without_codes(query)
    words = [word for word in rest.split() if _WORD.search(word)]
    return all(has_number(word) and not _LONG_WORD.search(word) for word in words) and bool(words or codes)


def has_long_code(query: str) -> bool:
    """Return whether a query holds a code of letters and four digits, or of eight digits.

    Example:
        >>> has_long_code("manual AB-4711"), has_long_code("mp3 of 1999")
        (True, False)
    """
    rest, codes = _without_codes(query)
    terms = [*codes.values(), *(word for word in plain_words(rest) if not _LONG_WORD.search(word))]
    return any(sum(map(str.isdecimal, term)) >= (4 if _is_code(term) else 8) for term in terms)


def has_number(text: str) -> bool:
    """Return whether a text has a digit.

    Example:
        >>> has_number("number 77"), has_number("a dog")
        (True, False)
    """
    return _DIGIT.search(text) is not None


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
    names = [name for name in _names(query) if min(map(len, name)) > 1]
    for name in names:
        query = query.replace("".join(name), " ".join(name))
    rest, codes = _without_codes(query)
    parts = _compiled(_COMPOUND).findall(_folded(rest)) if "-" in rest or not rest.isascii() else ()
    compounds = {word: [start + end] for start, end in parts for word in (start, end)}
    compounds.update((_folded(part), [_folded("".join(name))]) for name in names for part in name)

    def add(term: str, word: str, times: int, *, is_stem: bool) -> None:
        said = terms.get(term, QueryTerm(term, (), 0, language, is_stem))
        words = (*said.words, word, *(compounds.get(word, ()) if is_stem else ()))
        terms[term] = replace(said, words=words, times=min(said.times + times, MAX_REPEATS))

    for word, times in query_words(query, language).items():
        if (code := codes.get(word, _whole(word))) is not None:
            add(code, word, times * (_OF_NUMBERS if has_number(code) else 1), is_stem=False)
            continue
        is_stem = not _is_code(word) and (word.isascii() or not _compiled(_UNSPACED_CHARACTER).search(word))
        is_name = word.isascii() and _is_code(word)  # iphone15 is met by its parts
        for term, count in Counter(terms_of_word(word, own)[is_name:]).items():
            add(term, word, times * count * (_OF_NUMBERS if has_number(term) else 1), is_stem=is_stem)
    for beside in _codes(rest):
        add(beside.terms[-1], rest[beside.start : beside.end], _OF_NUMBERS, is_stem=False)
    return list(islice(terms.values(), MAX_QUERY_TERMS))


def _whole(word: str) -> str | None:
    """Return the term of a word that is a whole code, such as ab4711; else None."""
    if not word.isascii() or not has_number(word) or _LONG_WORD.search(word):
        return None
    return (*_phone(word, word), word)[0]


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
                parts = plain_words(" ".join((run[0], *_HUMP.split(run[0]))))
                if any(not wanted.isdisjoint(terms_of_word(plain, own)) for plain in parts):
                    spans.append((start, start + len(run[0])))
                continue
            spans += _marked(run[0], start, wanted)
    for cut in _compiled(_CUT_WORD).finditer(text) if _may_cut(text) else ():
        if not wanted.isdisjoint(terms_of_word(_folded(cut[1] + cut[2]), own)):
            spans = [span for span in spans if not cut.start() <= span[0] < cut.end()] + [cut.span()]
    for code in reversed(_codes(text)):
        if not wanted.isdisjoint(code.terms):
            spans = [span for span in spans if not code.start <= span[0] < code.end] + [(code.start, code.end)]
    spans += [name.span() for name in _SIGNED.finditer(text) if name[0].lower() in wanted]
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
