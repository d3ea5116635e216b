"""The JSON forms of the public types, both ways: what ``--json`` prints, the server answers and the client reads.

``X_json`` makes the form of an X, and ``X_from`` the X of a form. Scores have six digits after the point, so what is
read back is equal within 1e-6. Images are written as the paths that an index keeps, and read as a `RemoteImage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    IndexMismatchError,
    MissingDependencyError,
    ModelUnavailableError,
    OverloadedError,
    QualityError,
    VlmsearchError,
)
from vlmsearch.types import (
    Answer,
    Citation,
    Document,
    DuplicateGroup,
    Duplicates,
    FieldScore,
    ImageFile,
    IndexReport,
    Labelled,
    Match,
    Matches,
    Reject,
    RemoteImage,
)

if TYPE_CHECKING:
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.stores.base import CheckReport

Json: TypeAlias = dict[str, object]
"""A JSON object that is written."""
Read: TypeAlias = Mapping[str, Any]
"""A JSON object that is read; whoever reads answers for its form."""
_DIGITS = 6
ERROR_TYPES: Mapping[str, type[VlmsearchError]] = {
    "index_mismatch": IndexMismatchError,
    "invalid_request": ConfigError,
    "missing_dependency": MissingDependencyError,
    "model_unavailable": ModelUnavailableError,
    "low_quality": QualityError,
    "overloaded": OverloadedError,
    "backend_unavailable": BackendUnavailableError,
    "backend_failed": BackendError,
}
"""Exceptions by the ``type`` of an error that a service sends. An `InvalidInputError` is an ``invalid_request`` with a
``code``."""


@dataclass(frozen=True)
class Origin:
    """Name the index that forms come from: the URL of its server, and its name there."""

    server: str
    index: str

    def image(self, id: str, path: str) -> RemoteImage:
        """Return the image of a document of the index."""
        return RemoteImage(self.server, self.index, id, path)


def document_json(document: Document) -> Json:
    """Return the form of a document."""
    return {
        "id": document.id,
        "text": document.text,
        "image": str(document.image) if document.image is not None else None,
        "metadata": dict(document.metadata),
    }


def document_from(form: Read, origin: Origin) -> Document:
    """Return the document of a form."""
    id, image = form["id"], form.get("image")
    return Document(id, form.get("text"), None if image is None else origin.image(id, image), form["metadata"])


def match_json(match: Match) -> Json:
    """Return the form of a match."""
    form = document_json(match.document)
    return {
        "id": form.pop("id"),
        "score": round(match.score, _DIGITS),
        **form,
        "fields": {
            name: {"rank": field.rank, "score": round(field.score, _DIGITS), "evidence": round(field.evidence, _DIGITS)}
            for name, field in match.fields.items()
        },
        "parts": [{"id": id, "score": round(score, _DIGITS)} for id, score in match.parts.items()],
    }


def match_from(form: Read, origin: Origin) -> Match:
    """Return the match of a form."""
    fields = {
        name: FieldScore(field["rank"], field["score"], field["evidence"]) for name, field in form["fields"].items()
    }
    parts = {part["id"]: part["score"] for part in form["parts"]}
    return Match(document_from(form, origin), form["score"], fields, parts)


def matches_json(matches: Matches) -> Json:
    """Return the form of the matches of a search."""
    found: Json = {
        "matches": [match_json(match) for match in matches],
        "cursor": matches.cursor,
        "threshold": matches.threshold,
    }
    if matches.total is not None:
        found["total"] = matches.total
    if matches.facets:
        found["facets"] = {
            key: [{"value": value, "count": count} for value, count in counts.items()]
            for key, counts in matches.facets.items()
        }
    return found


def matches_from(form: Read, origin: Origin) -> Matches:
    """Return the matches of a form."""
    counted = form.get("facets", {})
    facets = {key: {each["value"]: each["count"] for each in values} for key, values in counted.items()}
    return Matches(
        [match_from(match, origin) for match in form["matches"]],
        cursor=form["cursor"],
        total=form.get("total"),
        facets=facets,
        threshold=form["threshold"],
    )


def answer_json(answer: Answer) -> Json:
    """Return the form of an answer."""
    return {
        "text": answer.text,
        "citations": [{"number": citation.number, "id": citation.id} for citation in answer.citations],
        "removed": list(answer.removed),
        "matches": [match_json(match) for match in answer.matches],
        "dropped": [match_json(match) for match in answer.dropped],
    }


def answer_from(form: Read, origin: Origin) -> Answer:
    """Return the answer of a form."""
    return Answer(
        form["text"],
        tuple(Citation(each["number"], each["id"]) for each in form["citations"]),
        tuple(match_from(match, origin) for match in form["matches"]),
        tuple(match_from(match, origin) for match in form["dropped"]),
        tuple(form["removed"]),
    )


def explanation_json(found: Explanation) -> Json:
    """Return the form of an explanation."""
    document = found.document
    plain: Json = asdict(replace(found, document=None, fields=dict(found.fields)))
    if document is not None:
        form = document_json(document)
        del form["id"]
        plain["document"] = form
    plain["without"] = [{"text": what, "relevance": score} for what, score in found.without]
    return plain


def explanation_from(form: Read, origin: Origin) -> Explanation:
    """Return the explanation of a form."""
    from vlmsearch.search.explanation import Explanation, FieldEvidence, PassageEvidence, Regions, WordEvidence
    from vlmsearch.search.relevance import Basis

    document, regions = form["document"], form["regions"]
    given: dict[str, Any] = dict(form)
    given["document"] = document and document_from({"id": form["id"], **document}, origin)
    given["fields"] = {
        name: FieldEvidence(**{**field, "basis": field["basis"] and Basis(**field["basis"])})
        for name, field in form["fields"].items()
    }
    given["lacking"], given["failed"], given["notes"] = (tuple(form[key]) for key in ("lacking", "failed", "notes"))
    given["marked"] = tuple(map(tuple, form["marked"]))
    given["words"] = tuple(WordEvidence(**word) for word in form["words"])
    given["without"] = tuple((each["text"], each["relevance"]) for each in form["without"])
    given["passages"] = tuple(PassageEvidence(**each) for each in form["passages"])
    given["regions"] = regions and Regions(tuple(map(tuple, regions["evidence"])))
    return Explanation(**given)


def reject_json(reject: Reject) -> Json:
    """Return the form of an input that could not be used."""
    return {"id": reject.id, "code": reject.code, "message": reject.message}


def reject_from(form: Read) -> Reject:
    """Return the input of a form, without its stamp."""
    return Reject(form["id"], form["code"], form["message"])


def report_json(report: IndexReport) -> Json:
    """Return the form of what an indexing run did."""
    return {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "pruned": report.pruned,
        "rejected": len(report.rejects),
        "unlabelled": report.unlabelled,
        "seconds": round(report.seconds, 3),
        "rejects": [reject_json(reject) for reject in report.rejects],
    }


def report_from(form: Read) -> IndexReport:
    """Return the report of a form."""
    return IndexReport(
        form["added"],
        form["updated"],
        form["unchanged"],
        form["pruned"],
        tuple(map(reject_from, form["rejects"])),
        form["seconds"],
        form["unlabelled"],
    )


def labelled_json(labelled: Labelled) -> Json:
    """Return the form of a document's labels, without the document."""
    labels = {name: round(relevance, 4) for name, relevance in labelled.labels.items()}
    return {"id": labelled.document.id, "labels": labels, "written": labelled.written}


def labelled_from(form: Read, document: Document) -> Labelled:
    """Return a document with the labels of a form."""
    return Labelled(document, form["labels"], form["written"])


def duplicates_json(found: Duplicates) -> Json:
    """Return the form of duplicate images."""
    return {
        "groups": [
            {
                "largest": group.files[0].id,
                "oldest": group.oldest.id,
                "files": [_file_json(file) for file in group.files],
            }
            for group in found.groups
        ],
        "compared": found.compared,
        "unread": [{"id": id, "message": message} for id, message in found.unread],
    }


def duplicates_from(form: Read, origin: Origin) -> Duplicates:
    """Return the duplicate images of a form; times have whole seconds."""
    groups = (DuplicateGroup(tuple(_file_from(file, origin) for file in group["files"])) for group in form["groups"])
    unread = tuple((each["id"], each["message"]) for each in form["unread"])
    return Duplicates(tuple(groups), form["compared"], unread)


def _file_json(file: ImageFile) -> Json:
    return {
        "id": file.id,
        "path": str(file.path),
        "width": file.width,
        "height": file.height,
        "bytes": file.bytes,
        "modified": datetime.fromtimestamp(file.modified, timezone.utc).isoformat(timespec="seconds"),
    }


def _file_from(form: Read, origin: Origin) -> ImageFile:
    modified = datetime.fromisoformat(form["modified"]).timestamp()
    path = origin.image(form["id"], form["path"])
    return ImageFile(form["id"], path, form["width"], form["height"], form["bytes"], modified)


def check_json(report: CheckReport) -> Json:
    """Return the form of what a check of a store found."""
    return {**asdict(replace(report, vectors=dict(report.vectors))), "clean": report.clean}


def check_from(form: Read) -> CheckReport:
    """Return the report of a form."""
    from vlmsearch.stores.base import CheckReport

    lists = ("orphans", "stale", "missing", "unfinished", "unindexed", "damaged")
    given: dict[str, Any] = {name: tuple(value) if name in lists else value for name, value in form.items()}
    del given["clean"]
    return CheckReport(**given)
