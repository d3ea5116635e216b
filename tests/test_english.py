"""The rules of plain English that a program can check."""

from pathlib import Path

import pytest

from tests.support.english import problems

ROOT = Path(__file__).parent.parent
FILES = sorted(path.relative_to(ROOT) for room in ("vlmsearch", "mocks") for path in (ROOT / room).rglob("*.py"))


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
        ("# the rows of which it is made", ["phrase"]),
        (f'"""{"word " * 26}."""', ["long"]),
        (f'"""{"word " * 20}. {"Word " * 20}."""', []),
        (
            f'def f():\n    """Return it.\n\n    Args:\n        a: {"word " * 20}\n        b: {"word " * 20}\n    """',
            [],
        ),
    ],
)
def test_the_rules(source: str, rules: list[str]) -> None:
    assert [problem.rule for problem in problems(source)] == rules
