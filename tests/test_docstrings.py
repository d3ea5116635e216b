"""Docstrings of what is exported: whole, in one form, and with examples that run."""

import dataclasses
import doctest
import importlib
import inspect
import re
from collections.abc import Callable, Iterator

import pytest

import vlmsearch
from vlmsearch import registry

MODULES = [
    "vlmsearch",
    "vlmsearch._util.tables",
    "vlmsearch.answers.prompts",
    "vlmsearch.async_pipeline",
    "vlmsearch.demo.queries",
    "vlmsearch.encoders.base",
    "vlmsearch.encoders.batching",
    "vlmsearch.errors",
    "vlmsearch.generators.base",
    "vlmsearch.index",
    "vlmsearch.indexing.copy",
    "vlmsearch.indexing.sources",
    "vlmsearch.integrations.langchain",
    "vlmsearch.integrations.sentence_transformers",
    "vlmsearch.media.limits",
    "vlmsearch.pipeline",
    "vlmsearch.registry",
    "vlmsearch.rerankers.base",
    "vlmsearch.search.curves",
    "vlmsearch.search.explanation",
    "vlmsearch.search.options",
    "vlmsearch.search.query",
    "vlmsearch.search.relevance",
    "vlmsearch.search.scores",
    "vlmsearch.stores.base",
    "vlmsearch.stores.filters",
    "vlmsearch.types",
]
NO_VERBS = {"A", "All", "An", "How", "Names", "Raises", "Returns", "That", "The", "These", "This", "Those", "What"}
NO_VERBS |= {"Whether", "Which"}
CLASSES = [value for name in vlmsearch.__all__ if isinstance(value := getattr(vlmsearch, name), type)] + [registry.Url]


PROPERTIES = {
    f"{cls.__name__}.{name}" for cls in CLASSES for name, value in vars(cls).items() if type(value) is property
}
"""Whose one sentence says what they return."""


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """The public methods and properties of exported classes, and the functions of the registry."""
    for cls in CLASSES:
        for name, value in vars(cls).items():
            found = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(found) and not name.startswith("_"):
                yield f"{cls.__name__}.{name}", found
    for name in ("open_encoder", "open_store", "open_generator", "open_reranker", "back_ends", "load"):
        yield name, getattr(registry, name)


def sections(value: object) -> tuple[str, dict[str, str]]:
    """The first sentence of a docstring, and its sections."""
    text = inspect.getdoc(value) or ""
    parts = re.split(r"^(Args|Attributes|Example|Raises|Returns):$", text, flags=re.MULTILINE)
    return text.partition("\n")[0], dict(zip(parts[1::2], parts[2::2]))


def is_imperative(sentence: str) -> bool:
    return sentence.endswith(".") and sentence.split(maxsplit=1)[0] not in NO_VERBS


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    done = doctest.testmod(importlib.import_module(module), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert done.attempted
    assert not done.failed


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_class_says_what_it_is_and_shows_it(cls: type) -> None:
    first, found = sections(cls)
    assert first.endswith("."), first  # and begins with a noun: tests/support/english.py
    if issubclass(cls, (Exception, Warning)):
        return
    assert ">>>" in found["Example"]
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            assert f"\n    {field.name}: " in found["Attributes"], field.name
    elif cls in (vlmsearch.AsyncPipeline, vlmsearch.BatchingEncoder, vlmsearch.Paths, vlmsearch.Pipeline):
        for name in list(inspect.signature(cls).parameters):
            assert f"\n    {name}: " in found["Args"], name


@pytest.mark.parametrize(("name", "function"), list(functions()), ids=lambda value: value if type(value) is str else "")
def test_a_function_says_what_it_takes_gives_and_raises(name: str, function: Callable[..., object]) -> None:
    first, found = sections(function)
    assert is_imperative(first), first
    signature = inspect.signature(function)
    for parameter in signature.parameters:
        assert parameter in ("self", "cls") or f"\n    {parameter}: " in found["Args"], parameter
    if name not in PROPERTIES:
        assert ("Returns" in found) == (signature.return_annotation not in ("None", None)), signature
