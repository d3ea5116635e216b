"""What the words of documents and queries are, in any script."""

import hashlib
import importlib
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from vlmsearch_mocks import MemoryStore
from vlmsearch_mocks.contracts.words import HOSTILE, make_record

from vlmsearch import ConfigError, Document
from vlmsearch.search.relevance import PRIOR, THRESHOLD, to_relevance, words_beside
from vlmsearch.stores import terms
from vlmsearch.stores.postings import Postings, WordTable, max_score
from vlmsearch.stores.terms import (
    LANGUAGES,
    check_language,
    language_clues,
    language_of,
    plain_words,
    query_terms,
    query_words,
    rules_of,
    spans_of,
    terms_of,
    words_of,
)
from vlmsearch.types import Field, Space

EVERY = [*LANGUAGES, "auto", "none"]


def shares(text: str, query: str, language: str = "auto") -> bool:
    """Whether a document of this text has a term of the query."""
    said, own = terms_of(text, language)
    return any(not set(said).isdisjoint(term.of([own])) for term in query_terms(query, language))


# ---- documents


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wie repariere ich das Hinterrad", "German"),
        ("How do I mend the rear wheel?", "English"),
        ("cómo reparar la rueda de una bicicleta", "Spanish"),
        ("где моя книга", "Cyrillic"),
        ("книга о 東京", "Cyrillic"),
        ("東京の駅", "Japanese"),
        ("东京的车站", "Chinese"),
        ("서울역", "Korean"),
        ("พิพิธภัณฑ์", "Thai"),
        ("كتاب", "Arabic"),
        ("ספר", "Hebrew"),
        ("red bicycle", ""),
        ("AB-4711 12", ""),
        ("", ""),
    ],
)
def test_clues_tell_the_language_of_a_text(text: str, language: str) -> None:
    [(name, count), (_, second)] = [*language_clues(text).most_common(2), ("", 0), ("", 0)][:2]
    assert (name if count >= 2 and count > second else "") == language


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document("1"), ""),
        (Document("1", text="A dog, in snow"), "A dog, in snow"),
        (Document("1", text="a dog", image=Path("cat.png")), "a dog"),
        (Document("1", text=" \n", image=Path("red_cat.png")), "red cat"),
        (Document("1", image=Path("/x/holidays/IMG_2041-beach.2019 (2).JPG")), "IMG 2041 beach 2019 2"),
        (Document("1", image=Path("goldenRetriever.jpg")), "goldenRetriever"),
        (Document("1", image=Path("USFlag-iPhone.jpg")), "USFlag iPhone"),
        (Document("1", image=Path("großeStraße_北京.png")), "großeStraße 北京"),
        (Document("1", image=Path("___.png")), ""),
        (Document("1", image=b"bytes of an image"), ""),
        (Document("1", image=Image.new("RGB", (1, 1))), ""),
    ],
)
def test_the_words_of_a_document(document: Document, expected: str) -> None:
    assert words_of(document) == expected


# ---- languages


def test_a_language_that_is_not_there_is_refused_with_those_that_are() -> None:
    for language in EVERY:
        assert check_language(language) == language
    for language in ("", "EN", "english", "zh", "xx", "parts"):
        with pytest.raises(ConfigError, match=r"auto .* en, eo, .* none"):
            check_language(language)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("two dogs running through the snow", "en"),
        ("die hard", "en"),
        ("", "en"),
        ("Ein Hund im Schnee", "de"),
        ("Häuser am See", "de"),
        ("Wo kann ich mein Paket abholen und was kostet das?", "de"),
        ("un chien court dans la neige", "fr"),
        ("un perro corre por la nieve", "es"),
        ("o cachorro não está na praia", "pt"),
        ("il cane corre nella neve con la palla", "it"),
        ("een hond die in het water speelt", "nl"),
        ("en hund och en katt på gatan", "sv"),
        ("pies i kot śpią na łóżku", "pl"),
        ("kutyák és macskák a kertben", "hu"),
        ("koira ja kissa ovat pihalla", "fi"),
        ("köpek ve kedi bahçede çok mutlu", "tr"),
        ("câinele și pisica sunt în grădină", "ro"),
        ("pes a kočka jsou na zahradě", "cs"),
        ("anjing dan kucing di taman", "id"),
    ],
)
def test_the_language_of_a_text_is_told_by_its_letters_and_frequent_words(text: str, language: str) -> None:
    assert language_of(plain_words(text)) == language


@pytest.mark.parametrize("language", EVERY)
def test_every_language_finds_a_word_by_itself_in_any_case(language: str) -> None:
    samples = [
        "snowman",
        "Straßenbahn",
        "приветствие",
        "लड़कियाँ",
        "مكتبة",
        "δρόμος",
        "İstanbul",
        "cafe\u0301",
        "東京",
        "부산",
    ]
    for word in samples:
        for query in (word, word.upper(), word.lower(), unicodedata.normalize("NFC", word)):
            assert shares(word, query, language), (word, query)
            assert not shares("unrelated", query, language)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("two dogs running", "run dog"),
        ("café crème", "cafe"),
        ("cafe creme", "CAFÉ"),
        ("die Häuser der Straße", "haus"),
        ("die Häuser an der Straße", "STRASSE"),
        ("les chevaux sont dans la forêt", "cheval"),
        ("собаки бегут", "собака"),
        ("los perros están corriendo", "correr"),
        ("लड़कियाँ", "लड़की"),
        ("الكتاب", "كتاب"),
        ("کتاب‌ها در کتابخانه هستند", "کتاب"),
        ("οι γάτες", "γάτα"),
    ],
)
def test_stems_are_those_of_the_language_of_the_document(text: str, query: str) -> None:
    assert shares(text, query)


def test_a_given_language_is_that_of_all_documents() -> None:
    assert shares("Häuser", "Haus", "de")
    assert not shares("Häuser", "Haus", "none")
    assert not shares("Häuser", "Haus", "en")
    assert shares("собаки", "собака", "de"), "what is written otherwise has the stems of its own"


def test_a_word_of_a_query_has_the_stems_of_all_languages_of_the_documents() -> None:
    [term] = query_terms("Häuser", "auto")
    assert set(term.of(["en", "de"])) == {"hauser", "haus"}
    assert term.of(["de"]) == ("haus",)


def test_words_as_they_are_have_no_stems_and_no_stop_words() -> None:
    assert shares("the dogs", "dogs", "none")
    assert not shares("a dog", "dogs", "none")
    assert query_words("The dogs", "none") == {"the": 1, "dogs": 1}


def test_stop_words_count_where_a_query_holds_nothing_else() -> None:
    for language in ("en", "auto"):
        assert query_words("the dog", language) == {"dog": 1}
        assert query_words("The dog isn't", language) == {"dog": 1, "isn": 1}
        assert query_words("to be or not", language) == {"to": 1, "be": 1, "or": 1, "not": 1}
    assert query_words("Was ist das für ein Hund", "auto") == {"hund": 1}
    assert query_words("die hard", "auto") == {"die": 1, "hard": 1}


# ---- scripts without spaces, and codes


def test_characters_and_pairs_are_the_terms_of_a_script_without_spaces() -> None:
    assert terms_of("東京タワー", "auto")[0] == ["東", "京", "タ", "ワ", "ー", "東京", "京タ", "タワ", "ワー"]
    assert terms_of("부산은 항구", "auto")[0] == ["부", "산", "은", "부산", "산은", "항", "구", "항구"]
    assert terms_of("iPhone手机", "auto")[0] == ["iphon", "手", "机", "手机", "phone"]
    for text, query in (
        ("我今天去北京大学", "北京"),
        ("東京タワー", "タワー"),
        ("กรุงเทพเป็นเมืองหลวง", "เมืองหลวง"),
        ("ခွေး", "ခွေး"),
    ):
        assert shares(text, query), text
    assert not shares("我今天去", "北京")


def test_codes_are_terms_with_their_parts() -> None:
    assert terms_of("AB-4711", "auto")[0] == ["ab", "4711", "ab4711"]
    assert terms_of("ab4711", "auto")[0] == ["ab4711", "ab", "4711"]
    assert terms_of("2024-06-12 and 3.5", "auto")[0] == ["2024", "06", "12", "and", "3", "5", "20240612", "3.5"]
    assert shares("IMG_2041.jpg", "2041")
    assert shares("ＡＢ-4711", "ab4711"), "in full width"


FORMS = (
    "7731.22.05|77312205",
    "7731.22.05|7731 22 05",
    "7731 22 05|77312205",
    "77312205|7731.22.05",
    "77312205|7731 22 05",
    "7731-22-05|7731.22.05",
    "1,204.50|1204.50",
    "1204.50|1,204.50",
    "1204.50|1.204,50",
    "1.204,50|1,204.50",
    "1 204,50|1204.50",
    "1'204.50|1204.50",
    "1204.50|1 204,50",
    "1,204|1204",
    "1204|1,204",
    "2,500,000|2500000",
    "978-3-16-148410-0|9783161484100",
    "9783161484100|978-3-16-148410-0",
    "978 3 16 148410 0|9783161484100",
    "+49 30 5557 1234|030 55571234",
    "030 55571234|+49 30 5557 1234",
    "030/5557-1234|+49 30 5557 1234",
    "+493055571234|(030) 5557 1234",
    "(030) 5557 1234|03055571234",
    "+49 (0)30 5557 1234|030 5557 1234",
    "03055571234|030 5557-1234",
    "+1 555 123 4567|555-123-4567",
    "(555) 123-4567|555 123 4567",
    "10.0.0.12|10.0.0.12",
    "v2.4.1|2.4.1",
    "2.4.1|v2.4.1",
    "version 2.4.1|2.4.1",
    "AB-4711|AB 4711",
    "AB-4711|ab4711",
    "AB 4711|AB-4711",
    "ab4711|AB-4711",
    "ab4711|AB 4711",
    "AB 4711|ab 4711",
    "AB-4711|4711",
    "SN: 4C-22-9981|4C229981",
    "P/N 400-1122-B|4001122B",
    "00:1A:2B:3C:4D:5E|001A2B3C4D5E",
    "00:1A:2B:3C:4D:5E|00-1a-2b-3c-4d-5e",
    "00:1A:2B:3C:4D:5E|00:1a:2b:3c:4d:5e",
    "001a.2b3c.4d5e|00:1A:2B:3C:4D:5E",
    "550e8400-e29b-41d4-a716-446655440000|550E8400E29B41D4A716446655440000",
    "550e8400-e29b-41d4-a716-446655440000|550e8400-e29b-41d4-a716-446655440000",
    "B-MW 1234|BMW 1234",
    "SKU A/100/XL|A-100-XL",
    "H2O|h2o",
    "C6H12O6|C6H12O6",
    "error 0x80070057|0x80070057",
    "ORA-00942|ora 00942",
    "ORA-00942|ORA00942",
    "E_ACCESSDENIED|E_ACCESSDENIED",
    "§ 312a BGB|§ 312a",
    "§312a|§ 312a",
    "ISO/IEC 27001:2022|ISO 27001",
    "ISO 27001|ISO27001",
    "RFC 9110|RFC9110",
    "RFC 9110|rfc-9110",
    "5kg|5 kg",
    "5 kg|5kg",
    "1.5mm|1.5 mm",
    "1.5 mm|1.5mm",
    "1,5 mm|1.5mm",
    "2024-06-12|2024-06-12",
    "2024-06-12|20240612",
    "GPT-4|gpt4",
    "iPhone 15|iphone15",
    "covid-19|covid 19",
    "COVID19|covid-19",
    "parseHttpResponse|parse_http_response",
    "parse_http_response|parseHttpResponse",
    "parseHttpResponse|parse http response",
    "parse http response|parseHttpResponse",
    "ParseHTTPResponse|parseHttpResponse",
    "parse_http_response|parse http response",
    "HTTPServer2|http server",
    "XMLHttpRequest|xml http request",
    "XMLHttpRequest|xmlhttprequest",
    "std::vector|vector",
    "std::vector|std vector",
    "os.path.join|path join",
    "--max-retries|max retries",
    "MAX_RETRIES|maxRetries",
    "maxRetries|max-retries",
    "max_retries|MAX_RETRIES",
    "JavaScript|javascript",
    "javascript|JavaScript",
    "C++|C++",
    "C++17|c++",
    "C#|c#",
    "F#|F#",
    ".NET|.net",
    "ASP.NET|asp.net",
    "Node.js|node.js",
    "node.js|Node js",
    "Objective-C|objective c",
    "order #10-2231|10-2231",
    "tel:+49-30-1234567|030 1234567",
    "4711 4712|4711 4712",
    "1990-1995|1990-1995",
    "1990–1995|1990-1995",
    "12/34|12/34",
    "3.5|3.5",
    "3,5|3.5",
    "$1,299.00|1299.00",
    "12:30|12:30",
    "M8x40|m8x40",
    "M8 x 40|M8 x 40",
    "DIN EN 1090-2|EN 1090-2",
    "DE89 3704 0044 0532 0130 00|DE89370400440532013000",
    "DE89370400440532013000|DE89 3704 0044 0532 0130 00",
    "4111 1111 1111 1111|4111111111111111",
    "4111-1111-1111-1111|4111 1111 1111 1111",
    "192.168.1.11|192.168.1.11",
    "CVE-2021-44228|CVE 2021 44228",
    "CVE-2021-44228|cve-2021-44228",
    "KB5034441|KB 5034441",
    "A320-200|A320 200",
    "S/N 8841|8841",
    "INV/2024/00017|INV-2024-00017",
    "utf8|utf-8",
    "UTF-8|utf8",
)
"""A text and a query that mean the same code."""
NEIGHBOURS = (
    "AB-4711|AB-4712",
    "AB-4711|AB 4712",
    "AB-4711|ab4712",
    "7731.22.05|7731.22.06",
    "7731.22.05|77312206",
    "7731 22 05|7731.22.06",
    "7731 22 05|7731 22 06",
    "+49 30 5557 1234|+49 30 5557 9999",
    "030 5557 1234|030 5557 9999",
    "978-3-16-148410-0|978-3-16-148411-0",
    "192.168.1.11|192.168.11.1",
    "192.168.1.11|192.168.1.12",
    "2.4.1|2.4.2",
    "v2.4.1|v2.4.2",
    "2.4.1|241",
    "3.5|35",
    "1.5mm|15mm",
    "1204.50|1204.51",
    "00:1A:2B:3C:4D:5E|00:1A:2B:3C:4D:5F",
    "550e8400-e29b-41d4-a716-446655440000|550e8400-e29b-41d4-a716-446655440001",
    "C++|C",
    "C++|C#",
    "C#|C",
    "C#|C++",
    "C|C++",
    "C language|C#",
    "F#|F",
    "fishing nets|.NET",
    "net|.NET",
    ".NET|net",
    "RFC 9110|RFC 9111",
    "ISO 27001|ISO 27002",
    "CVE-2021-44228|CVE-2021-44229",
    "H2O|H2SO4",
    "0x80070057|0x80070005",
    "2024-06-12|2024-06-13",
    "INV/2024/00017|INV/2024/00018",
    "ORA-00942|ORA-00943",
    "GPT-4|GPT-3",
)
"""A text and a query of another code that looks like it."""


def is_met(text: str, query: str) -> bool:
    """Return whether words alone show a document that says the text, among others."""
    others = [
        f"another text on the {thing} of house {number}" for thing in ("garden", "street") for number in range(30)
    ]
    table = WordTable([Postings.of(range(61), [*others, f"the manual says that this is kept: {text}"], "auto")], None)
    places, scores, said = table.best(query_terms(query, "auto"), 61)
    words = words_beside(max_score(said, table.texts), query, texts=61, documents=61).alone
    assert words is not None
    score = dict(zip(places.tolist(), scores.tolist())).get(60, 0.0)
    return to_relevance(PRIOR + float(words.of(np.array([score]))[0])) >= THRESHOLD


@pytest.mark.parametrize("pair", FORMS)
def test_a_code_is_met_in_all_its_forms(pair: str) -> None:
    assert is_met(*pair.split("|"))


@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_a_code_is_not_met_by_its_neighbour(pair: str) -> None:
    assert not is_met(*pair.split("|"))


def test_plain_texts_have_the_terms_of_their_words_alone() -> None:
    text = "In 2004, he had 5 of the 12 to mend. Then, at 12:30, it was (again) $99 for 3-4 in 1990-1995; see no. 2."
    words = [word if word.isdecimal() else terms_of(word, "auto")[0][0] for word in plain_words(text)]
    assert terms_of(text, "auto")[0] == words


# ---- what nobody sees, and words that a line cuts


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("das donau\u00addampf\u00adschiff", "Donaudampfschiff"),
        ("Donaudampfschiff", "donau\u00addampf\u00adschiff"),
        ("manu\u00ad\nfacturing", "manufacturing"),
        ("vlm\u200bsearch", "vlmsearch"),
        ("\ufeffword\u2060joined", "wordjoined"),
        ("Auf\u200clage", "Auflage"),
        ("\u202bשלום\u202c", "שלום"),
        ("क्\u200dष", "क्ष"),
        ("ภาษา\u200bไทย", "ษาไ"),
        ("من می\u200cخواهم", "می خواهم"),
        ("من می\u200cخواهم", "می\u200cخواهم"),
        ("من می\u200cخواهم", "میخواهم"),
        ("من میخواهم", "می\u200cخواهم"),
    ],
)
def test_characters_that_nobody_sees_are_in_no_word(text: str, query: str) -> None:
    assert shares(text, query)
    assert not shares(text, "zebra")


@pytest.mark.parametrize("text", ["a well-\nknown fact", "a well-known fact", "a wellknown fact"])
def test_a_word_with_a_hyphen_is_found_as_one_word_too(text: str) -> None:
    assert shares(text, "well-known")
    assert shares(text, "wellknown") == (text != "a well-known fact")
    assert query_terms("well-known", "auto")[0].of(["en"]) == ("well", "wellknown")
    assert [term.term for term in query_terms("state-of-the-art", "auto")] == ["state", "art"]


def test_a_cut_word_has_the_stem_of_the_whole() -> None:
    assert terms_of("manu-\nfacturing", "auto")[0] == ["manu", "factur", "manufactur"]
    assert terms_of("2-\n3 and A -\nB", "auto")[0] == ["2", "3", "and", "a", "b"]


# ---- queries


def test_a_term_counts_as_often_as_the_query_says_it_and_5_times_at_most() -> None:
    assert [(term.term, term.times) for term in query_terms("dogs, Dog and dogs", "auto")] == [("dog", 3)]
    assert [(term.term, term.times) for term in query_terms("dog " * 1000, "auto")] == [("dog", 5)]
    assert query_terms("東京 東京", "auto")[0].times == 2


def test_the_first_64_terms_count() -> None:
    said = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}q" for i in range(100)]
    assert [term.term for term in query_terms(" ".join(said), "auto")] == said[:64]
    assert len(query_terms("字" + "".join(map(chr, range(0x4E00, 0x4F00))), "auto")) == 64


@pytest.mark.parametrize("language", ["auto", "de", "none"])
@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_any_string_has_terms(query: str, language: str) -> None:
    said, _ = terms_of(query, language)
    assert all(term and term == term.strip() for term in said)
    assert not shares("zebra", query, language)
    assert shares(f"{query} zebra", "zebra", language)


@given(st.text())
def test_a_text_is_found_by_itself_or_has_no_words(text: str) -> None:
    assert shares(text, text) == bool(terms_of(text, "auto")[0])


@pytest.mark.parametrize("joined", ["{0}", "{0}-", "{0}-{0}", "{0}\u200c{0}", "{0}-\n{0}"])
def test_a_run_of_letters_and_marks_of_any_script_is_found_by_itself(joined: str) -> None:
    """Where a sign is both, the ways to read a run are as many as the powers of two: it would take hours."""
    for start in range(0x80, 0x3100, 0x40):
        letters = "".join(
            sign for sign in map(chr, range(start, start + 0x40)) if unicodedata.category(sign)[0] in "LM"
        )
        text = joined.format(letters * 4)
        assert shares(text, text) == bool(terms_of(text, "auto")[0])
        assert bool(spans_of(text, query_terms(text, "auto"), "auto")) == bool(terms_of(text, "auto")[0])


@pytest.mark.parametrize("piece", ["0", "0.", "a0", "1,", "(1)", "+1", "aA", "A-1 "])
def test_the_terms_of_a_long_run_are_those_of_its_pieces(piece: str) -> None:
    """Who looks for a code from each digit of a run takes the square of its length, and holds up all other searches."""
    text = piece * (100_000 // len(piece))
    assert len(query_words(text, "auto")) <= terms.MAX_QUERY_TERMS
    assert shares(f"{text} zebra", "zebra")


# ---- where they are


@pytest.mark.parametrize(
    ("text", "query", "said"),
    [
        ("A dog!", "dogs", ["dog"]),
        ("Die Häuser am See", "Haus", ["Häuser"]),
        ("我今天去北京大学", "北京大学", ["北京大学"]),
        ("我今天去北京", "京", ["京"]),
        ("see AB-4711 here", "4711", ["4711"]),
        ("see AB-4711 here", "ab4711", ["AB-4711"]),
        ("call +49 30 5557 1234 now", "030 55571234", ["+49 30 5557 1234"]),
        ("call parseHttpResponse first", "http_response", ["parseHttpResponse"]),
        ("in C++, not in C", "c++", ["C++"]),
        ("das Donau\u00addampf\u00adschiff fährt", "donaudampfschiff", ["Donau\u00addampf\u00adschiff"]),
        ("ภาษา\u200bไทย ดี", "ภาษาไทย", ["ภาษา\u200bไทย"]),
        ("a well-\nknown fact", "wellknown", ["well-\nknown"]),
        ("a well-\nknown fact", "known", ["known"]),
        ("a well-\r\nknown fact", "wellknown", ["well-\r\nknown"]),
        ("by manu\u00ad\nfacturing", "manufacturing", ["manu\u00ad\nfacturing"]),
        ("a wellknown fact", "well-known", ["wellknown"]),
        ("nothing", "dog", []),
    ],
)
def test_terms_are_marked_where_a_text_says_them(text: str, query: str, said: list[str]) -> None:
    assert [text[start:end] for start, end in spans_of(text, query_terms(query, "auto"), "auto")] == said


RULED = """
AB-4711 and AB 4711, v2.10.3 of C++, C# and .NET in parseHttpResponse; DE89 3704 0044 0532 0130 00 on 2026-11-29.
+49 (0)89 123-456 or 555-123-4567, 192.168.0.1, 00:1A:2B:3C:4D:5E, 1,234,567.89 kg, 12 V, 1999-2004, iPhone15
well-
known soft\u00adware, Straße, café, 東京の駅, 서울역, พิพิธภัณฑ์, می\u200cخواهم, книга, MODEL X 200, USB-C/3.2, no.7, 1st
"""


def test_other_rules_have_another_number() -> None:
    """An index notes the number. Where this fails, raise it in `rules_of`, and put it and the new digest here."""
    said = hashlib.sha256(" ".join(sorted(terms_of(RULED, "none")[0])).encode()).hexdigest()
    assert (rules_of("en").rpartition(", ")[2], said[:16]) == ("codes 2", "ca02e657a2232ebe")


def test_threads_share_a_stemmer() -> None:
    text = " ".join(f"{word}{ending}" for word in ("haus", "lauf", "spiel") for ending in ("e", "en", "ern", "es"))
    terms.terms_of_word.cache_clear()
    expected = terms_of(text, "de")
    wrong: list[object] = []

    def read() -> None:
        for _ in range(50):
            terms.terms_of_word.cache_clear()
            if terms_of(text, "de") != expected:
                wrong.append(threading.get_ident())
                return

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_store_in_memory_compares_words_as_it_is_told() -> None:
    space = Space("clip", 2, frozenset({"text"}))
    record = make_record("a", "Häuser AB-4711")
    vector = record.vectors[Field("clip", "image")][:2]
    record = type(record)(record.document, {Field("clip", "text"): vector / (vector @ vector) ** 0.5})
    for language, query, count in (("de", "haus", 1), ("none", "haus", 0), ("auto", "4711", 1)):
        with MemoryStore(language=language) as store:
            store.bind("encoder 1", [space])
            store.upsert([record])
            manifest = store.manifest()
            assert manifest is not None
            assert manifest.language == language
            assert len(store.search_words(query, limit=3).hits) == count
    with pytest.raises(ConfigError, match="language="):
        MemoryStore(language="zz")


@pytest.mark.parametrize("language", terms.LANGUAGES.values())
def test_stemmers_in_c_make_the_stems_of_those_in_python(language: str) -> None:
    in_c = importlib.import_module("Stemmer").Stemmer(language)
    in_python = getattr(importlib.import_module(f"snowballstemmer.{language}_stemmer"), f"{language.title()}Stemmer")()
    words = sorted(frozenset().union(*terms._STOP_WORDS_OF.values()))
    assert in_c.stemWords(words) == in_python.stemWords(words)
