"""Number formats of Excel: what a reader of a sheet sees of a value (ECMA-376, part 1, 18.8.30 and 18.8.31).

Dates whose form differs between countries are shown as ISO 8601 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

_ANY = re.IGNORECASE | re.DOTALL
GENERAL = "General"
"""The format of cells without a format."""
_NUMBERS = (GENERAL, "0", "0.00", "#,##0", "#,##0.00", *2 * ("$#,##0;($#,##0)",), *2 * ("$#,##0.00;($#,##0.00)",))
_SHARES = ("0%", "0.00%", "0.00E+00", "# ?/?", "# ??/??")
_DATES = ("yyyy-mm-dd", "d-mmm-yy", "d-mmm", "mmm-yy")
_TIMES = ("h:mm AM/PM", "h:mm:ss AM/PM", "h:mm", "h:mm:ss", "yyyy-mm-dd hh:mm")
_LEDGER = (*2 * ("#,##0;(#,##0)",), *2 * ("#,##0.00;(#,##0.00)",), "#,##0;(#,##0);-", "$#,##0;($#,##0);$-")
_LAST = ("#,##0.00;(#,##0.00);-", "$#,##0.00;($#,##0.00);$-", "mm:ss", "[h]:mm:ss", "mm:ss.0", "##0.0E+0", "@")
_EAST_ASIA = dict.fromkeys((*range(27, 32), 36, *range(50, 55), 57, 58), "yyyy-mm-dd")
_CODES = dict(enumerate(_NUMBERS + _SHARES + _DATES + _TIMES)) | dict(enumerate(_LEDGER + _LAST, 37)) | _EAST_ASIA
BUILT_IN = {str(number): code for number, code in _CODES.items()}
"""Formats that a file may name by their number alone."""
_LITERAL = re.compile(r'"([^"]*)"?|\\(.)|\[\$([^\]-]*)[^\]]*\]|(_.|\* )|\*.|\[(?!(?:h+|m+|s+)\]|[<>=])[^\]]*\]', _ANY)
_FOREIGN = re.compile(r"\[\$[^\]-]*-(?!en|[^\]]*09\])", _ANY)
"""The start of a locale other than English, whose numbers end in 09."""
_CONDITION = re.compile(r"\[([<>]=?|=|<>)(-?\d+(?:\.\d*)?)\]")
_NUMBER = re.compile(
    r"((?:[^0#?.]|\.(?![0#?]))*)((?:[0#?](?:(?:(?!E[+-])[^.])*[0#?])?)?)(,*)"  # what is before the digits; whole ones
    r"(?:\.([0#?]*)(,*))?(?:E([+-])([0#?]+))?([^0#?]*)",  # decimals; an exponent; what is after the digits
    _ANY,
)
_FRACTION = re.compile(r"([^0#?]*)([0#?]+[^0#?/]+)?[0#?]+ */ *(?:(\d*[1-9]\d*)|([0#?]+))(.*)", _ANY)
_HALVES = re.compile("AM/PM|A/P|上午/下午", _ANY)
_MINUTES = (re.compile(r"(h\]?[^ymdhs]*)(mm?)(?!m)", _ANY), re.compile(r"((?<!m))(mm?)(?=[^ymdhs]*s|\])", _ANY))
"""Minutes after hours, and before seconds or in a duration. Elsewhere "m" stands for months."""
_FIELD = re.compile(r"(\[?)([ymndhsegb])\2*\]?|\.(0+)|.", _ANY)
_FIELDS = {"d": "{0.day:0%d}", "h": "{1:0%d}", "m": "{0.month:0%d}", "n": "{0.minute:0%d}", "s": "{0.second:0%d}"}
_WORDS = {"ddd": "{0:%a}", "dddd": "{0:%A}", "mmm": "{0:%b}", "mmmm": "{0:%B}", "y": "{0:%y}", "yy": "{0:%y}"}
_DURATIONS = {"h": "{2:0%d}", "n": "{3:0%d}", "s": "{4:0%d}"}
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_SHIELD = {code: 0xE000 + code for code in range(128)}
"""Characters for private use in the place of literal ones, which so are no codes."""
_LIFT = {shield: code for code, shield in _SHIELD.items()}


class NumberFormat:
    """A number format.

    Args:
        code: The format as it is written in a file, such as ``#,##0.00 "EUR"``.
        is_1904: Whether days count from 1904, as in workbooks of old Macintoshes, and not from 1900.

    Example:
        >>> NumberFormat("0.0%").number("0.125"), NumberFormat('"INV-"0000000').number("4711")
        ('12.5%', 'INV-0004711')
    """

    def __init__(self, code: str, *, is_1904: bool = False) -> None:
        is_foreign = bool(_FOREIGN.search(code))
        literal = re.sub(" +", " ", _LITERAL.sub(_shielded, code).replace("@", GENERAL))
        sections = [section.strip() for section in literal.split(";")]
        has_text = len(sections) > 3 or "@" in code.rpartition(";")[2]
        self._text = sections.pop() if has_text else ""
        if not "".join(sections):  # numbers that are hidden are read, as hidden rows are
            sections = [GENERAL]
        conditions = [_CONDITION.search(section) for section in sections]
        self._sections = []
        for place, (section, own) in enumerate(zip(sections, conditions, strict=True)):
            fits, limit = own.groups() if own else (("<" if place else ">=" if len(sections) == 2 else ">"), 0)
            shown = _shown(_CONDITION.sub("", section), is_1904, is_foreign)
            self._sections.append((fits, float(limit), place == 1 and not conditions[0], shown))

    def number(self, value: str) -> str:
        """Return what a reader sees of a number that is written as in a file.

        Raises:
            ValueError: It is not a number.
        """
        number = float(value)
        for fits, limit, is_negative, shown in self._sections:  # noqa: B007 - the last one is for all others
            if ("<" if number < limit else ">" if number > limit else "=") in fits:
                break
        try:
            return f"{'-' if number < 0 and not is_negative else ''}{shown(abs(number))}"
        except (ArithmeticError, ValueError):  # no day of the calendar, or infinite
            return general(number)

    def text(self, value: str) -> str:
        """Return what a reader sees of a text."""
        return re.sub(GENERAL, lambda _: value, self._text, flags=_ANY).translate(_LIFT) or value


def general(value: float) -> str:
    """Return what a reader sees of a number without a format: at most 15 digits that count."""
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if "e+" in text and abs(value) < 1e21 else text.upper()


def _shielded(literal: re.Match[str]) -> str:
    return " " if literal[4] else (literal[1] or literal[2] or literal[3] or "").translate(_SHIELD)


def _shown(section: str, is_1904: bool, is_foreign: bool) -> Callable[[float], str]:
    """Return the function that shows numbers without their signs by a section of a format."""
    if re.search(GENERAL, section, _ANY):
        return lambda value: re.sub(GENERAL, general(value), section, flags=_ANY).translate(_LIFT)
    if re.search("[ymdhse]", section, _ANY) and not re.search("[0#?]", re.sub("[.,]0+", "", section)):
        return _date(section, is_1904, is_foreign)
    if fraction := _FRACTION.fullmatch(section):
        return _fraction(*fraction.groups(""))
    number = _NUMBER.fullmatch(section)
    # Decimals with words among them are rare: all digits are better than a part of them.
    return _number(section.count("%"), *number.groups("")) if number else general


def _number(
    percents: int, head: str, whole: str, commas: str, decimals: str, more: str, sign: str, power: str, tail: str
) -> Callable[[float], str]:
    scale = min(2 * percents, 30) - min(3 * len(commas + more), 30)
    slots, decimals = whole.replace(",", ""), decimals[:30]
    places = len(decimals)
    size, zeros, fixed = len(re.findall("[0#?]", slots)) or 1, slots.count("0"), len(decimals.rstrip("#?"))
    is_apart, has_commas = not re.fullmatch("[#?]*0*", slots), slots != whole
    width = max(zeros + has_commas * ((zeros - 1) // 3) + places + bool(decimals), 1)
    form = f"0{width}{',' * has_commas}.{places}f"
    head, tail = head.translate(_LIFT), tail.translate(_LIFT)
    factor, unit = 10.0**scale, 10.0**places
    is_plain = zeros and fixed == places and not is_apart and not power

    def exact(value: float, scale: int) -> Decimal:
        number = Decimal(f"{value:.15g}").scaleb(scale)
        return number.quantize(Decimal(1).scaleb(-places), context=_EXACT)

    def shown(value: float) -> str:
        number: Any = value * factor
        if power:
            exponent = Decimal(f"{number:.15g}").adjusted() // size * size
            exponent += size * (exact(value, scale - exponent) >= 10**size)  # 9.99 is 10.0 when it is rounded
            number = exact(value, scale - exponent)
        elif number * unit > 1e15 or abs(number * unit % 1 - 0.5) < 1e-6:  # floats do not round halves upwards
            number = exact(value, scale)
        if is_plain:
            return f"{head}{number:{form}}{tail}"
        digits, dot, rest = f"{number:{form}}".partition(".")
        if not zeros and (digits == "0" or not slots + decimals):
            digits = ""
        if is_apart:
            digits = _filled(slots, digits)
        if places > fixed:
            rest = rest[:fixed] + rest[fixed:].rstrip("0")
        if power:
            rest += f"E{'-' if exponent < 0 else sign.strip('-')}{abs(exponent):0{len(power)}}"
        return f"{head}{digits}{dot}{rest}{tail}"

    return shown


def _filled(slots: str, digits: str) -> str:
    """Return digits in the places for them, from the last one, among literal characters."""
    filled = ""
    for slot in reversed(slots):
        is_literal = slot not in "0#?"
        filled = (slot if is_literal else digits[-1:] or slot.strip("#?")) + filled
        digits = digits if is_literal else digits[:-1]
    return (digits + filled).translate(_LIFT)


def _fraction(head: str, whole: str, fixed: str, digits: str, tail: str) -> Callable[[float], str]:
    def shown(value: float) -> str:
        number = Fraction(f"{value:.15g}")
        below = int(fixed) if fixed else number.limit_denominator(10 ** len(digits) - 1).denominator
        above = int(number * below + Fraction(1, 2))
        words = f"{above}/{below}"
        if whole:
            words = f"{above // below or ''} {above % below}/{below}".strip() if above % below else str(above // below)
        return f"{head}{words}{tail}".translate(_LIFT)

    return shown


def _date(section: str, is_1904: bool, is_foreign: bool) -> Callable[[float], str]:
    if is_foreign and re.search("mmm|ddd|[geb]|/p|午", section, _ANY):  # words of another language
        iso = (("yyyy-mm-dd", "[yde]|mmm"), ("hh:mm:ss", "h"))
        section = " ".join(form for form, units in iso if re.search(units, section, _ANY))
    halves = _HALVES.search(section)
    section = _HALVES.sub("\0", section)
    for minutes in _MINUTES:
        section = minutes.sub(lambda match: match[1] + "n" * len(match[2]), section)
    template = "".join(map(_field, _FIELD.finditer(section)))
    templates = [template.replace("\0", half) for half in (halves[0].upper().split("/") if halves else ("", ""))]
    precision = max((len(field[3] or "") for field in _FIELD.finditer(section)), default=0)

    @lru_cache(maxsize=2**12)
    def shown(value: float) -> str:
        seconds = round(value * 86400, precision)
        day = timedelta(days=1462 if is_1904 else seconds < 60 * 86400)  # there is a 29 February 1900
        moment = datetime(1899, 12, 30, tzinfo=timezone.utc) + day + timedelta(seconds=seconds)
        hour = (moment.hour - 1) % 12 + 1 if halves else moment.hour
        whole, part = divmod(round(seconds * 10**precision), 10**precision)
        return templates[moment.hour >= 12].format(moment, hour, whole // 3600, whole // 60, whole, part)

    return shown


def _field(code: re.Match[str]) -> str:
    """Return the code of a date or time as a field of `str.format`."""
    text, unit = code[0].lower(), (code[2] or "").lower()
    if code[3]:
        return f".{{5:0{len(code[3])}}}"
    if not unit:
        return code[0].translate(_LIFT).replace("{", "{{").replace("}", "}}")
    if code[1] and unit in _DURATIONS:
        return _DURATIONS[unit] % (len(text) - 2)
    return _WORDS.get(text) or (_FIELDS[unit] % min(len(text), 2) if unit in _FIELDS else "{0.year}" * (unit in "ye"))
