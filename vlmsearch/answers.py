"""From matches to a prompt, and from generated text to an answer whose citations hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from vlmsearch.types import Answer, Citation, Document, Match

TEMPLATE = Template(
    "Answer the question from the numbered sources. Cite each source that you use by its number in brackets, "
    "such as [1]. If the sources do not answer the question, say so.\n\n"
    "Sources:\n$sources\n\nQuestion: $question\nAnswer:"
)
"""The prompt of `Pipeline.ask`; ``$sources`` and ``$question`` are filled in, each source on a line of its own."""
NOTHING_FOUND = "Nothing in the index matches the question."
SOURCE_CHARS = 1000
"""How much of one source's text goes into a prompt."""
_CITATION = re.compile(r"\[(\d+)\]")


def build_prompt(question: str, matches: Sequence[Match], template: Template = TEMPLATE) -> str:
    """The prompt for a question: the matches as sources, numbered from 1.

    Neither a source nor the question can break out of its place: each is one line, and brackets around numbers in it
    become parentheses, so that no text passes for a citation or a source.
    """
    sources = "\n".join(f"[{i}] {_one_line(_describe(match.document))}" for i, match in enumerate(matches, 1))
    return template.substitute(sources=sources, question=_one_line(question))


def make_answer(text: str, matches: Sequence[Match]) -> Answer:
    """The answer with its citations, in the order of their first use; numbers that cite no match are removed."""
    used: dict[int, Citation] = {}

    def check(found: re.Match[str]) -> str:
        number = int(found[1])
        if not 1 <= number <= len(matches):
            return ""
        used.setdefault(number, Citation(number, matches[number - 1].document.id))
        return found[0]

    checked = re.sub(rf" ?{_CITATION.pattern}", check, text)
    return Answer(checked.strip(), tuple(used.values()), tuple(matches))


def _describe(document: Document) -> str:
    """What a source says: the text, or the name of the image."""
    if document.text:
        return document.text[:SOURCE_CHARS]
    name = document.image.name if isinstance(document.image, Path) else document.id
    return f"the image {name}"


def _one_line(text: str) -> str:
    return _CITATION.sub(r"(\1)", " ".join(text.split()))
