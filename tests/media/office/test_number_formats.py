import pytest

from vlmsearch.media.office.number_formats import BUILT_IN, NumberFormat


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("General", "12345678901234567", "12345678901234600"),
        ("General", "0.30000000000000004", "0.3"),
        ("General", "1.5E-10", "1.5E-10"),
        ("0.00", "1.005", "1.01"),
        ("0%", "0.285", "29%"),
        ("0.0%", "0.125", "12.5%"),
        ('"INV-"0000000', "4711", "INV-0004711"),
        ('#,##0.00 "EUR"', "1234.5", "1,234.50 EUR"),
        ("[$€-407] #,##0.00", "1234.5", "€ 1,234.50"),
        ("#,##0_);[Red](#,##0)", "-1234", "(1,234)"),
        ('_-* #,##0.00 "€"_-;-* #,##0.00 "€"_-;_-* "-"?? "€"_-;_-@_-', "0", "- €"),
        ("#,##0.00", "-1234.567", "-1,234.57"),
        ('#,##0.0,,"M"', "1234567", "1.2M"),
        ("#.##", "0.5", ".5"),
        ("000-00-0000", "12345678", "012-34-5678"),
        ('0" h "00" min"', "130", "1 h 30 min"),
        ('[<1000]0" g";0.0," kg"', "2500", "2.5 kg"),
        ('0;-0;"zero"', "0", "zero"),
        ("0;;", "-1", ""),
        (";;;", "42", "42"),
        ("0.00E+00", "9.999e9", "1.00E+10"),
        ("##0.0E+0", "12345", "12.3E+3"),
        ("# ?/?", "-1.25", "-1 1/4"),
        ("# ??/16", "0.5", "8/16"),
        ("0 kg", "5", "5 kg"),
        ("{0}", "5", "{5}"),
    ],
)  # fmt: skip
def test_a_number_is_what_a_reader_sees(code: str, value: str, shown: str) -> None:
    assert NumberFormat(code).number(value) == shown


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("h:mm", "0.5", "12:00"),
        ("h:mm AM/PM", "0.6", "2:24 PM"),
        ("[h]:mm", "1.75", "42:00"),
        ("[mm]:ss", "0.05", "72:00"),
        ("mm:ss.0", "0.0000125", "00:01.1"),
        ("m/d/yyyy h:mm", "46095.6315", "3/14/2026 15:09"),
        ("d mmm yy", "46095", "14 Mar 26"),
        ("[$-409]dddd, mmmm d, yyyy;@", "46095", "Saturday, March 14, 2026"),
        ("[$-407]d. mmmm yyyy", "46095", "2026-03-14"),
        ("[$-F800]dddd, mmmm dd, yyyy", "46095", "2026-03-14"),
        ('[$-411]yyyy"年"m"月"d"日"', "46095", "2026年3月14日"),
        ('yyyy\\-mm\\-dd\\Thh:mm:ss"{Z}"', "46095.5", "2026-03-14T12:00:00{Z}"),
        ("yyyy-mm-dd", "59", "1900-02-28"),
        ("yyyy-mm-dd", "61", "1900-03-01"),
        ("yyyy-mm-dd", "99999999", "99999999"),
        (BUILT_IN["14"], "46095", "2026-03-14"),
        (BUILT_IN["22"], "46095.75", "2026-03-14 18:00"),
        (BUILT_IN["46"], "1.5", "36:00:00"),
        (BUILT_IN["39"], "-5", "(5.00)"),
    ],
)  # fmt: skip
def test_a_day_and_a_time_are_what_a_reader_sees_or_iso_where_countries_differ(
    code: str, value: str, shown: str
) -> None:
    assert NumberFormat(code).number(value) == shown


def test_days_of_old_macintoshes_count_from_1904() -> None:
    assert NumberFormat("yyyy-mm-dd", is_1904=True).number("44633") == "2026-03-14"


@pytest.mark.parametrize(
    ("code", "shown"), [('"Nr. "@', "Nr. 4711"), ('0;-0;0;"T: "@', "T: 4711"), (";;;", "4711"), ("0.00", "4711")]
)
def test_a_text_has_a_section_of_its_own(code: str, shown: str) -> None:
    assert NumberFormat(code).text("4711") == shown


def test_what_is_no_number_is_said() -> None:
    with pytest.raises(ValueError, match="x"):
        NumberFormat("0.00").number("x")
