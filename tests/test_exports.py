"""What `import vlmsearch` gives, and what it costs."""

import ast
import builtins
import inspect
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import vlmsearch
from vlmsearch._util.credentials import child_environment

OTHERS = {
    *dir(builtins),
    *dir(typing),
    "AbstractContextManager",
    "NDArray",
    "PIL",
    "Path",
    "Self",
    "Template",
    "float32",
    "np",
}
"""Names in signatures that are Python's or numpy's."""
SLOW = {
    "asyncio",
    "concurrent.futures",
    "email",
    "http",
    "httpx",
    "importlib.metadata",
    "json",
    "logging",
    "multiprocessing",
}
SLOW |= {"sqlite3", "ssl", "subprocess", "tempfile", "unittest", "urllib.request", "zipfile"}


MADE = {vlmsearch.AnswerStream, vlmsearch.AsyncAnswerStream, vlmsearch.RemoteAnswerStream}
"""Classes that `ask` makes an object of, never the user."""


def run(code: str, **environment: str) -> str:
    env = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return done.stdout


def annotations(cls: type) -> Iterator[tuple[str, str]]:
    """The annotations of a class's public fields, methods and properties, as they are written."""
    yield from ((f"{cls.__name__}.{name}", str(value)) for name, value in inspect.get_annotations(cls).items())
    for name, value in vars(cls).items():
        if name.startswith("_") and (name != "__init__" or cls in MADE):
            continue
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        for annotation in getattr(function, "__annotations__", {}).values():
            yield f"{cls.__name__}.{name}", str(annotation)


def test_what_a_signature_names_is_exported() -> None:
    exported = [value for name in vlmsearch.__all__ if isinstance(value := getattr(vlmsearch, name), type)]
    unknown = []
    for where, annotation in (pair for cls in exported for pair in annotations(cls)):
        names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
        if {name for name in names - OTHERS if not name.startswith("_")} - set(vlmsearch.__all__):
            unknown.append(f"{where}: {annotation}")
    assert unknown == []


def test_the_interfaces_are_exported() -> None:
    for name in ("Encoder", "Generator", "Index", "Reranker", "Store"):
        assert inspect.isabstract(getattr(vlmsearch, name))
    with pytest.raises(AttributeError, match="no attribute 'Indexer'"):
        _ = vlmsearch.Indexer


def test_what_is_exported_has_a_home_and_nothing_else() -> None:
    assert sorted(vlmsearch._MODULES) == sorted(vlmsearch.__all__)
    assert set(vlmsearch.__all__) <= set(dir(vlmsearch))


@pytest.mark.parametrize(
    "code",
    [
        "import vlmsearch",
        "from vlmsearch import Document, Matches, Explanation, ImageLimits, Query, connect",
        "import vlmsearch.cli.search, vlmsearch.cli.info, vlmsearch.cli.ask, vlmsearch.cli.explain",
    ],
)
def test_no_numpy_is_loaded_before_something_takes_it(code: str) -> None:
    loaded = set(run(f"import sys; {code}; print(*sys.modules)").split())
    third = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert "vlmsearch" in third
    assert not third & {"numpy", "onnxruntime", "PIL", "simsimd", "tokenizers", "rich"}


def test_importing_loads_nothing_that_takes_long() -> None:
    code = "import sys; before = set(sys.modules); import vlmsearch; print(*sorted(set(sys.modules) - before))"
    loaded = set(run(code).split())
    assert {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"vlmsearch"}
    assert not loaded & SLOW


def test_importing_changes_nothing() -> None:
    code = (
        "import os, sys, warnings, numpy; before = dict(os.environ), sys.path[:], warnings.filters[:];"
        "import vlmsearch; print(before == (dict(os.environ), sys.path, warnings.filters))"
    )
    assert run(code).strip() == "True"


def test_onnx_runtime_is_loaded_without_telemetry_here_and_in_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("vlmsearch.models.session", "vlmsearch.generators.local.onnx", "vlmsearch.building.inputs"):
        assert run(f"import os, {module}; print(os.environ['ORT_DISABLE_TELEMETRY'])").strip() == "1"
    code = "import os; from vlmsearch._util.gpu import onnx_wheels; onnx_wheels(); print(os.environ[{!r}])"
    assert run(code.format("ORT_DISABLE_TELEMETRY")).strip() == "1"
    assert run(code.format("ORT_DISABLE_TELEMETRY"), ORT_DISABLE_TELEMETRY="0").strip() == "0"
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    assert child_environment()["ORT_DISABLE_TELEMETRY"] == "1"


def test_one_module_imports_onnx_runtime() -> None:
    library = Path(vlmsearch.__file__).parent
    statement = re.compile(r"^ *(import|from) onnxruntime", re.MULTILINE)
    importing = [path for path in library.rglob("*.py") if statement.search(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(library)) for path in importing] == ["_util/ort.py"]


@pytest.mark.slow
def test_no_class_name_stands_twice() -> None:
    root = Path(vlmsearch.__file__).parent
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))]
    names = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name in set(names) if names.count(name) > 1 and not name.startswith("_")] == []
