"""Rules of plain English that a program can check, for the docstrings, comments and names of Python files.

``python -m tests.support.english vlmsearch/search`` prints what breaks them; `tests/test_english.py` holds them.
"""

import ast
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAX_WORDS, MAX_FIRST_WORDS = 25, 16
"""Words of a sentence, and of the first sentence of a docstring."""
NAMES = frozenset({"each", "found", "least", "most", "one", "ours", "theirs", "thaw", "last_gasp"})
"""Names that say nothing of what they hold; ``matches``, ``field``, ``hit`` and ``max_bm25`` do."""
LIMITS = re.compile(
    r"(?<!at_)(?<![a-z])(?:most|least)(?![a-z])|(?:LONGEST|SHORTEST|LARGEST|SMALLEST|FEWEST|MOST|LEAST)(?![A-Z])"
)
"""Names of limits: these are called ``max`` and ``min``."""
PARTICIPLES = re.compile(
    r"_?(?:[A-Z][a-z]*(?<!e)ed|Begun|Chosen|Drawn|Found|Given|Held|Kept|Made|Sent|Shown|Sought|Taken|Told)"
)
"""Names of types that are a participle and no noun: ``StoredArrays`` says what ``Kept`` does not."""
_NO_VERBS = """
a about all an and any as at both by each every everything for how if in it its no nothing of on one only or some that
the their there these they this those to under up what when where whether which who why with
"""
NO_VERBS = frozenset(_NO_VERBS.split())
"""Words that a docstring of a function does not begin with: it begins with a verb in the imperative."""
_VERBS = """
answer call check collect compare count create describe do find give hold keep know let list load make map measure
name pass put read refuse report return run save say search send serve show state store take tell try use wait work
write yield
"""
VERBS = frozenset(_VERBS.split())
"""Words that a docstring of a class does not begin with: it begins with a noun."""
PHRASES = re.compile(
    r"\b(of which|of whom|to whom|from whom|where that|what for|for what|theirs|ours|hers)\b", re.IGNORECASE
)
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_WORD = re.compile(r"[\w'`-]+")
_FIRST = re.compile(r"(?<=[.:?!])\s|\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=\S)|\n\s*\n|\n\s*[-*] |\n\s*(?=\w+: )")
_ARGUMENTS = re.compile(r"^( *)Args:\n((?:\1 +.*\n|\n)*)", re.MULTILINE)
_QUOTED = re.compile(r"``(\w+)``")
_SECTION = re.compile(r"^\s*(Args|Attributes|Example|Examples|Raises|Returns|Yields):\s*$", re.MULTILINE)


class Problem(NamedTuple):
    """A place that breaks a rule."""

    line: int
    rule: str
    text: str


def problems(source: str) -> Iterator[Problem]:
    """Yield what breaks the rules in the source of a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        yield from _names(node)
    for owner, text in _docstrings(tree):
        yield from _docstring(owner, text)
    for line, comment in _comments(source):
        yield from _sentences(line, comment)


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield the docstrings, each with the function or class that it belongs to; an attribute's with its assignment."""
    for node in ast.walk(tree):
        before: ast.AST = node
        body = getattr(node, "body", [])
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(ast.Constant(str()) as constant):
                    yield before, constant
            before = statement


def _docstring(owner: ast.AST, constant: ast.Constant) -> Iterator[Problem]:
    text = str(constant.value).strip()
    match = re.match(r"[A-Za-z]+", text)
    first = match[0].lower() if match else ""
    line = constant.lineno
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        if first in NO_VERBS or (first.endswith("s") and first[:-1] in VERBS):
            yield Problem(line, "verb", text.partition("\n")[0])
    elif isinstance(owner, ast.ClassDef):
        if first in VERBS or first in {"what", "whether", "how", "who", "where", "why"}:
            yield Problem(line, "noun", text.partition("\n")[0])
    elif not isinstance(owner, ast.Module) and first in {"what", "how", "who", "where", "why"}:
        yield Problem(line, "noun", text.partition("\n")[0])
    first_sentence = _FIRST.split(_CODE.sub("code", text))[0]
    if len(_WORD.findall(first_sentence)) > MAX_FIRST_WORDS:
        yield Problem(line, "first", " ".join(first_sentence.split()))
    is_derived = isinstance(owner, ast.ClassDef) and owner.bases
    for name in set() if is_derived else _described(str(constant.value)) - _arguments(owner):
        yield Problem(line, "argument", name)
    yield from _sentences(line, text)


def _described(text: str) -> set[str]:
    """Return the names that a docstring describes as arguments.

    These are those of its section ``Args``, and names elsewhere that no argument has.
    """
    match = _ARGUMENTS.search(text + "\n")
    entries = re.findall(r"^(\w[\w, ]*|\*+\w+):", textwrap.dedent(match[2]) if match else "", re.MULTILINE)
    names = {name.strip("* ") for entry in entries for name in entry.split(",")}
    return names | NAMES.intersection(_QUOTED.findall(text))


def _arguments(owner: ast.AST) -> set[str]:
    """Return the names of the arguments of a function, or of what makes an object of a class."""
    if not isinstance(owner, ast.ClassDef):
        return {node.arg for node in ast.walk(getattr(owner, "args", owner)) if isinstance(node, ast.arg)}
    made = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    fields = {
        node.target.id for node in owner.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return set.union(fields, *map(_arguments, made))


def _sentences(line: int, text: str) -> Iterator[Problem]:
    for match in PHRASES.finditer(text):
        yield Problem(line, "phrase", match[0])
    prose = text.partition("Example:\n")[0]
    for sentence in _SENTENCE.split(_SECTION.sub("\n\n", prose)):
        words = _WORD.findall(_CODE.sub("code", sentence))
        if len(words) > MAX_WORDS:
            yield Problem(line, "long", f"{len(words)} words: {' '.join(sentence.split())}")


def _names(node: ast.AST) -> Iterator[Problem]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            pass
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            pass
        case _:
            return
    if name.lower().strip("_") in NAMES or LIMITS.search(name) or PARTICIPLES.fullmatch(name):
        yield Problem(getattr(node, "lineno", 0), "name", name)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    lines = iter(source.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def main() -> None:
    """Print the problems of the files and folders that are named."""
    for name in sys.argv[1:]:
        for path in sorted(Path(name).rglob("*.py")) if Path(name).is_dir() else [Path(name)]:
            for problem in problems(path.read_text(encoding="utf-8")):
                print(f"{path}:{problem.line}: {problem.rule}: {problem.text}")


if __name__ == "__main__":
    main()
