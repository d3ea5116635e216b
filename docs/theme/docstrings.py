"""Make Markdown of docstrings, and show the arguments of verbs, which dataclasses declare."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)
_LITERAL = re.compile(r"^::\n", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Put examples into fences, which are quotations in Markdown, and drop the marks of literal blocks.

    A method under `vlmsearch.verbs.verb` has the signature and the docstring of the running program, and a class of
    options the docstring, which lists the options of its bases, too.
    """

    # griffe calls `on_instance` before the method of the kind, whose docstrings are therefore rewritten there.

    def on_class_instance(self, *, cls: griffe.Class, **_: object) -> None:
        """Give a class of options those of its bases."""
        if cls.docstring and any(str(base).endswith("Options") for base in cls.bases):
            running: Any = getattr(importlib.import_module(cls.module.path), cls.name)
            cls.docstring.value = _markdown(inspect.getdoc(running) or "")

    def on_function_instance(self, *, func: griffe.Function, **_: object) -> None:
        """Give a verb its arguments."""
        is_verb = any(
            str(decorator.value).startswith(("verb(", "_verb(", "_streamed(")) for decorator in func.decorators
        )
        if is_verb and func.docstring and isinstance(func.parent, griffe.Class):
            running: Any = getattr(getattr(importlib.import_module(func.module.path), func.parent.name), func.name)
            signature = inspect.signature(running)
            func.docstring.value = _markdown(inspect.getdoc(running) or "")
            func.overloads = None
            func.parameters = griffe.Parameters(*map(_parameter, signature.parameters.values()))

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of a module, a class, a function or an attribute."""
        if obj.docstring:
            obj.docstring.value = _markdown(obj.docstring.value)


def _markdown(docstring: str) -> str:
    return _LITERAL.sub("", _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", docstring))


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    has_default = parameter.default is not inspect.Parameter.empty
    annotation = None if parameter.annotation is inspect.Parameter.empty else str(parameter.annotation)
    kind = griffe.ParameterKind(str(parameter.kind.description))
    return griffe.Parameter(
        parameter.name, annotation=annotation, kind=kind, default=repr(parameter.default) if has_default else None
    )
