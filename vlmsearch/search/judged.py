"""Queries whose answers are known, read from files.

=======================  =============================================================================================
lines of JSON            ``{"query": "a dog", "relevant": ["a.jpg", "b.jpg"]}``, or with grades ``{"a.jpg": 2}``; an
                         empty list says that nothing in the index is an answer. ``image`` (a path relative to the
                         file) stands beside or in place of ``query``; ``id`` names the query, else its line does
a folder                 BEIR's: ``queries.jsonl`` with ``_id`` and ``text``, and ``qrels/test.tsv`` with a query, a
                         document and a grade between tabs, after a header
=======================  =============================================================================================

A document with a grade of 0 or less is not an answer. Queries that were not judged are left out.

BEIR: Thakur et al., "BEIR: A Heterogenous Benchmark for Zero-shot Evaluation of Information Retrieval Models", NeurIPS
2021.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError
from vlmsearch.types import ImageInput

Judgements: TypeAlias = Mapping[str, Mapping[str, int]]
"""Grades above 0 by the ids of queries and documents.

A query without any has no answer.
"""

_EXAMPLE = '{"query": "a dog", "relevant": ["ID", ...]}'
_MAX_GRADE = 2**31 - 1
_SPLITS = ("test", "dev", "train")


@dataclass(frozen=True)
class JudgedQuery:
    """A query and its answers.

    Attributes:
        id: Names the query in its file.
        relevant: The grades, above 0, of the documents that answer it, by their ids; none where nothing does.
        text: What is looked for.
        image: What is looked for, alone or beside the text.

    Example:
        >>> JudgedQuery("1", {"a.jpg": 2, "b.jpg": 1}, "a dog").relevant["a.jpg"]
        2
    """

    id: str
    relevant: Mapping[str, int]
    text: str | None = None
    image: ImageInput | None = None

    def __post_init__(self) -> None:
        check_bounds(-_MAX_GRADE, _MAX_GRADE, grade=max(self.relevant.values(), default=0))


def read_queries(path: Path) -> list[JudgedQuery]:
    """Return the queries of a file or folder that were judged.

    Args:
        path: Lines of JSON or a folder of BEIR: see above.

    Returns:
        The queries in their order, at least one.

    Raises:
        ConfigError: A file cannot be read, is not of such a form, or holds no query that was judged.
    """
    if not path.is_dir():
        queries = list(_rows(path))
        if not queries:
            raise ConfigError(f"{path} holds no queries: write lines such as {_EXAMPLE}")
        return queries
    judged = _judgements(_qrels_in(path))
    texts = _texts(path / "queries.jsonl")
    queries = [JudgedQuery(id, judged[id], text) for id, text in texts.items() if id in judged]
    if not queries:
        raise ConfigError(f"no query of {path} was judged: queries are {_some(texts)}, and judged are {_some(judged)}")
    return queries


def _judgements(path: Path) -> Judgements:
    """Return the judgements of a file of BEIR; ConfigError for another."""
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise ConfigError(f"{path}, line {number}: a judgement is QUERY, DOCUMENT and GRADE between tabs: {line!r}")
        query, document, grade = cells
        if not re.fullmatch(r"-?\d{1,99}", grade):
            if number == 1:
                continue  # a header
            raise ConfigError(f"{path}, line {number}: a grade is a whole number, not {grade!r}")
        grades = judged.setdefault(query, {})
        if int(grade) > 0:
            grades[document] = int(grade)
    return judged


def _qrels_in(folder: Path) -> Path:
    places = [folder / "qrels" / f"{split}.tsv" for split in _SPLITS]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(f"{folder / 'qrels'} has none of {', '.join(place.name for place in places)}")


def _texts(path: Path) -> dict[str, str]:
    """Return the queries of a file of BEIR by their ids."""
    texts: dict[str, str] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        row = _row(line, where)
        id, text = row.get("_id"), row.get("text")
        if not isinstance(id, str) or not isinstance(text, str) or not id.strip() or not text.strip():
            raise ConfigError(f'{where}: a query is such as {{"_id": "1", "text": "a dog"}}')
        _check_new(id, texts, where)
        texts[id.strip()] = text.strip()
    return texts


def _rows(path: Path) -> Iterator[JudgedQuery]:
    """Yield the queries of a file that says itself what answers them."""
    seen: set[str] = set()
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        row = _row(line, where)
        text, image = row.get("query"), row.get("image")
        given = [value for value in (text, image) if value is not None]
        if not given or not all(isinstance(value, str) and value.strip() for value in given):
            raise ConfigError(f'{where}: a row needs "query", "image" or both as strings, as in {_EXAMPLE}')
        id = str(row.get("id", number))
        _check_new(id, seen, where)
        seen.add(id)
        picture = path.parent / image if isinstance(image, str) else None
        yield JudgedQuery(id, _grades(row, where), text if isinstance(text, str) else None, picture)


def _grades(row: Mapping[str, object], where: str) -> dict[str, int]:
    if "relevant" not in row:
        raise ConfigError(f'{where}: "relevant" says which documents answer the query; [] where none does')
    given = row["relevant"]
    if isinstance(given, list):
        given = dict.fromkeys(map(str, given), 1) if all(isinstance(id, str) for id in given) else None
    if not isinstance(given, dict) or not all(type(grade) is int for grade in given.values()):
        raise ConfigError(f'{where}: "relevant" is a list of ids, or whole numbers by ids, not {row["relevant"]!r}')
    return {id: grade for id, grade in given.items() if grade > 0}


def _check_new(id: str, known: Collection[str], where: str) -> None:
    if id in known:
        raise ConfigError(f"{where}: the query {id!r} is there twice")


def _row(line: str, where: str) -> dict[str, object]:
    try:
        row = parse_json(line, with_nan=True)
    except ValueError as exc:
        raise ConfigError(f"{where} is not JSON: {exc}") from exc
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a row is an object such as {_EXAMPLE}, not {line.strip()[:60]!r}")
    return row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines that are not empty, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path} is not a text in UTF-8: {exc}") from exc
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _some(ids: Mapping[str, object]) -> str:
    return f"{', '.join(map(repr, list(ids)[:3]))}{', ...' if len(ids) > 3 else ''}"
