"""The budget of lines counts what is code, and names the room that is above its own."""

from pathlib import Path

import pytest

from tests.support.line_budget import lines_of, main

CODE = """'''A docstring
of two lines.'''

# a comment
NAMES = (
    "a",
    "b",
)


def double(number: int) -> int:
    '''Return twice a number.'''
    return 2 * number  # twice
"""


def test_lines_of_code_have_more_than_a_comment_or_a_string(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE)
    (tmp_path / "a.js").write_text("let a;\n\n  \nlet b;\n")
    assert [lines_of(tmp_path / name) for name in ("a.py", "a.js")] == [6, 2]


def test_a_room_above_its_budget_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vlmsearch/room").mkdir(parents=True)
    (tmp_path / "vlmsearch/room/a.py").write_text(CODE)
    (tmp_path / "vlmsearch/room/a.md").write_text("no code")
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.line-budget]\n"vlmsearch/room" = 6\n')
    main(tmp_path)
    project.write_text('[tool.line-budget]\n"vlmsearch/room" = 5\n"vlmsearch/gone" = 1\n')
    with pytest.raises(SystemExit, match="above the budget"):
        main(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "vlmsearch/room: 6 lines of code, budget 5",
        "no room has the name vlmsearch/gone: remove it from the budget",
    ]
