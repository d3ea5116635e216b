"""The words of queries that no document holds, and the nearest words of the index.

No index keeps its words, only keys of their stems. So words near to a misspelt one are made, and the index says which
of them it holds. These are the words one edit away, and for a long word also those two likely slips away. For edits see
Damerau, "A technique for computer detection and correction of spelling errors", CACM 7(3), 1964.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice

from vlmsearch.encoders.base import Encoder, MeasuresTexts
from vlmsearch.search.arrange import encoded_document
from vlmsearch.stores.base import CountsWords, Store
from vlmsearch.stores.terms import plain, plain_words, query_words, words_of
from vlmsearch.stores.versions import read_documents
from vlmsearch.types import Hit

_TYPED = re.compile(r'"[^"]*"|(?<![^\s(¿¡])([^\W\d_]{5,40})(?=[.,;:!?)…]*(?:\s|$))')
"""Words that may be misspelt: of up to 40 letters, and neither a part of a code nor in quotation marks."""
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ",
    "אבגדהוזחטיכלמנסעפצקרשת",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
)
_WRITTEN_FOR = """
a-eiou e-aiouy i-aeouy o-aeiu u-aeio y-ei c-ks k-c s-czx z-s x-s t-d d-t b-pv p-b f-v v-fb g-j j-g m-n n-m
а-еоия е-аиоэ и-аеоы о-аеиё ё-о э-е ы-и я-а д-т т-д б-п п-б г-к к-г в-ф ф-в з-с с-з ш-щ щ-ш
α-ο ο-αω ω-ο ι-ηυ η-ι υ-ι
"""
_ALIKE = {pair[0]: pair[2:] for pair in _WRITTEN_FOR.split()}
"""The letters that may be meant by a letter."""
_LIKE_SOUNDS = """
f-ph c-ck k-ck c-z c-ch k-q t-th r-rh w-wh s-sc c-sc x-ks x-cs y-ll ai-ei h- e- n- r- ь- ε-αι ι-ει"""
"""Letters that sound alike, and letters that are left out."""
_TRIED, _READ = 6, 3
"""Words that are looked up in texts, and texts in which each is looked up."""
_MENDED = 8
"""Unknown words of a text that are looked at."""
_ENDING = 2
"""Letters of an ending."""
_SHORT, _LONG = 5, 7
"""Letters up to which words have a likely slip alone, and from which on two.

A short word with another letter is too often a word of its own.
"""
_SaidBy = Callable[[Sequence[Hit]], set[str]]
"""A function that returns the words of what was found."""


def nearest_words(
    store: Store, texts: Sequence[str], language: str, encoder: Encoder, *, is_thorough: bool = True
) -> list[dict[str, str]]:
    """Return words of each text that no document holds, with the nearest words of the index.

    Args:
        store: The index.
        texts: The texts of queries.
        language: The index's.
        encoder: The model; what is one token of it is a word, although no document holds it.
        is_thorough: Whether words with any other slip are tried, too, where the likely ones have none.
    """
    if not language or not isinstance(store, CountsWords):
        return [{} for _ in texts]
    asked = [list(query_words(text, language)) for text in texts]
    typed = [
        dict.fromkeys(word for word in _TYPED.findall(text) if not word.isupper() and word.casefold() in words)
        for text, words in zip(texts, asked)
    ]
    if not any(typed):
        return [{} for _ in texts]
    every = list(dict.fromkeys(word for words in asked for word in words))
    held = {word for word, count in zip(every, store.count_words(every)) if count}
    lacking = ([word for word in map(str.casefold, words) if word not in held][:_MENDED] for words in typed)
    unknown = list(dict.fromkeys(chain.from_iterable(lacking)))
    if unknown and isinstance(encoder, MeasuresTexts):  # a word said twice is one token only of a script unknown to it
        tokens, twice = encoder.text_tokens(unknown), encoder.text_tokens([word * 2 for word in unknown])
        unknown = [word for word, count, doubled in zip(unknown, tokens, twice) if count > 1 or doubled == 1]
    near = {word: _nearest(store, partial(_said_by, store), word, is_thorough=is_thorough) for word in unknown}
    return [
        {word: best.title() if word.istitle() else best for word in words if (best := near.get(word.casefold()))}
        for words in typed
    ]


def respelt(text: str, words: Mapping[str, str]) -> str:
    """Return a text with other words in the place of some."""
    return _TYPED.sub(lambda typed: words.get(typed[0], typed[0]), text) if words else text


def _nearest(store: CountsWords, said_by: _SaidBy, word: str, *, is_thorough: bool) -> str | None:
    """Return the word of the index that a misspelt one stands for; None for none."""
    alphabet = next((letters for letters in _ALPHABETS if not set(letters).isdisjoint(word)), "")
    near = _best(store, said_by, word, [{other for _, other in _swapped(word)}, set(_sounding(word))])
    if near is None and is_thorough and len(word) > _SHORT:
        near = _best(store, said_by, word, [set(_missed(word, alphabet)), set(_replaced(word, alphabet))])
    if near is None and is_thorough and len(word) >= _LONG:
        twice = {other for i, once in _swapped(word) for _, other in _swapped(once, max(i - 1, 0))}
        near = _best(store, said_by, word, [twice])
    return near


def _best(store: CountsWords, said_by: _SaidBy, word: str, kinds: list[set[str]]) -> str | None:
    """Return what texts say of the likeliest kind of slip: the word that is in the most of them."""
    near = list({other for kind in kinds for other in kind} - {word})
    counts = {other: count for other, count in zip(near, store.count_words(near)) if count}
    ranked = dict.fromkeys(
        other for kind in kinds for other in sorted(kind & counts.keys(), key=lambda held: (-counts[held], held))
    )
    inflected: str | None = None
    for other in islice(ranked, _TRIED):
        said = said_by(store.search_words(other, limit=_READ).hits)
        written = {own for own in said if plain(own) == plain(other) or own in ranked}
        if written:
            return min(written, key=lambda own: (plain(own) != plain(other), own))
        longer = [own for own in said if own.startswith(other) and len(own) <= len(other) + _ENDING]
        inflected = inflected or min(longer, default=None)
    return inflected


def _said_by(store: Store, hits: Sequence[Hit]) -> set[str]:
    """Return the words of the texts that were found."""
    contents = read_documents(store, [hit.id for hit in hits], hits).values()
    return {said for content in contents for said in plain_words(words_of(encoded_document(*content)))}


def _swapped(word: str, first: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the words likeliest meant, each with the place of its slip: swapped, doubled or alike letters."""
    for i in range(first, len(word)):
        start, letter, end = word[:i], word[i], word[i + 1 :]
        if end:
            yield i, start + end[0] + letter + end[1:]
        if i:
            yield i, start + letter + letter + end
            if start[-1] == letter:
                yield i, start + end
        if len(word) > _SHORT:
            yield from ((i, start + other + end) for other in _ALIKE.get(letter, ""))


def _sounding(word: str) -> Iterator[str]:
    """Yield the words that sound alike, and those with a letter that is hardly heard."""
    for pair in _LIKE_SOUNDS.split():
        written, heard = pair.split("-")
        for typed, meant in ((written, heard), (heard, written)):
            at = word.find(typed, not (typed and meant))
            while at >= 0:
                yield word[:at] + meant + word[at + len(typed) :]
                at = word.find(typed, at + 1)


def _missed(word: str, alphabet: str) -> Iterator[str]:
    """Yield the words with a letter more or less, and the same first letter."""
    for i in range(1, len(word) + 1):
        yield word[:i] + word[i + 1 :]
        yield from (word[:i] + letter + word[i:] for letter in alphabet)


def _replaced(word: str, alphabet: str) -> Iterator[str]:
    """Yield the words with another letter, and the same first letter."""
    for i in range(1, len(word)):
        yield from (word[:i] + letter + word[i + 1 :] for letter in alphabet)
