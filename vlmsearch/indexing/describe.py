"""Descriptions of pictures by a generator that sees, which searches find by words and vectors.

A description is the text of a document that has none of its own: a caption is never touched. The metadata name the
model that wrote it (``described_by``), with a digest of the prompt. The digest of the document has a mark, as that of a
picture whose text was read. So indexing the source again finds the document unchanged. A run with the same model and
prompt describes nothing twice. A picture that changes is described again.

With ``fields`` the generator fills metadata instead, which filters and facets take. ``described_fields_by`` says so.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vlmsearch._util.batching import batches
from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.strict_json import parse_json
from vlmsearch.answers.prompts import Prompt
from vlmsearch.answers.sources import make_source
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError, RejectCode, one_line
from vlmsearch.generators.base import GenerationOptions, Generator, Picture, SeesPictures
from vlmsearch.generators.thoughts import text_of
from vlmsearch.indexing.image_text import with_description_mark
from vlmsearch.indexing.options import FIELD_TYPES, DescribeRequest
from vlmsearch.indexing.passages import Splitter, with_passages, without_passages
from vlmsearch.indexing.records import Ready, encode
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.filters import Filter
from vlmsearch.types import (
    DESCRIBED_BY,
    DescribeReport,
    Document,
    Match,
    MetadataChange,
    Record,
    Reject,
    Scalar,
    Stamp,
    check_metadata,
    local_image,
)

if TYPE_CHECKING:
    import PIL.Image

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.stores.base import RejectList, Store

FIELDS_BY = "described_fields_by"
"""The key in the metadata of the model that filled others."""
_SIDE = 768
"""The longer side of a picture in pixels: descriptions need no more (PhotoPrism takes 720)."""
_MAX_CHARS = 2**14
"""Characters of an answer, far more than its tokens have."""
_PAGE = 16
"""Pictures asked about at once. A server that fails for that many ends the run."""
_SAMPLE = 3
"""Pictures of a forecast."""
_PREAMBLE = re.compile(
    r"(?i)^(?:sure|certainly|of course)?[,.! ]*(?:here(?:'s| is)[^:\n]{0,80}:|(?:image )?(?:description|caption):)\s*"
)
_REFUSAL = re.compile(
    r"(?i)^(?:i'?m sorry|i am sorry|sorry,|i can(?:no|')t |i cannot|i am unable|i'?m unable|as an ai\b|unable to )"
    r"|^the sources do not|^nothing in the index"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=\u3002)")
_NO_TEXT = re.compile(r"[^\n\t\r\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
_CITATION = re.compile(r" ?\[\d+\]")


@dataclass(frozen=True)
class _DocumentAnswer:
    """The answer of a generator about the picture of a document."""

    document: Document
    text: str = ""
    values: Mapping[str, Scalar] | None = None
    reject: tuple[RejectCode, str] | None = None
    error: Exception | None = None
    """The error of the server that made it a reject."""
    tokens: int = 0


class Describer:
    """A generator that describes the pictures of an index.

    Args:
        encoder: The encoder of the index.
        store: Where the documents are.
        reject_list: Where pictures go that are refused.
        generator: A generator that sees.
        options: How.
        image_limits: Limits of images.
        cache_salt: Name of those who share what a server keeps of prompts.

    Raises:
        ConfigError: The generator does not see.
    """

    def __init__(
        self,
        encoder: Encoder,
        store: Store,
        reject_list: RejectList,
        generator: Generator,
        options: DescribeRequest,
        image_limits: ImageLimits = DEFAULT_LIMITS,
        cache_salt: str | None = None,
    ) -> None:
        if not isinstance(generator, SeesPictures) or not generator.max_pictures:
            raise ConfigError(
                f"{generator.name} sees no pictures: open a generator that does, such as onnx:demo-vlm, "
                "transformers: with a model for images and texts, or openai:"
            )
        self._encoder, self._store, self._reject_list = encoder, store, reject_list
        self._generator: Generator = generator
        self._options, self._image_limits = options, image_limits
        self._generation = GenerationOptions(cache_salt=cache_salt)
        condition = options.condition
        self._condition: Filter | None = condition
        self._key = FIELDS_BY if options.fields else DESCRIBED_BY
        digest = hashlib.sha256(options.question.encode()).hexdigest()[:8]
        self._tag = f"{generator.name} {digest}"

    def run(self) -> DescribeReport:
        """Describe the pictures, and return the report; what is written stays where the run is interrupted."""
        begun, options = time.monotonic(), self._options
        rejected = {} if options.retry_rejects else {reject.id: reject for reject in self._reject_list.rejects()}
        counts = dict.fromkeys(("described", "unchanged", "left", "tokens"), 0)
        rejects: list[Reject] = []
        limit = _SAMPLE if options.dry_run else options.limit
        failed: list[_DocumentAnswer] = []  # while nothing proves that the server works
        seconds = 0.0
        done = 0
        for ids in batches(sorted(self._store.ids()), _PAGE * options.concurrency):
            check_cancelled()
            stamps = self._store.stamps(ids)  # before the documents: what others write from here on stays
            wanted, unchanged = self._wanted(self._store.get(ids), rejected)
            counts["unchanged"] += unchanged
            room = len(wanted) if limit is None else max(limit - counts["described"] - len(rejects) - len(failed), 0)
            counts["left"] += len(wanted) - len(wanted[:room])
            started = time.monotonic()
            told = [*failed, *self._tell(wanted[:room])]
            seconds += time.monotonic() - started
            counts["tokens"] += sum(answer.tokens for answer in told)
            errors = [answer.error for answer in told if answer.error]
            is_working = counts["described"] + len(rejects) > 0 or len(errors) < len(told)
            failed = [] if is_working else told
            described, refused = self._keep(told if is_working else [], stamps)
            counts["described"] += described
            rejects += refused
            done += len(ids)
            if options.on_progress:
                options.on_progress(done)
            if len(errors) == len(told) >= _PAGE:
                raise errors[0]
        if failed:
            raise errors[0]
        asked = counts["described"] + len(rejects)
        left = counts["left"] + (asked if options.dry_run else 0)
        return DescribeReport(
            described=0 if options.dry_run else counts["described"],
            unchanged=counts["unchanged"],
            left=left,
            rejects=tuple(rejects),
            seconds=time.monotonic() - begun,
            seconds_left=left * seconds / asked if asked else 0.0,
            prompt_tokens=counts["tokens"],
            prompt_tokens_left=round(left * counts["tokens"] / asked) if asked else 0,
        )

    def _wanted(self, documents: Sequence[Document], rejected: Mapping[str, Reject]) -> tuple[list[Document], int]:
        """Return the documents to describe, and the number of those that were done before.

        These have this description or are on the reject list for it.
        """
        wanted, unchanged = [], 0
        for document in documents:
            if not isinstance(document.image, Path):
                continue
            if self._condition is not None and not self._condition.matches(document.metadata):
                continue
            by = document.metadata.get(self._key)
            taken = document.metadata.keys() & self._options.schema.keys() if by is None else ()
            if taken:
                raise ConfigError(
                    f"the source of {document.id!r} has {min(taken)!r} in its metadata: choose another field"
                )
            if not self._options.fields and document.text and by is None:
                continue  # a caption of its own
            reject = rejected.get(document.id)
            if by == self._tag or (reject is not None and reject.message.endswith(f"({self._tag})")):
                unchanged += 1
            else:
                wanted.append(document)
        return wanted, unchanged

    def _tell(self, documents: Sequence[Document]) -> Iterator[_DocumentAnswer]:
        """Yield what the generator says of the pictures, in their order."""
        if self._options.concurrency == 1 or len(documents) < 2:
            yield from map(self._ask, documents)
            return
        with ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="vlmsearch-describe") as pool:
            yield from pool.map(self._ask, documents)

    def _ask(self, document: Document) -> _DocumentAnswer:
        from vlmsearch.media.images import shrunk_image

        check_cancelled()
        tokens: list[int] = []
        try:
            side = min(_SIDE, self._generator.max_side)  # type: ignore[attr-defined]
            image = shrunk_image(local_image(document.image), edge=side, limits=self._image_limits)  # type: ignore[arg-type]
            text = self._generated(document, image, tokens)
        except InvalidInputError as exc:
            return _DocumentAnswer(document, reject=(exc.code, str(exc)))
        except (BackendError, ConfigError) as exc:
            if isinstance(exc, BackendUnavailableError):
                raise
            return _DocumentAnswer(document, reject=("invalid", one_line(exc)), error=exc)
        told = partial(_DocumentAnswer, document, tokens=sum(tokens))
        if self._options.fields:
            values, why = _values_in(text, self._options.schema)
            return told(reject=("invalid", why)) if values is None else told(values=values)
        text = plain_description(text)
        if self._options.prompt is None:
            text = _SENTENCE.split(text)[0]
        if not text:
            return told(reject=("empty", "the description is empty"))
        if _NO_TEXT.search(text):
            return told(reject=("invalid", f"the description has characters that are no text: {text[:120]!r}"))
        if _REFUSAL.search(text):
            return told(reject=("invalid", f"the generator refused: {text[:120]}"))
        return told(text=text)

    def _generated(self, document: Document, image: PIL.Image.Image, tokens: list[int]) -> str:
        """Return the answer of the generator, which is asked as `Pipeline.ask` asks about a source."""
        source = make_source(1, Match(replace(document, text=None), 1.0, {}), Picture(image))
        parts = Prompt(self._options.question, (source,), ((0, 1),)).parts
        text = text_of(self._generator.answer(parts, self._generation, on_usage=tokens.append))
        if len(text) > _MAX_CHARS:
            raise InvalidInputError("too_long", f"the answer has more than {_MAX_CHARS:,} characters")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # pieces may cut a pair

    def _keep(self, told: Sequence[_DocumentAnswer], stamps: Mapping[str, Stamp]) -> tuple[int, list[Reject]]:
        """Write descriptions of documents that are still as they were read.

        Their number is returned, with the rejects.
        """
        good = [answer for answer in told if answer.reject is None and answer.document.id in stamps]
        refused = [(answer.document.id, *answer.reject) for answer in told if answer.reject is not None]
        records, unencoded = ([], []) if self._options.dry_run else self._encoded(good)
        refused += [(reject.id, reject.code, reject.message) for reject in unencoded]
        rejects = [Reject(id, code, f"{id}: {message} ({self._tag})", Stamp("")) for id, code, message in refused]
        if self._options.dry_run:
            return len(good), rejects
        answers = {answer.document.id: answer for answer in good}
        changes = [self._change(answers[id], stamps[id], record) for record in records for id in [record.document.id]]
        changed = self._store.update_metadata(changes) if changes else []
        if rejects:
            self._reject_list.reject(rejects)
        self._reject_list.release(changed)
        return len(changed), rejects

    def _encoded(self, told: Sequence[_DocumentAnswer]) -> tuple[list[Record], list[Reject]]:
        """Return records of the descriptions, without vectors where they fill metadata, and what is refused."""
        split = Splitter.of(self._encoder).split
        ready = [
            Ready(Document(answer.document.id, answer.text), None, Stamp(""), True, False, split(answer.text))
            for answer in told
        ]
        return encode(self._encoder, ready)

    def _change(self, told: _DocumentAnswer, stamp: Stamp, record: Record) -> MetadataChange:
        document = told.document
        metadata = {**document.metadata, **(told.values or {}), self._key: self._tag}
        digest = with_description_mark(stamp.digest, f"{self._tag}{told.text}{sorted((told.values or {}).items())}")
        digest = with_passages(digest) if record.passages else without_passages(digest)
        return MetadataChange(document, stamp, metadata, digest, told.text or None, record.vectors, record.passages)


def plain_description(text: str) -> str:
    """Return a description in one line, without citations and quotes.

    A beginning such as "Here is a description:" goes too.
    """
    line = _CITATION.sub("", " ".join(text.split()))
    line = _PREAMBLE.sub("", line).strip()
    if len(line) > 1 and line[0] == line[-1] == '"':
        line = line[1:-1].strip()
    return line[:1].upper() + line[1:]


def _values_in(text: str, schema: Mapping[str, str]) -> tuple[dict[str, Scalar] | None, str]:
    """Return the values of the fields in a generated JSON object.

    None, and why, where they are not of the schema.
    """
    begin, end = text.find("{"), text.rfind("}")
    try:
        given = parse_json(text[begin : end + 1]) if 0 <= begin < end else None
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return None, f"there is no JSON object in the answer: {text[:120]!r}"
    values: dict[str, Scalar] = {}
    for name, kind in schema.items():
        value = given.get(name)
        is_kind = kind == "any" or isinstance(value, bool) == (kind == "yes-no")
        is_right = isinstance(value, FIELD_TYPES[kind]) and is_kind and not _NO_TEXT.search(str(value))
        if not is_right:
            return None, f"{name!r} is {value!r} and not of the type {kind}"
        values[name] = cast("Scalar", value)
    try:
        check_metadata(values)
    except InvalidInputError as exc:
        return None, str(exc)
    return values, ""
