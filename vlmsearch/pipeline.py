"""The pipeline: an encoder, a store, a generator and a re-ranker behind a few verbs."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from vlmsearch import verbs
from vlmsearch._util.arguments import check_kind, paths as path_list, shown, strings
from vlmsearch._util.text import well_formed
from vlmsearch._util.tracing import operation, staged
from vlmsearch.errors import ConfigError
from vlmsearch.index import Index
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.registry import (
    DEFAULT_GENERATOR,
    DEFAULT_STORE,
    open_encoder,
    open_generator,
    open_reranker,
    open_store,
    open_usual_encoder,
)
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.fusion import text_fields
from vlmsearch.search.options import SearchOptions
from vlmsearch.search.query import Query
from vlmsearch.search.relevance import Backgrounds, Judge
from vlmsearch.stores.base import CheckReport, RejectList, Replaceable, check_manifest, check_store, reject_list_of
from vlmsearch.stores.filters import Filter, FilterGroup
from vlmsearch.types import (
    Answer,
    DescribeReport,
    Document,
    DocumentLabels,
    Duplicates,
    IndexReport,
    Manifest,
    Matches,
    Reject,
    document_of,
    local_image,
)
from vlmsearch.verbs import verb

if TYPE_CHECKING:
    from typing_extensions import Self

    from vlmsearch.answers.quotes import Encode
    from vlmsearch.answers.stream import AnswerStream
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.generators.base import Generator
    from vlmsearch.indexing.items import Item, SourceOptions
    from vlmsearch.indexing.sources import Paths
    from vlmsearch.search.curves import Evaluation
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.stores.base import Store

T = TypeVar("T")
_PAGE = 1000
"""Documents that are read at a time."""
_MAX_HANDLES = 64
"""Restricted handles that are kept, with what they know of their documents."""


class Pipeline(Index):
    """An index in this process: documents are added, searched and used to answer questions.

    One pipeline may be used from several threads, and not after a fork. Closing it closes its back ends.

    Args:
        encoder: Encoder of the vectors. `Pipeline.open` takes URLs instead of open back ends.
        store: Store of documents and vectors.
        generator: Generator of answers; only `ask` needs one.
        reranker: Re-ranker for ``rerank=True``.
        next_encoders: Encoders of indexes that `vlmsearch reindex` may put in the place of this one, without a failed
            search. They stay open as long as the pipeline.
        image_limits: Limits of images, indexed or searched for. They also say whether images in object storage are
            read.

    Raises:
        TypeError: A back end is a string.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     report = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        ...     matches = pipeline.search("dog snow", limit=1)
        >>> report.added, matches[0].document.text
        (2, 'a dog in the snow')
    """

    _cache_salt: str | None = None

    def __init__(
        self,
        encoder: Encoder,
        store: Store,
        generator: Generator | None = None,
        *,
        reranker: Reranker | None = None,
        next_encoders: Sequence[Encoder] = (),
        image_limits: ImageLimits = DEFAULT_LIMITS,
    ) -> None:
        _check_parts(encoder=encoder, store=store, generator=generator, reranker=reranker, next_encoders=next_encoders)
        self._encoders = (encoder, *next_encoders)
        self._in_use = encoder, store
        self.generator = generator
        self.reranker = reranker
        self.image_limits = image_limits
        self._process = os.getpid()
        self._checked: tuple[str, Manifest] | None = None
        self._backgrounds = Backgrounds()
        self._opening = threading.Lock()
        self._rerankers: dict[str, Reranker] = {}
        self._restricted: OrderedDict[Filter, RestrictedPipeline] = OrderedDict()
        self._handles = weakref.WeakSet[RestrictedPipeline]()
        """All restricted handles that are in use."""

    @classmethod
    def open(
        cls,
        *,
        encoder: str | None = None,
        store: str = DEFAULT_STORE,
        generator: str | None = DEFAULT_GENERATOR,
        reranker: str | None = None,
        next_encoders: Sequence[str] = (),
        image_limits: ImageLimits = DEFAULT_LIMITS,
    ) -> Self:
        """Open a pipeline whose back ends are named by URLs, ``scheme:location?option=value``.

        Nothing is written before something is indexed. `vlmsearch backends` lists the schemes.

        Args:
            encoder: URL such as ``onnx:default`` (built on first use) or ``triton://host:8001/vlm``. None for the
                encoder that built the index, and for ``onnx:default`` where there is none yet.
            store: URL such as ``sqlite:./index`` or ``postgresql://host/photos``.
            generator: URL such as ``extractive:`` (no model) or ``openai:http://host:8000/v1``; None for no answers.
            reranker: URL such as ``onnx:demo-reranker``, for ``rerank=True``; None for none.
            next_encoders: URLs of encoders to change to, as for `Pipeline`.
            image_limits: Limits of images.

        Returns:
            The pipeline, which closes its back ends.

        Raises:
            ConfigError: A URL is wrong; the message says what there is. Or only you know the URL of the encoder that
                built the index.
            MissingDependencyError: A back end needs a package that is not installed.
            ModelUnavailableError: A model is not on this machine and cannot be fetched.
            BackendError: A server refused, or cannot be reached.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:", generator="extractive:?quotes=1") as pipeline:
            ...     pipeline.generator.name
            'extractive'
        """
        check_kind("image_limits", image_limits, ImageLimits, "ImageLimits")
        check_kind("next_encoders", next_encoders, (list, tuple), "a list of URLs")
        strings("next_encoders", next_encoders, "URLs")
        with ExitStack() as stack:
            opened = stack.enter_context(open_store(store))
            manifest = opened.manifest() if encoder is None else None
            model = stack.enter_context(open_usual_encoder(encoder, opened.name, manifest))
            others = [stack.enter_context(open_encoder(other)) for other in next_encoders]
            writer = stack.enter_context(open_generator(generator)) if generator else None
            judge = stack.enter_context(open_reranker(reranker)) if reranker else None
            stack.pop_all()
        return cls(model, opened, writer, reranker=judge, next_encoders=others, image_limits=image_limits)

    @property
    def encoder(self) -> Encoder:
        """Return the encoder that built the index, among those that were given."""
        return self._in_use[0]

    @property
    def store(self) -> Store:
        """Return the store in use."""
        return self._in_use[1]

    @override
    def _add(self, given: verbs.AddRequest) -> IndexReport:
        from vlmsearch.indexing.given import given_documents
        from vlmsearch.indexing.items import SourceDocument

        items = (SourceDocument(document, "") for document in given_documents(given.documents))
        return self._run(items, given.passages, given.retry_rejects, given.strict, given.on_progress)

    @override
    @verb(verbs.IndexRequest)
    def index(self, given: verbs.IndexRequest) -> IndexReport:
        from vlmsearch.indexing.flow import checked_report

        source = self._paths("paths", given.paths, given.options)
        report = self._index(source, given.prune, given.retry_rejects, given.strict, given.on_progress)
        return checked_report(source, report)

    def _paths(self, name: str, given: object, options: SourceOptions) -> Paths:
        """Return the paths of an argument; `Paths` have options of their own."""
        from vlmsearch.indexing.sources import Paths

        limits = self.image_limits
        return given if isinstance(given, Paths) else Paths(path_list(name, given), options=options, limits=limits)

    @verb(verbs.WatchRequest)
    def watch(self, given: verbs.WatchRequest) -> Iterator[IndexReport]:
        """Keep the index in step with folders: index them as `index` does with ``prune``, and then their changes.

        A file is indexed a second after the last write to it, or half a minute after the first of many. Changes while
        this does not run are found when it starts. Documents stay when a folder cannot be read, is missing, is no
        longer mounted, or is empty at the start: the report then has a Reject of that folder.

        Returns:
            An iterator that waits: it yields the report of the first run, and one after each change of files.

        Raises:
            ConfigError: A path is not a folder, or the system watches no more folders.
            MissingDependencyError: watchfiles is not installed.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed. Starting this again continues.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = Path(folder, "note.txt").write_text("a dog in the snow")
            ...     with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...         reports = pipeline.watch(folder)
            ...         first = next(reports)
            ...         Path(folder, "note.txt").unlink()
            ...         second = next(reports)
            >>> first.added, second.pruned
            (1, 1)
        """
        from vlmsearch.indexing.sources import lost_folder
        from vlmsearch.indexing.watch import FolderWatch

        source = self._paths("folders", given.folders, given.options)
        watched = FolderWatch(source)
        yield self._index(source, True, given.retry_rejects, False, given.on_progress)
        watched.expect(source.indexed_files(self.store))  # also those that came and went meanwhile
        for changes in watched.changes(given.stop):
            report = self._index(source.only(changes.changed), False, False, False, None)
            lost = tuple(lost_folder(folder) for folder in changes.lost)
            yield replace(report, pruned=report.pruned + self._remove(changes.gone), rejects=(*report.rejects, *lost))

    def _remove(self, files: Iterable[str]) -> int:
        """Remove the documents of files that are gone."""
        from vlmsearch.indexing.containers import with_parts
        from vlmsearch.indexing.flow import release
        from vlmsearch.indexing.sources import file_id
        from vlmsearch.types import file_of_part

        ids = {file_id(name) for name in files}
        stamps = self.store.stamps(with_parts(self.store, ids))
        release(self.store, lambda reject: reject.id in ids or file_of_part(reject.id) in ids)
        return self.store.delete([id for id, stamp in stamps.items() if stamp.source in (id, file_of_part(id))])

    def _index(
        self,
        source: Paths,
        prune: bool,
        retry_rejects: bool,
        strict: bool,
        on_progress: Callable[[int], None] | None,
    ) -> IndexReport:
        from vlmsearch.indexing.flow import settle
        from vlmsearch.indexing.items import id_of

        seen: set[str] = set()
        source.note_index(self.store)

        def note(item: Item) -> Item:
            if prune:
                seen.add(id_of(item))
            return item

        report = self._run(map(note, source), source.options.passages, retry_rejects, strict, on_progress)
        return settle(self.store, source, report, seen if prune else None)

    def _run(
        self,
        items: Iterable[Item],
        passages: bool,
        retry_rejects: bool,
        strict: bool,
        on_progress: Callable[[int], None] | None,
    ) -> IndexReport:
        from vlmsearch.indexing.flow import Flow, IndexOptions
        from vlmsearch.models.domain import MIN_DOCUMENTS

        self._check_process()
        encoder, store = self._follow()
        given = iter(items)
        first = list(itertools.islice(given, 1))
        if not first and store.manifest() is None:  # no index is made where paths or columns are wrong
            return IndexReport()
        store.bind(encoder.fingerprint, encoder.spaces)
        options = IndexOptions(
            retry_rejects, strict, on_progress, self.image_limits, has_remote_sources=True, passages=passages
        )
        try:
            with operation("index"):
                report = Flow(encoder, store, options).run(itertools.chain(first, given))
        finally:
            self._forget()
        self._backgrounds.keep(store, report.added + report.updated, encoder)
        manifest = store.manifest()
        if manifest is not None and report.added + report.updated >= MIN_DOCUMENTS and not self._has_warned:
            fields = text_fields(encoder.spaces)
            self._warn(Judge(encoder, store, manifest, self._backgrounds).outside(fields))
        return report

    def _forget(self) -> None:
        """Look at the index anew at the next search, also through restricted handles: it was written to."""
        with self._opening:
            handles = [self, *self._handles]
        for handle in handles:
            handle._backgrounds.forget()  # noqa: SLF001

    @override
    def restricted(self, principals: Iterable[str]) -> Pipeline:
        from vlmsearch.stores.readers import readable

        return self._handle(readable(principals))

    def _handle(self, scope: Filter) -> Pipeline:
        """Return the handle on the documents that pass a filter; the last ones are kept."""
        self._check_process()
        with self._opening:
            handle = self._restricted.pop(scope, None) or self._new_handle(scope)
            self._restricted[scope] = handle
            self._handles.add(handle)
            while len(self._restricted) > _MAX_HANDLES:
                self._restricted.popitem(last=False)
        return handle

    def _new_handle(self, scope: Filter) -> RestrictedPipeline:
        return RestrictedPipeline(self, scope)

    @override
    @verb(verbs.SearchRequest)
    def search(self, given: verbs.SearchRequest) -> Matches:
        with operation("search"):
            return self._search([given.query], given)[0]

    @override
    @verb(verbs.SearchManyRequest)
    def search_many(self, given: verbs.SearchManyRequest) -> list[Matches]:
        with operation("search", {"vlmsearch.count": len(given.made)}):
            return self._search(given.made, given.of_search())

    @override
    @verb(verbs.ExplainRequest)
    def explain(self, given: verbs.ExplainRequest) -> Explanation:
        from vlmsearch.search.explain import explain
        from vlmsearch.search.explanation import Explanation

        options = self._with_reranker(given.of_search())

        def read(judge: Judge) -> Explanation:
            return explain(
                judge,
                given.query,
                options,
                given.id,
                image_limits=self.image_limits,
                seconds=given.seconds if given.parts else None,
                on_progress=given.on_progress,
            )

        with operation("explain"):
            return self._read(read) or Explanation(given.id, "absent", "There is no index yet.")

    @override
    @verb(verbs.LabelRequest)
    def label(self, given: verbs.LabelRequest) -> Iterator[DocumentLabels]:
        from vlmsearch.search.labels import label

        judge = self._judge()
        return iter(()) if judge is None else label(judge, given)

    @override
    @verb(verbs.DescribeRequest)
    def describe(self, given: verbs.DescribeRequest) -> DescribeReport:
        from vlmsearch.indexing.describe import Describer

        if self.generator is None:
            raise ConfigError("this pipeline has no generator: open it with one that sees, such as onnx:demo-vlm")
        judge = self._judge()
        if judge is None:
            return DescribeReport()
        with operation("describe"):
            rejects = reject_list_of(judge.store)
            parts = judge.encoder, judge.store, rejects, self.generator, given, self.image_limits, self._cache_salt
            return Describer(*parts).run()

    @override
    @verb(verbs.DuplicatesRequest)
    def duplicates(self, given: verbs.DuplicatesRequest) -> Duplicates:
        from vlmsearch.search.duplicates import find_duplicates

        with operation("duplicates"):
            return self._read(lambda judge: find_duplicates(judge, given, self.image_limits)) or Duplicates((), 0)

    def _judge(self) -> Judge | None:
        """Return the judge of the documents of the index in use.

        None where there is no index yet.
        """
        self._check_process()
        encoder, store = self._follow()
        manifest = store.manifest()
        if manifest is None:
            return None
        self._check(encoder, store, manifest)
        return Judge(encoder, store, manifest, self._backgrounds)

    def _with_reranker(self, options: SearchOptions) -> SearchOptions:
        """Return options with an open re-ranker: that of this pipeline, or of a URL, opened once."""
        reranker = self._open_reranker(options.rerank) or False
        return options if reranker is options.rerank else replace(options, rerank=reranker)

    def _open_reranker(self, given: Reranker | str | bool) -> Reranker | None:
        if isinstance(given, Reranker) or not given:
            return given or None
        if not isinstance(given, str):
            if self.reranker is None:
                raise ConfigError("this pipeline has no re-ranker: open it with one, or name one as `rerank`")
            return self.reranker
        with self._opening:
            if given not in self._rerankers:
                self._rerankers[given] = open_reranker(given)
            return self._rerankers[given]

    def _search(self, queries: Sequence[Query], options: SearchOptions) -> list[Matches]:
        from vlmsearch.search.engine import check_images, run

        options = self._with_reranker(options)
        matches = self._read(lambda judge: run(judge, queries, options, image_limits=self.image_limits))
        if matches is None:  # a broken image is refused, whether there is an index or not
            check_images(self._follow()[0], queries, self.image_limits)
            return [Matches() for _ in queries]
        for answer in matches:
            self._warn(answer.uncalibrated)
        return matches

    def _read(self, read: Callable[[Judge], T]) -> T | None:
        """Read the index.

        If another one takes its place, it is read again from the beginning. None without an index.
        """
        self._check_process()
        while True:
            encoder, store = in_use = self._follow()
            manifest = store.manifest()
            if manifest is None:
                return None
            try:
                self._check(encoder, store, manifest)
                try:
                    result = read(Judge(encoder, store, manifest, self._backgrounds))
                finally:  # another thread may have switched the store to another model meanwhile
                    self._check(encoder, store, store.as_opened())
            except Exception:
                if not self._has_moved(in_use, manifest):
                    raise
            else:
                if not self._has_moved(in_use, manifest):
                    return result

    def _has_moved(self, was: tuple[Encoder, Store], manifest: Manifest) -> bool:
        """Return whether there is another index to go on with.

        It is another than the one that was in use.
        """
        if len(self._encoders) == 1:
            return False
        _, store = now = self._follow()
        newer = store.manifest()
        return now != was or (newer is not None and newer.created != manifest.created)

    def _follow(self) -> tuple[Encoder, Store]:
        """Return the encoder and the store in use.

        Those of the index that took the place of this one, if they are known.
        """
        encoder, store = self._in_use
        if len(self._encoders) > 1:
            newer = store.successor() if isinstance(store, Replaceable) else None
            now = store if newer is None else newer
            manifest = now.manifest()
            for other in self._encoders:
                if manifest is not None and other.fingerprint == manifest.fingerprint:
                    encoder, store = self._in_use = other, now
        return encoder, store

    @override
    def _ask(self, given: verbs.AskRequest) -> Answer | AnswerStream:
        from vlmsearch.answers.prompts import TEMPLATE, Prompt, default_options, fit_prompt, parse_template
        from vlmsearch.answers.sources import make_sources, reading_order
        from vlmsearch.answers.stream import AnswerStream, nothing_found, read_prompt

        if self.generator is None:
            raise ConfigError("this pipeline has no generator: open it with one, such as extractive:")
        generator, options = self.generator, given.options or default_options(self.generator)
        if self._cache_salt is not None:
            options = replace(options, cache_salt=self._cache_salt)
        template = TEMPLATE if given.template is None else parse_template(given.template)
        question = well_formed(given.question)
        with operation("ask"):
            [sure] = self._search([Query(question, given.image)], given.of_search(group=False))
            matches = sure.matches or sure.closest
            encoder, store = self._follow()
            passages = store.passages([match.document.id for match in matches])
            sources, picture = make_sources(
                matches, passages, given.source_chars, given.image, generator, given.pictures, self.image_limits
            )
            if sources or picture:
                is_unsure = bool(matches) and not sure
                places = reading_order(sources, given.source_chars)
                prompt = Prompt(question, sources, places, template, picture, given.pictures.tokens, is_unsure)
                prompt = fit_prompt(prompt, generator, options)
                about = {"gen_ai.operation.name": "text_completion", "gen_ai.request.model": generator.name}
                pieces = read_prompt(prompt, generator, options, _text_encoder(encoder))
                answer = AnswerStream(prompt, staged("generate", pieces, about))
            else:
                answer = nothing_found(sure.spelling)
            if given.stream:
                return answer
            with answer:
                return answer.answer()

    @override
    def delete(self, ids: str | Iterable[str]) -> int:
        from vlmsearch.indexing.containers import with_parts

        self._check_process()
        _, store = self._follow()
        return store.delete(with_parts(store, strings("ids", ids)))

    @override
    @verb(verbs.CheckRequest)
    def check(self, given: verbs.CheckRequest) -> CheckReport:
        _, store = self._follow()
        return check_store(store, repair=given.repair)

    @override
    def get(self, ids: str | Iterable[str]) -> list[Document]:
        self._check_process()
        return self._follow()[1].get(strings("ids", ids))

    @override
    def documents(self) -> Iterator[Document]:
        from vlmsearch.stores.listing import documents_after

        self._check_process()
        last = ""
        while page := documents_after(self._follow()[1], last, _PAGE):
            yield from page
            last = page[-1].id

    @override
    def count(self) -> int:
        self._check_process()
        return len(self._follow()[1])

    @override
    @verb(verbs.ThumbnailRequest)
    def thumbnail(self, given: verbs.ThumbnailRequest) -> bytes:
        from vlmsearch.media.images import thumbnail

        for document in self.get(document_of(given.id)):
            if document.image is None:
                raise ConfigError(f"{given.id!r} has no image")
            return thumbnail(local_image(document.image), edge=given.size, limits=self.image_limits)
        raise ConfigError(f"there is no document {given.id!r} in the index")

    @override
    @verb(verbs.EvaluateRequest)
    def evaluate(self, given: verbs.EvaluateRequest) -> Evaluation:
        from vlmsearch.search.report import evaluate

        done = itertools.count(1)

        def advance() -> None:
            if given.on_progress is not None:
                given.on_progress(next(done))

        judge = self._open_reranker(given.rerank) or False
        return evaluate(self, list(given.queries), limit=given.limit, rerank=judge, on_search=advance)[0]

    @override
    def info(self) -> Mapping[str, Any]:
        from vlmsearch.indexing.unread import unread_info
        from vlmsearch.search.info import index_info

        self._check_process()
        encoder, store = self._follow()
        manifest = store.manifest() or Manifest(encoder.fingerprint, tuple(encoder.spaces), "")
        return {**index_info(store, manifest, encoder.domains), **unread_info(store)}

    @override
    def rejects(self) -> list[Reject]:
        self._check_process()
        _, store = self._follow()
        return store.rejects() if isinstance(store, RejectList) else []

    def _check_process(self) -> None:
        """Raise ConfigError in a process that was forked after this was opened: its threads and locks are missing."""
        if os.getpid() != self._process:
            raise ConfigError(f"this pipeline was opened in process {self._process}: open another after a fork")

    def _check(self, encoder: Encoder, store: Store, manifest: Manifest | None) -> None:
        """Check the encoder against the one that built the index, after each change."""
        if manifest is not None and (encoder.fingerprint, manifest) != self._checked:
            check_manifest(store.name, manifest, encoder.fingerprint, encoder.spaces)
            self._checked = encoder.fingerprint, manifest

    def close(self) -> None:
        """Close the encoders, the store, the generator and the re-rankers that searches named."""
        with ExitStack() as stack:  # one that fails leaves none of the others open
            for part in (*self._rerankers.values(), self.reranker, self.generator, self.store, *self._encoders):
                if part is not None:
                    stack.callback(part.close)


class RestrictedPipeline(Pipeline):
    """The documents of a pipeline that some principals may read: see `Index.restricted`.

    It has the back ends of the pipeline. Closing it closes nothing.

    Args:
        pipeline: The pipeline.
        scope: The filter that readable documents pass.
    """

    def __init__(self, pipeline: Pipeline, scope: Filter) -> None:
        from vlmsearch.stores.restricted import restricted_store

        self._whole, self._scope = pipeline, scope
        self._cache_salt = hashlib.sha256(repr(scope).encode("utf-8", "surrogatepass")).hexdigest()
        encoder, self._inner = pipeline._follow()  # noqa: SLF001
        super().__init__(
            encoder,
            restricted_store(self._inner, scope),
            pipeline.generator,
            reranker=pipeline.reranker,
            image_limits=pipeline.image_limits,
        )
        self._encoders = pipeline._encoders  # noqa: SLF001
        self._rerankers = pipeline._rerankers  # noqa: SLF001

    @override
    def _follow(self) -> tuple[Encoder, Store]:
        from vlmsearch.stores.restricted import restricted_store

        encoder, store = self._whole._follow()  # noqa: SLF001
        if store is not self._inner:
            self._in_use = encoder, restricted_store(store, self._scope)
            self._inner = store
        return self._in_use

    @override
    def _handle(self, scope: Filter) -> Pipeline:
        return self._whole._handle(FilterGroup("$and", (self._scope, scope)))  # noqa: SLF001

    @override
    def _forget(self) -> None:
        self._whole._forget()  # noqa: SLF001

    @override
    @verb(verbs.IndexRequest)
    def index(self, given: verbs.IndexRequest) -> IndexReport:
        if given.prune:
            raise _refused("index with `prune`")
        return super().index(**vars(given))

    @override
    @verb(verbs.WatchRequest)
    def watch(self, given: verbs.WatchRequest) -> Iterator[IndexReport]:
        raise _refused("watch")

    @override
    @verb(verbs.CheckRequest)
    def check(self, given: verbs.CheckRequest) -> CheckReport:
        raise _refused("check")

    @override
    def close(self) -> None:
        """Close nothing: the pipeline closes its back ends."""


def _refused(verb: str) -> ConfigError:
    return ConfigError(f"a restricted handle does not {verb}: that takes all documents, so use the unrestricted one")


def _text_encoder(encoder: Encoder) -> Encode | None:
    """Return what encodes texts and questions; None for an encoder of images alone."""
    space = next((field.space for field in text_fields(encoder.spaces) if field.modality == "text"), None)
    return None if space is None else lambda texts, role: encoder.encode_texts(texts, role=role)[space]


def _check_parts(**parts: Any) -> None:
    """Raise TypeError for something that is no open back end."""
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.generators.base import Generator
    from vlmsearch.stores.base import Store

    kinds = {"encoder": Encoder, "store": Store, "generator": Generator, "reranker": Reranker, "next_encoders": Encoder}
    for role, given in parts.items():
        if role == "next_encoders" and not isinstance(given, Sequence):
            raise TypeError(f"`{role}` is a list of open encoders, not {shown(given)}")
        for part in given if role == "next_encoders" else [given]:
            if isinstance(part, (str, Path)):
                raise TypeError(f"Pipeline takes open back ends: Pipeline.open({role}={part!r}) opens one by its URL")
            is_optional = role in ("generator", "reranker")
            if not (isinstance(part, kinds[role]) or (part is None and is_optional)):
                raise TypeError(f"`{role}` is an open {kinds[role].__name__}, not {shown(part)}")
