from __future__ import annotations

import math
from dataclasses import MISSING, FrozenInstanceError, dataclass, field

import pytest

from vlmsearch import ConfigError
from vlmsearch._util.options import bounded, options_of, short


@dataclass(frozen=True)
class Paging:
    """The options of a page.

    Attributes:
        limit: Maximum number of items. The next
            sentence is for the manual.
        share: Share of the page.
    """

    limit: int = bounded(10, minimum=1, maximum=10_000)
    share: float | None = bounded(None, above=0)


@dataclass(frozen=True, kw_only=True)
class Listing(Paging):
    """The options of a list.

    Attributes:
        key: Key of the order.
    """

    name: str
    key: str | None = short(None, 3)
    seed: int | None = None
    words: tuple[str, ...] = field(default_factory=tuple)
    backwards: bool = False
    made: int = field(init=False, default=0)


def test_options_are_what_a_dataclass_and_those_above_it_declare() -> None:
    options = options_of(Listing)
    assert list(options) == ["limit", "share", "name", "key", "seed", "words", "backwards"]
    limit, key = options["limit"], options["key"]
    assert (limit.type, limit.default, limit.help, limit.minimum) == (int, 10, "Maximum number of items", 1)
    assert (key.type, key.default, key.help, key.max_chars) == (str | None, None, "Key of the order", 3)
    assert options["name"].default is MISSING
    assert options["words"].default == ()
    assert options_of(Listing) is options
    with pytest.raises(FrozenInstanceError):
        limit.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limit", 0, "`limit` of lists is from 1 to 10,000, not 0"),
        ("limit", 10_001, "`limit` of lists is from 1 to 10,000, not 10001"),
        ("limit", True, "`limit` of lists is from 1 to 10,000, not True"),
        ("limit", 2.5, "`limit` of lists is from 1 to 10,000, not 2.5"),
        ("limit", None, "`limit` of lists is from 1 to 10,000, not None"),
        ("share", 0, "`share` of lists is above 0, not 0"),
        ("share", math.nan, "`share` of lists is above 0, not nan"),
        ("share", "much", "`share` of lists is a number, not 'much'"),
        ("seed", 1.5, "`seed` of lists is a whole number, not 1.5"),
        ("key", "long", "`key` has at most 3 characters, not 4"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(Listing)[name].check(value, " of lists")
    assert str(caught.value) == message


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(TypeError, match=r"^`backwards` is True or False, not 1$"):
        options_of(Listing)["backwards"].check(1)
    for name in ("key", "words"):
        with pytest.raises(TypeError, match=f"^`{name}` is a .*string.*, not 5$"):
            options_of(Listing)[name].check(5)


@pytest.mark.parametrize(
    ("name", "value"), [("limit", 1), ("share", None), ("share", 3), ("seed", -1), ("key", None), ("words", ("a",))]
)
def test_other_values_pass(name: str, value: object) -> None:
    options_of(Listing)[name].check(value)
