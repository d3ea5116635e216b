"""The lines of code of each room, held below the budget in pyproject.toml: ``python -m tests.support.line_budget``.

A line of Python counts if it has a token that is not a comment, a string alone or layout; lines of the page, of tables
and of SQL count unless they are blank. ``--all`` prints every room with its budget.
"""

import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

from vlmsearch._util.tables import read_table

ROOT = Path(__file__).parents[2]
_QUIET = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.STRING,
    tokenize.ENDMARKER,
)  # fmt: skip
_OTHERS = (".js", ".css", ".html", ".toml", ".sql")


def lines_of(path: Path) -> int:
    """Count the lines of code of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".py":
        return sum(bool(line.strip()) for line in text.splitlines())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return len({token.start[0] for token in tokens if token.type not in _QUIET})


def lines_by_room(root: Path = ROOT) -> Counter[str]:
    """Count the lines of each folder of `vlmsearch`, and of the other top folders as a whole."""
    rooms: Counter[str] = Counter()
    for top in ("vlmsearch", "mocks", "engines", "benchmarks", "tests"):
        for path in (root / top).rglob("*"):
            parts = path.relative_to(root).parts
            room = "/".join(parts[:2]) if top == "vlmsearch" and len(parts) > 2 else top
            if path.suffix in (".py", *_OTHERS):
                rooms[room] += lines_of(path)
    return rooms


def budgets_of(root: Path = ROOT) -> dict[str, int]:
    """Return the budget of each room."""
    tools: Any = read_table(root / "pyproject.toml")["tool"]
    return dict(tools["line-budget"])


def main(root: Path = ROOT) -> None:
    """Print the rooms above their budgets, and exit with 1 if there is one."""
    budgets, rooms = budgets_of(root), lines_by_room(root)
    above = {room for room in rooms if rooms[room] > budgets.get(room, 0)}
    for room in sorted(rooms if "--all" in sys.argv else above):
        print(f"{room}: {rooms[room]:,} lines of code, budget {budgets.get(room, 0):,}")
    if unknown := sorted(set(budgets) - set(rooms)):
        print(f"no room has the name {', '.join(unknown)}: remove it from the budget")
    if above or unknown:
        sys.exit("above the budget in pyproject.toml, [tool.line-budget]: make room by what the change replaces")


if __name__ == "__main__":
    main()
