"""The rules of plain English that a program can check."""

from pathlib import Path

import pytest

from tests.support.english import problems

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path.relative_to(ROOT) for room in ("vlmsearch", "mocks", "engines") for path in (ROOT / room).rglob("*.py")
)


def test_names_docstrings_and_comments_are_plain_english() -> None:
    broken = [
        f"{file}:{line}: {rule}: {text}"
        for file in FILES
        for line, rule, text in problems((ROOT / file).read_text(encoding="utf-8"))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('def f():\n    """What it is."""', ["verb"]),
        ('def f():\n    """Returns it."""', ["verb"]),
        ('def f():\n    """Return it."""', []),
        ('class C:\n    """Hold it."""', ["noun"]),
        ('class C:\n    """A thing."""', []),
        ('A = 1\n"""What it is."""', ["noun"]),
        ("found = 1", ["name"]),
        ("for each in ():\n    pass", ["name"]),
        ("def f(most): ...", ["name"]),
        ("def _found(): ...", ["name"]),
        ("_MOST_BYTES = LONGEST_PAGE = 1", ["name", "name"]),
        ("self.least_rate = longest_word = at_most = is_found = MAX_BYTES = 1", ["name"]),
        ("class Kept: ...", ["name"]),
        ("Given = dict", ["name"]),
        ("class Overviewed: ...", ["name"]),
        ("class StoredArrays: ...\nclass Feed: ...", []),
        ("# the rows of which it is made", ["phrase"]),
        (f'"""Word. {"word " * 26}."""', ["long"]),
        (f'"""Word. {"word " * 20}. {"Word " * 20}."""', []),
        (f'"""{"word " * 16}: {"word " * 20}."""', []),
        (f'A = 1\n"""{"word " * 15}`{"word " * 5}`.\n\n{"Word " * 17}."""', []),
        (f'A = 1\n"""{"word " * 17}."""', ["first"]),
        (
            f'def f(a, b):\n    """Return.\n\n    Args:\n        a: {"word " * 9}\n        b: {"word " * 17}\n    """',
            [],
        ),
        ('def f(a):\n    """Return it.\n\n    Args:\n        b: A number: 1.\n    """', ["argument"]),
        ('class C:\n    """A thing.\n\n    Args:\n        b: A number.\n    """\n    b: int\n', []),
        ('def f(max_bm25):\n    """Return it, ``most`` where it is known."""', ["argument"]),
    ],
)
def test_the_rules(source: str, rules: list[str]) -> None:
    assert [problem.rule for problem in problems(source)] == rules
