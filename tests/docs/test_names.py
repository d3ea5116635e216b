"""Every name of a model, command, option, extra, variable or attribute that a page or a message gives is one."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import pytest

import vlmsearch
from tests.support.extras import EXTRAS
from tests.support.paths import ROOT
from vlmsearch._util.tables import read_table
from vlmsearch.cli import cli
from vlmsearch.models.bundle import LANGUAGE, PROFILES, RERANKER, recipe_names
from vlmsearch.models.generator import generator_names
from vlmsearch.models.locations import is_hub_name
from vlmsearch.registry import ComponentKind, back_ends

PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
PROGRAMS = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".toml", ".yaml"))
SOURCES = sorted(path for room in ("vlmsearch", "mocks") for path in (ROOT / room).rglob("*.py"))

ENCODERS = {*PROFILES, *recipe_names()}
RERANKERS = set(recipe_names(RERANKER))
GENERATORS = {*generator_names(), *recipe_names(LANGUAGE)}
MODELS = {
    "encoder": ENCODERS,
    "judge": GENERATORS,
    "generator": GENERATORS,
    "rerank": RERANKERS,
    "reranker": RERANKERS,
}
"""The models that can be named behind an option or an argument."""
FOREIGN_OPTIONS = {"--eval", "--evaluate", "--find-links", "--help", "--only", "--version"}
"""Options in texts that are those of other programs, or of all commands."""
FOREIGN_KEYWORDS = {
    "check_embedding_ctx_length",
    "cleanup",
    "extra_body",
    "require_auth",
    "sep",
    "sslmode",
    "store_full_path",
    "synchronous",
    "transport_security",
    "trust_remote_code",
    *("cpu", "time"),
    *("date", "year"),
}
"""Arguments and settings of other libraries, libpq's too, limits of media, and fields of metadata in filters."""
UNKNOWN_SCHEMES = {"onyx"}
"""Schemes in examples of errors."""
VALUES = {
    "pipe": ("Pipeline", "AsyncPipeline", "RemotePipeline"),
    "pipeline": ("Pipeline", "AsyncPipeline", "RemotePipeline"),
    "match": ("Match",),
    "matches": ("Matches",),
    "document": ("Document",),
}
"""The classes of the values that texts call by these names."""


class Text(NamedTuple):
    """A part of a page or program: ``kind`` is "prose", "span", "sh", "python" or another language.

    ``foreign`` are the names that the page imports from other packages.
    """

    where: str
    kind: str
    text: str
    foreign: frozenset[str] = frozenset()


Rule = Callable[[Text], Iterator[str]]
_FENCE = re.compile(r"^( *)```(\w*).*\n((?:.*\n)*?)^ *```$", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)([^`]+?)\1(?!`)")
_NAME = re.compile(r"[`:\[]|VLMSEARCH_")
"""What a text has in it that names anything."""
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*|\.\.\.|X|")


# ---- what is read


def texts_of_page(page: Path) -> Iterator[Text]:
    """Yield the prose and the code of a page."""
    name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        code = match[3].replace("\\\n", " ")
        yield Text(f"{name}:{line}", match[2], code, foreign_names(text))
    yield from texts_of_prose(name, _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text))


def foreign_names(text: str) -> frozenset[str]:
    """Return what a text imports from other packages, and the usual names of their pipelines."""
    names = re.findall(r"\w+", " ".join(re.findall(r"^ *from (?!vlmsearch)\S+ import ([^\n]+)", text, re.MULTILINE)))
    return frozenset({*names, *(name.lower() for name in names)})


def texts_of_prose(name: str, text: str) -> Iterator[Text]:
    """Yield the paragraphs of a text, and the code between backticks in them."""
    line = 1
    for paragraph in text.split("\n\n") if _NAME.search(text) else ():
        yield Text(f"{name}:{line}", "prose", paragraph)
        for match in _SPAN.finditer(paragraph):
            yield Text(
                f"{name}:{line + paragraph.count(chr(10), 0, match.start())}", "span", " ".join(match[2].split())
            )
        line += paragraph.count("\n") + 2


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a module that rules look at."""
    kinds = (ast.AnnAssign, ast.Constant, ast.JoinedStr, ast.arg)
    return tuple(node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, kinds))


def texts_of_source(path: Path) -> Iterator[Text]:
    """Yield the strings of a module, docstrings among them; what an f-string inserts is ``X``."""
    name = str(path.relative_to(ROOT))
    for node in nodes_of(path):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield from texts_of_prose(f"{name}:{node.lineno}", "".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from texts_of_prose(f"{name}:{node.lineno}", node.value)


@cache
def every_text() -> tuple[Text, ...]:
    """Return all texts that are checked."""
    pages = [text for page in PAGES for text in texts_of_page(page)]
    programs = [
        Text(str(path.relative_to(ROOT)), path.suffix[1:].replace("py", "python"), text, foreign_names(text))
        for path in PROGRAMS
        for text in (path.read_text(encoding="utf-8"),)
    ]
    return (*pages, *programs, *(text for path in SOURCES for text in texts_of_source(path)))


# ---- what there is


@cache
def options_of(command: click.Command) -> frozenset[str]:
    """Return the long and short options of a command alone."""
    return frozenset(name for param in command.params for name in (*param.opts, *param.secondary_opts))


@cache
def all_commands() -> dict[str, click.Command]:
    """Return every command of ``vlmsearch`` by its words."""
    commands: dict[str, click.Command] = {}

    def add(words: str, command: click.Command) -> None:
        commands[words] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                add(f"{words} {name}".strip(), below)

    add("", cli)
    return commands


@cache
def all_options() -> frozenset[str]:
    """Return the options of all commands and benchmarks."""
    benchmarks = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    own = [re.findall(r'"(--[a-z][a-z-]+)', text) for text in benchmarks]
    return frozenset().union(FOREIGN_OPTIONS, *own, *map(options_of, all_commands().values()))


@cache
def all_variables() -> frozenset[str]:
    """Return the environment variables that are read: those of options, and those that a constant names."""
    settings = {str(param.envvar) for command in all_commands().values() for param in command.params if param.envvar}
    ends = [text for text in constants() if re.fullmatch("_?VLMSEARCH_[A-Z_]+|[A-Z]+", text)]
    return frozenset(settings.union(ends, (f"VLMSEARCH_TRITON_{end}" for end in ends)))


@cache
def constants() -> frozenset[str]:
    """Return the strings of the sources."""
    nodes = (node for path in SOURCES for node in nodes_of(path))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def all_parameters() -> frozenset[str]:
    """Return the parameters of all functions and the fields of all classes in the sources."""
    nodes = [node for path in SOURCES for node in nodes_of(path)]
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return frozenset(parameters | fields)


@cache
def attributes_of(name: str) -> frozenset[str]:
    """Return the attributes of an exported class: those of its bases, and those that methods set."""
    value = getattr(vlmsearch, name)
    if not inspect.isclass(value):
        return frozenset().union(*(attributes_of(kind.__name__) for kind in get_args(value) if inspect.isclass(kind)))
    bases = [base for base in inspect.getmro(value) if base.__module__.startswith("vlmsearch")]
    fields = {field for base in bases for field in getattr(base, "__annotations__", {})}
    own = {attribute for base in bases for attribute in re.findall(r"self\.(\w+)", inspect.getsource(base))}
    return frozenset({*dir(value), *fields, *own})


@cache
def schemes_of(kind: ComponentKind) -> frozenset[str]:
    """Return the schemes of back ends, and those in examples of errors."""
    return frozenset({*back_ends(kind), *UNKNOWN_SCHEMES})


@cache
def extras() -> frozenset[str]:
    """Return the extras of the package."""
    project: Any = read_table(ROOT / "pyproject.toml")["project"]
    return frozenset(project["optional-dependencies"])


@cache
def targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    return frozenset(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@cache
def parameters_of(name: str) -> frozenset[str]:
    """Return the parameters of a method of pipelines, an exported class or an exported function."""
    if name in vlmsearch.__all__:
        return frozenset(inspect.signature(getattr(vlmsearch, name)).parameters)
    methods = [getattr(getattr(vlmsearch, kind), name, None) for kind in VALUES["pipe"]]
    found = [inspect.signature(method).parameters for method in methods if callable(method)]
    return frozenset().union(*found)


# ---- the rules


def wrong_models(text: Text) -> Iterator[str]:
    """Yield models that are neither a recipe, a profile, one of the hub, a path nor a placeholder."""
    urls = r"(?:(\w+)[\"'`]?(?:[ =:]|\": )[\"']?)?(?<![\w./-])(?:onnx|tensorrt|torch):(?!//)([\w./+~-]+)"
    for match in re.finditer(urls, text.text):
        known = MODELS.get(match[1] or "", ENCODERS | RERANKERS | GENERATORS)
        yield from (f"{match[0]}: {name}" for name in match[2].rstrip(".-").split("+") if not is_model(name, known))
    if text.kind in ("span", "sh"):
        for match in re.finditer(r"\bvlmsearch (?:build|bench encode|bench gpu)((?: [\w./+~-]+)+)", text.text):
            names = [name for name in match[1].split() if not name.startswith("-")]
            first = match[1].split()[0]
            if not first.startswith("-"):
                yield from (f"{match[0]}: {names[0]}" for name in names[:1] if not is_model(name, ENCODERS | RERANKERS))
        for match in re.finditer(r"triton repo .*--models[ =]\"?([\w./+~-]+)", text.text):
            yield from (f"{match[0]}: {name}" for name in match[1].split("+") if not is_model(name, ENCODERS))


def is_model(name: str, known: set[str]) -> bool:
    """Check whether a name is known, one of the hub, a path or a placeholder."""
    is_path = name.startswith((".", "/", "~")) or name.endswith(".toml")
    return name in known or is_path or is_hub_name(name) or _PLACEHOLDER.fullmatch(name) is not None


def wrong_commands(text: Text) -> Iterator[str]:
    """Yield commands that there are not, and options that the named command lacks."""
    if text.kind not in ("span", "sh"):
        return
    for line in text.text.splitlines():
        code, _, comment = line.partition(" #")
        for match in re.finditer(r"(?:^|[;&|(] ?|[A-Z_]+=\S+ )vlmsearch ([^;|&`)]+)", _without_quotes(code)):
            yield from _wrong_command(match[1].split())
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", comment if text.kind == "sh" else ""):
            if option not in all_options():
                yield option
    if text.kind == "span" and text.text.startswith("--"):
        yield from (name for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", text.text) if name not in all_options())


def _wrong_command(words: list[str]) -> Iterator[str]:
    name, rest = "", list(words)
    while rest and isinstance(all_commands()[name], click.Group) and re.fullmatch(r"[a-z][a-z-]*,?", rest[0]):
        below = f"{name} {rest[0].rstrip(',')}".strip()
        if below not in all_commands():
            yield f"vlmsearch {below}"
            return
        name, rest = below, rest[1:]
    parts = name.split()
    chain = [all_commands()[" ".join(parts[:end])] for end in range(len(parts) + 1)]
    known = frozenset().union(FOREIGN_OPTIONS, *map(options_of, chain))
    if isinstance(chain[-1], click.Group):
        known = all_options()
    for word in rest[: rest.index("--")] if "--" in rest else rest:
        if (match := re.match(r"\[?(--[a-z][a-z-]*)", word)) and match[1] not in known:
            yield f"vlmsearch {name} {match[1]}"


def _without_quotes(code: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "X", code)


def wrong_lists(text: Text) -> Iterator[str]:
    """Yield what is neither a command nor a verb in a list of mostly such words."""
    if text.kind != "prose":
        return
    commands = {
        *(name for words in all_commands() for name in words.split()),
        *dir(vlmsearch.RemotePipeline),
        *extras(),
    }
    word, between = "`{1,2}[a-z_-]+`{1,2}", r"(?:,\s+|\s+and\s+|\s+or\s+|,\s+and\s+)"
    for match in re.finditer(rf"{word}(?:{between}{word})+", text.text):
        names = re.findall(r"[a-z_-]+", re.sub(rf"`{between}`", "` `", match[0]))
        known = [name for name in names if name in commands]
        if len(known) >= 4 and len(known) > 0.7 * len(names):
            yield from (name for name in names if name not in commands)


def wrong_schemes(text: Text) -> Iterator[str]:
    """Yield URLs of back ends whose scheme no entry point has."""
    if ":" not in text.text:
        return
    kinds = {"rerank": "reranker", "from": "store", "to": "store"}
    pattern = (
        r"(?:--(store|encoder|generator|rerank|reranker|from|to)[ =]|\b(store|encoder|generator|rerank|reranker)[\"']?"
        r" ?[=:] ?)[\"']([a-z][a-z0-9+]*):(?=[\w./])"
    )
    for match in re.finditer(pattern, text.text):
        if match[3] not in schemes_of(kinds.get(match[1] or match[2], match[1] or match[2])):
            yield match[0]


def wrong_extras(text: Text) -> Iterator[str]:
    """Yield extras that the package lacks."""
    for match in re.finditer(r"(?:vlmsearch|['\"]\.)\[([\w, -]+)\]", text.text):
        names = [name.strip() for name in match[1].split(",")]
        yield from (name for name in names if name not in extras() and not _PLACEHOLDER.fullmatch(name))


def wrong_targets(text: Text) -> Iterator[str]:
    """Yield targets that the Makefile lacks."""
    if text.kind in ("span", "sh"):
        for match in re.finditer(r"^(?:.*[;&] ?)?make ([a-z]+)", text.text, re.MULTILINE):
            if match[1] not in targets():
                yield match[0]


def wrong_variables(text: Text) -> Iterator[str]:
    """Yield environment variables that nothing reads."""
    for name in re.findall(r"(?<![\w{])_?VLMSEARCH_[A-Z_]*[A-Z](?![\w*<])", text.text):
        if name not in all_variables() and not name.endswith("_X"):
            yield name


def wrong_attributes(text: Text) -> Iterator[str]:
    """Yield attributes that a class or a module of the package lacks."""
    if text.kind not in ("span", "python") or "." not in text.text:
        return
    for owner, name in re.findall(r"(?<![\w./\"'-])([A-Za-z]+)\.([A-Za-z_]\w*)", text.text):
        kinds = VALUES.get(owner, (owner,) if owner in vlmsearch.__all__ else ())
        if kinds and owner not in text.foreign and not any(name in attributes_of(kind) for kind in kinds):
            yield f"{owner}.{name}"
    for path in re.findall(r"(?<![\w./\"'@-])vlmsearch(?:_mocks)?(?:\.[A-Za-z_]\w*)+", text.text):
        if not is_there(path):
            yield path


@cache
def is_there(path: str) -> bool:
    """Check whether a dotted name is one of a module, or one that the sources use as a string."""
    names = path.split(".")
    place = ROOT / "mocks" if names[0] == "vlmsearch_mocks" else ROOT
    for end in range(len(names), 0, -1):
        folder = place.joinpath(*names[:end])
        if folder.is_dir() or folder.with_suffix(".py").is_file():
            module = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            source = module.read_text(encoding="utf-8") if module.is_file() else ""
            made = r"(?:def |class |\bimport |, |^ *|self\.|\bas )"
            is_named = [re.search(rf"{made}{name}\b", source, re.MULTILINE) for name in names[end:]]
            return all(is_named) or path in constants()
    return False


def wrong_keywords(text: Text) -> Iterator[str]:
    """Yield keyword arguments that a verb, a class or a function lacks."""
    if text.kind not in ("span", "python"):
        return
    if "=" not in text.text:
        return
    if text.kind == "span" and (match := re.fullmatch(r"([a-z_]+)=.*", text.text)):
        if match[1] not in all_parameters() | FOREIGN_KEYWORDS:
            yield match[0]
        return
    try:
        tree = ast.parse(text.text if "(" in text.text else "")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.keywords and (name := called_name(node.func, text.kind)):
            known = frozenset() if name in text.foreign else parameters_of(name)
            yield from (
                f"{name}({word.arg}=)"
                for word in node.keywords
                if word.arg and known and word.arg not in known | FOREIGN_KEYWORDS
            )


def called_name(function: ast.expr, kind: str) -> str:
    """Return the verb, class or function that a call names, "" where it is not of the package."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id in (*VALUES["pipe"], "pipe", "pipeline", "vlmsearch") else ""
    if isinstance(function, ast.Name):
        is_verb = kind == "span" and function.id in dir(vlmsearch.Index)
        return function.id if function.id in vlmsearch.__all__ or is_verb else ""
    return ""


RULES: tuple[Rule, ...] = (
    wrong_attributes,
    wrong_commands,
    wrong_extras,
    wrong_keywords,
    wrong_lists,
    wrong_models,
    wrong_schemes,
    wrong_targets,
    wrong_variables,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.partition("_")[2])
def test_every_name_is_one(rule: Rule) -> None:
    wrong = [f"{text.where}: {name}" for text in every_text() for name in rule(text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("rule", "kind", "right", "wrong"),
    [
        (wrong_attributes, "span", "pipe.search_many(...)", "pipe.search_all(...)"),
        (wrong_attributes, "span", "Match.parts", "Match.pieces"),
        (wrong_attributes, "python", "print(match.document.id)", "print(match.doc.id)"),
        (wrong_attributes, "span", "vlmsearch.search.options", "vlmsearch.search.settings"),
        (wrong_attributes, "span", "vlmsearch.part_of", "vlmsearch.parts_of"),
        (wrong_commands, "span", "vlmsearch explain QUERY ID", "vlmsearch why QUERY ID"),
        (wrong_commands, "span", "vlmsearch bench encode", "vlmsearch bench encoder"),
        (wrong_commands, "sh", "vlmsearch search x --limit 3  # as --limit", "vlmsearch search x --first 3"),
        (wrong_commands, "sh", "VLMSEARCH_STORE=x vlmsearch info --json", "VLMSEARCH_STORE=x vlmsearch info --prune"),
        (wrong_commands, "sh", "cd x && vlmsearch demo", "cd x && vlmsearch demos"),
        (wrong_commands, "sh", "vlmsearch demo  # or --server URL", "vlmsearch demo  # or --hosts URL"),
        (wrong_commands, "span", "--rerank", "--re-rank"),
        (wrong_extras, "prose", "install `vlmsearch[pdf,ocr]`", "install `vlmsearch[pdf,scans]`"),
        (wrong_extras, "sh", "pip install '.[serve]'", "pip install '.[server]'"),
        (wrong_keywords, "span", "pipe.search(limit=3)", "pipe.search(top=3)"),
        (wrong_keywords, "python", "SourceOptions(pdf=True)", "SourceOptions(pdfs=True)"),
        (wrong_keywords, "span", "search(..., group=False)", "search(..., grouped=False)"),
        (wrong_keywords, "span", "min_score=", "least_score="),
        (wrong_lists, "prose", "`search`, `explain`, `ask`, `index`, `get`", "`search`, `why`, `ask`, `index`, `get`"),
        (wrong_models, "prose", "take `onnx:clip+e5-base-v2`", "take `onnx:clip+e5-basis`"),
        (wrong_models, "toml", 'reranker = "onnx:ms-marco-minilm-l6-v2"', 'reranker = "onnx:ms-marco-minilm"'),
        (wrong_models, "span", '{"rerank": "onnx:demo-reranker"}', '{"rerank": "onnx:default"}'),
        (wrong_models, "sh", "vlmsearch ask --generator onnx:demo-vlm", "vlmsearch ask --generator onnx:demo"),
        (wrong_models, "span", "judge:onnx:demo-vlm", "judge:onnx:demo-reranker"),
        (wrong_models, "sh", "vlmsearch build demo-clip --force", "vlmsearch build demo-clips --force"),
        (wrong_models, "sh", "vlmsearch triton repo --models demo", "vlmsearch triton repo --models demos"),
        (wrong_schemes, "python", 'store="sqlite:./index"', 'store="sqlite3:./index"'),
        (wrong_schemes, "sh", "vlmsearch copy --from 'chroma://a/b'", "vlmsearch copy --from 'chromadb://a/b'"),
        (wrong_targets, "span", "make quick", "make fast"),
        (wrong_variables, "prose", "set VLMSEARCH_STORE and VLMSEARCH_CACHE", "set VLMSEARCH_STORES"),
    ],
)  # fmt: skip
def test_a_rule_sees_a_wrong_name(rule: Rule, kind: str, right: str, wrong: str) -> None:
    assert list(rule(Text("here", kind, right))) == []
    assert len(list(rule(Text("here", kind, wrong)))) == 1


def test_the_commands_that_take_a_server_are_named() -> None:
    page = (ROOT / "docs/howto/client.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^`--server URL`, or .* works with ([^;]+);", page, re.MULTILINE)
    takers = {words for words, command in all_commands().items() if words and "--server" in options_of(command)}
    assert {"search", "explain"} < takers
    assert set(re.findall("`([^`]+)`", sentence)) == takers


def test_every_section_of_the_readme_names_the_extras_that_it_needs() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        code = "\n".join(
            [*(match[3] for match in _FENCE.finditer(section)), *(span[1] for span in _SPAN.findall(section))]
        )
        needed = {extra for extra, pattern in EXTRAS.items() if re.search(pattern, code)}
        lists = re.findall(r"(?:vlmsearch|'\.)\[([^\]]+)\]|for the last line: (.+)", section)
        named = set(re.findall(r"[\w-]+", " ".join(map(" ".join, lists))))
        media = members("media") if "media" in named else set()
        assert needed <= named | media or section.startswith("Extras\n"), section.splitlines()[0]


def members(extra: str) -> set[str]:
    """Return the extras that an extra stands for."""
    project: Any = read_table(ROOT / "pyproject.toml")["project"]
    return set(re.findall(r"[\w-]+", project["optional-dependencies"][extra][0].partition("[")[2]))


def test_the_readme_has_a_row_for_every_extra() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    table = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall("`([^`]+)`", cell)) == sorted(
        extras() - {"docs", "test"}
    )
