"""Queries whose answers are known, read from files.

=======================  =============================================================================================
lines of JSON            ``{"query": "a dog", "relevant": ["a.jpg", "b.jpg"]}``, or with grades ``{"a.jpg": 2}``; an
                         empty list says that nothing in the index is an answer. ``image`` (a path relative to the
                         file) stands beside or in place of ``query``; ``id`` names the query, else its line does
topics and qrels         TREC's: lines of a topic's number, a tab and the query; and a file of judgements
a folder                 BEIR's: ``queries.jsonl`` with ``_id`` and ``text``, and ``qrels/test.tsv``
=======================  =============================================================================================

Judgements are lines of TREC (query, iteration, document, grade) or of BEIR (query, document and grade between tabs,
after a header). A document with a grade of 0 or less is not an answer. Queries that were not judged are left out.

TREC: Voorhees and Harman, "TREC: Experiment and Evaluation in Information Retrieval", MIT Press, 2005. BEIR: Thakur et
al., "BEIR: A Heterogenous Benchmark for Zero-shot Evaluation of Information Retrieval Models", NeurIPS 2021.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vlmsearch.errors import ConfigError
from vlmsearch.types import ImageSource

Judgements: TypeAlias = Mapping[str, Mapping[str, int]]
"""Grades above 0 by the ids of queries and documents; a query without any has no answer."""

_EXAMPLE = '{"query": "a dog", "relevant": ["ID", ...]}'
_TREC = re.compile(r"(\S+)\s+\S+\s+(\S.*?)\s+(-?\d+)")
_SPLITS = ("test", "dev", "train")


@dataclass(frozen=True)
class JudgedQuery:
    """Hold a query and what answers it.

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
    image: ImageSource | None = None


def read_queries(path: Path, qrels: Path | None = None) -> list[JudgedQuery]:
    """Return the queries of a file or folder that were judged.

    Args:
        path: Lines of JSON, topics of TREC or a folder of BEIR: see above.
        qrels: The judgements, where they are in a file of their own; of a folder ``qrels/test.tsv`` by default.

    Returns:
        The queries in their order, at least one.

    Raises:
        ConfigError: A file cannot be read, is not of such a form, or holds no query that was judged.
    """
    if path.is_dir():
        qrels = qrels or _qrels_in(path)
        path = path / "queries.jsonl"
    if qrels is None:
        if not _is_json(path):
            raise ConfigError(f"{path} is read as topics of TREC, which need `qrels`; lines of JSON end with .jsonl")
        found = list(_rows(path))
    else:
        judged = read_qrels(qrels)
        texts = _texts(path)
        found = [JudgedQuery(id, judged[id], text) for id, text in texts.items() if id in judged]
        if not found:
            known = f"{_some(judged)} in {qrels} and {_some(texts)} in {path}"
            raise ConfigError(f"no query was judged: the ids of queries are {known}")
    if not found:
        raise ConfigError(f"{path} holds no queries: write lines such as {_EXAMPLE}")
    return found


def read_qrels(path: Path) -> Judgements:
    """Return the judgements of a file in the form of TREC or BEIR; ConfigError for another."""
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        cells = [cell.strip() for cell in line.split("\t")]
        match = _TREC.fullmatch(line.strip())
        if len(cells) == 3:
            query, document, grade = cells
        elif match is not None:
            query, document, grade = match.groups()
        else:
            raise ConfigError(f"{path}, line {number}: a judgement is QUERY 0 DOCUMENT GRADE, not {line.strip()!r}")
        if not re.fullmatch(r"-?\d+", grade):
            if number == 1:
                continue  # a header
            raise ConfigError(f"{path}, line {number}: a grade is a whole number, not {grade!r}")
        grades = judged.setdefault(query, {})
        if int(grade) > 0:
            grades[document] = int(grade)
    if not judged:
        raise ConfigError(f"{path} holds no judgements: write lines of QUERY 0 DOCUMENT GRADE")
    return judged


def _qrels_in(folder: Path) -> Path:
    for split in _SPLITS:
        if (place := folder / "qrels" / f"{split}.tsv").is_file():
            return place
    names = ", ".join(f"{split}.tsv" for split in _SPLITS)
    raise ConfigError(f"{folder / 'qrels'} has none of {names}: name the judgements with `qrels`")


def _texts(path: Path) -> dict[str, str]:
    """Return the queries of a file by their ids, without what answers them."""
    texts: dict[str, str] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if _is_json(path):
            row = _row(line, where)
            id, text = row.get("_id", row.get("id")), row.get("text", row.get("query"))
        else:
            id, _, text = line.partition("\t")
        if not isinstance(id, str) or not isinstance(text, str) or not id.strip() or not text.strip():
            raise ConfigError(f'{where}: a query is ID, a tab and its text, or {{"_id": "1", "text": "a dog"}}')
        _add(texts, id.strip(), text.strip(), where)
    return texts


def _rows(path: Path) -> Iterator[JudgedQuery]:
    """Yield the queries of a file that says itself what answers them."""
    seen: dict[str, str] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        row = _row(line, where)
        text, image = row.get("query"), row.get("image")
        given = [value for value in (text, image) if value is not None]
        if not given or not all(isinstance(value, str) and value.strip() for value in given):
            raise ConfigError(f'{where}: a row needs "query", "image" or both as strings, as in {_EXAMPLE}')
        id = row.get("id", str(number))
        _add(seen, str(id), "", where)
        picture = path.parent / image if isinstance(image, str) else None
        yield JudgedQuery(str(id), _grades(row, where), text if isinstance(text, str) else None, picture)


def _grades(row: Mapping[str, object], where: str) -> dict[str, int]:
    if "relevant" not in row:
        raise ConfigError(f'{where}: "relevant" says which documents answer the query; [] where none does')
    given = row["relevant"]
    if isinstance(given, list):
        given = dict.fromkeys(map(str, given), 1) if all(isinstance(id, str) for id in given) else None
    if not isinstance(given, dict) or not all(type(grade) is int for grade in given.values()):
        raise ConfigError(f'{where}: "relevant" is a list of ids, or whole numbers by ids, not {row["relevant"]!r}')
    return {id: grade for id, grade in given.items() if grade > 0}


def _add(known: dict[str, str], id: str, text: str, where: str) -> None:
    if id in known:
        raise ConfigError(f"{where}: the query {id!r} is there twice")
    known[id] = text


def _row(line: str, where: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{where} is not JSON: {exc}") from exc
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a row is an object such as {_EXAMPLE}, not {line.strip()[:60]!r}")
    return row


def _is_json(path: Path) -> bool:
    return path.suffix.lower() in (".jsonl", ".ndjson", ".json")


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
