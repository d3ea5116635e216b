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
    "vlmsearch._util.options",
    "vlmsearch._util.tables",
    "vlmsearch.answers.stream",
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


def arguments_of(cls: type) -> list[str]:
    """Return what the docstring of a class lists: the fields of a dataclass, or what its constructor takes."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    is_listed = cls in (vlmsearch.AsyncPipeline, vlmsearch.BatchingEncoder, vlmsearch.Paths, vlmsearch.Pipeline)
    return list(inspect.signature(cls).parameters) if is_listed else []


def test_a_class_says_what_it_is_and_shows_it() -> None:
    missing = []
    for cls in CLASSES:
        first, found = sections(cls)
        if not first.endswith("."):  # and begins with a noun: tests/support/english.py
            missing.append(f"{cls.__name__}: {first}")
        if issubclass(cls, (Exception, Warning)):
            continue
        if ">>>" not in found.get("Example", ""):
            missing.append(f"{cls.__name__}: an example")
        listed = found.get("Attributes", "") + found.get("Args", "")
        missing += [f"{cls.__name__}.{name}" for name in arguments_of(cls) if f"\n    {name}: " not in listed]
    assert missing == []


def test_a_function_says_what_it_takes_gives_and_raises() -> None:
    missing = []
    for name, function in functions():
        first, found = sections(function)
        if not is_imperative(first):
            missing.append(f"{name}: {first}")
        signature = inspect.signature(function)
        listed = found.get("Args", "") + "\n    self: \n    cls: "
        missing += [f"{name}({argument})" for argument in signature.parameters if f"\n    {argument}: " not in listed]
        if name not in PROPERTIES and ("Returns" in found) != (signature.return_annotation not in ("None", None)):
            missing.append(f"{name} -> {signature.return_annotation}")
    assert missing == []
