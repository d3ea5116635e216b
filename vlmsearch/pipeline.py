"""The pipeline: an encoder, a store, a generator and a re-ranker behind a few verbs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from typing_extensions import Self

from vlmsearch._util.closable import Closable
from vlmsearch._util.text import well_formed
from vlmsearch._util.tracing import operation, stage, staged
from vlmsearch.answers.prompts import (
    TEMPLATE,
    AnswerStream,
    check_question,
    default_options,
    fit_prompt,
    make_answer,
    nothing_found,
    parse_template,
)
from vlmsearch.errors import ConfigError
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.registry import (
    DEFAULT_ENCODER,
    DEFAULT_GENERATOR,
    DEFAULT_STORE,
    open_encoder,
    open_generator,
    open_reranker,
    open_store,
)
from vlmsearch.search.query import RERANK_FIRST, RERANK_SECONDS, Query, SearchOptions, make_query
from vlmsearch.search.relevance import Backgrounds, Judge
from vlmsearch.stores.base import CheckReport, Replaceable, check_manifest, check_store
from vlmsearch.types import (
    Answer,
    Document,
    Duplicates,
    ImageSource,
    IndexReport,
    Labelled,
    Manifest,
    Matches,
)

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.generators.base import GenerationOptions, Generator
    from vlmsearch.indexing.items import Item
    from vlmsearch.indexing.sources import Paths
    from vlmsearch.rerankers.base import Reranker
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.stores.base import Store

T = TypeVar("T")


class Pipeline(Closable):
    """Index documents, search them and answer questions from them.

    One pipeline may be used from several threads, and not after a fork. Closing it closes its back ends.

    Args:
        encoder: What makes the vectors. `Pipeline.open` takes URLs instead of open back ends.
        store: What keeps documents and vectors.
        generator: What writes answers; only `ask` needs one.
        next_encoders: What to go on with where `vlmsearch reindex` puts an index of one of them in the place of this
            one: no search fails meanwhile. All of them are open as long as the pipeline is.
        image_limits: How large images may be, both those that are indexed and those of queries, and whether those in
            object storage are read that an index, a table or a query names.

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

    def __init__(
        self,
        encoder: Encoder,
        store: Store,
        generator: Generator | None = None,
        *,
        next_encoders: Sequence[Encoder] = (),
        image_limits: ImageLimits = DEFAULT_LIMITS,
    ) -> None:
        others = [("next_encoders", each) for each in next_encoders]
        for role, part in (("encoder", encoder), ("store", store), ("generator", generator), *others):
            if isinstance(part, str):
                raise TypeError(f"Pipeline takes open back ends: Pipeline.open({role}={part!r}) opens one by its URL")
        self._encoders = (encoder, *next_encoders)
        self._in_use = encoder, store
        self.generator = generator
        self.image_limits = image_limits
        self._process = os.getpid()
        self._checked: tuple[str, Manifest] | None = None
        self._backgrounds = Backgrounds()
        self._opening = threading.Lock()
        self._rerankers: dict[str, Reranker] = {}

    @classmethod
    def open(
        cls,
        *,
        encoder: str = DEFAULT_ENCODER,
        store: str = DEFAULT_STORE,
        generator: str | None = DEFAULT_GENERATOR,
        next_encoders: Sequence[str] = (),
        image_limits: ImageLimits = DEFAULT_LIMITS,
    ) -> Self:
        """Open a pipeline whose back ends are named by URLs, ``scheme:location?option=value``.

        Nothing is written before something is indexed. `vlmsearch backends` lists the schemes.

        Args:
            encoder: Such as ``onnx:default`` (built on first use) or ``triton://host:8001/vlm``.
            store: Such as ``sqlite:./index`` or ``mongodb://host/photos``.
            generator: Such as ``extractive:`` (no model) or ``openai:http://host:8000/v1``; None for no answers.
            next_encoders: The encoders to go on with when the index has become one of theirs, as for `Pipeline`.
            image_limits: How large images may be.

        Returns:
            The pipeline, which closes its back ends.

        Raises:
            ConfigError: A URL is wrong; the message says what there is.
            MissingDependencyError: A back end needs a package that is not installed.
            ModelUnavailableError: A model is not on this machine and cannot be fetched.
            BackendError: A server refused, or cannot be reached.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:", generator="extractive:?quotes=1") as pipeline:
            ...     pipeline.generator.name
            'extractive'
        """
        with ExitStack() as stack:
            opened = stack.enter_context(open_store(store))
            model = stack.enter_context(open_encoder(encoder))
            others = [stack.enter_context(open_encoder(each)) for each in next_encoders]
            writer = stack.enter_context(open_generator(generator)) if generator else None
            stack.pop_all()
        return cls(model, opened, writer, next_encoders=others, image_limits=image_limits)

    @property
    def encoder(self) -> Encoder:
        """Return what makes the vectors: that of the encoders which built the index."""
        return self._in_use[0]

    @property
    def store(self) -> Store:
        """Return what keeps documents and vectors: the index in use."""
        return self._in_use[1]

    def add(
        self,
        documents: Document | Iterable[Document],
        *,
        retry_failed: bool = False,
        strict: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> IndexReport:
        """Index documents: add new ones, replace changed ones, skip unchanged ones.

        A document that cannot be used goes to the quarantine list, if the store keeps one, and is skipped until it
        changes. What was done when an error or Ctrl-C ends the run stays, and the next run completes it.

        Args:
            documents: One document, or any number of them; they are read as they are needed.
            retry_failed: Try those in quarantine again, too.
            strict: Raise for the first document that cannot be used.
            on_progress: Called with the number of documents that are done.

        Returns:
            What was done, with each document that could not be used.

        Raises:
            InvalidInputError: A document cannot be used, and ``strict`` is set.
            IndexMismatchError: Another encoder built the index.
            TypeError: Something is not a Document, or its id is not a string.
            BackendError: The encoder or the store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     first = pipeline.add([Document("a", text="a dog"), Document("b", image=b"no image")])
            ...     again = pipeline.add(Document("a", text="a dog"))
            >>> first.added, first.rejects[0].code, again.unchanged
            (1, 'unsupported', 1)
        """
        from vlmsearch.indexing.sources import given_documents

        return self._run(given_documents(documents), retry_failed, strict, on_progress)

    def index(
        self,
        paths: str | Path | Iterable[str | Path] | Paths,
        *,
        prune: bool = False,
        retry_failed: bool = False,
        strict: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> IndexReport:
        """Index what paths name, as `add` does: folders, files, globs, and tables in JSONL, CSV, Parquet or tar.

        `vlmsearch.indexing.sources` describes them. The id of a file is its absolute path, or its URL in object
        storage. `vlmsearch.integrations.ray` does the same on a cluster.

        Args:
            paths: One path or several. Links to files are followed, also out of a folder, unless this is
                ``Paths([...], options=SourceOptions(follow_links=False))``.
            prune: Remove the documents that came from these folders and tables and are there no longer; never one
                from below a folder that could not be read.
            retry_failed: Try those in quarantine again, too.
            strict: Raise for the first input that cannot be used.
            on_progress: Called with the number of inputs that are done.

        Returns:
            What was done, with each input that could not be used.

        Raises:
            ConfigError: A path does not exist, or there is nothing to index.
            InvalidInputError: An input cannot be used, and ``strict`` is set.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = Path(folder, "note.txt").write_text("a dog in the snow")
            ...     with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...         added = pipeline.index(folder).added
            ...         Path(folder, "note.txt").rename(Path(folder, "moved.txt")).exists()
            ...         report = pipeline.index(folder, prune=True)
            True
            >>> added, report.added, report.pruned
            (1, 1, 1)
        """
        from vlmsearch.indexing.flow import checked_report
        from vlmsearch.indexing.sources import Paths

        if isinstance(paths, (str, Path)):
            paths = [paths]
        source = paths if isinstance(paths, Paths) else Paths(list(paths), limits=self.image_limits)
        return checked_report(source, self._index(source, prune, retry_failed, strict, on_progress))

    def watch(
        self,
        folders: str | Path | Iterable[str | Path] | Paths,
        *,
        retry_failed: bool = False,
        on_progress: Callable[[int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[IndexReport]:
        """Keep the index in step with folders: index them as `index` does with ``prune``, and then what changes.

        A file is indexed a second after the last write to it, or half a minute after the first where that goes on.
        Nothing is removed because a folder cannot be read, or one of ``folders`` is not there, is empty when this
        starts, or is not mounted any more: the report then has a Reject of that folder. Changes while this does not run
        are found when it starts.

        Args:
            folders: One folder or several.
            retry_failed: In the first run, try the files in quarantine again, too.
            on_progress: In the first run, called with the number of inputs that are done.
            stop: Asked twice a second, it ends the iteration when it says so.

        Returns:
            An iterator, which waits: it gives what the first run did, and each time that files came, changed or went,
            what was done.

        Raises:
            ConfigError: A path is not a folder, or the system watches no more folders.
            MissingDependencyError: watchfiles is not installed.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed; where this is started again, it goes on.

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
        from vlmsearch.indexing.sources import Paths, lost_folder
        from vlmsearch.indexing.watch import FolderWatch

        if isinstance(folders, (str, Path)):
            folders = [folders]
        source = folders if isinstance(folders, Paths) else Paths(list(folders), limits=self.image_limits)
        watched = FolderWatch(source)
        yield self._index(source, True, retry_failed, False, on_progress)
        watched.expect(source.indexed_files(self.store))  # also those that came and went meanwhile
        for changes in watched.changes(stop):
            report = self._index(source.only(changes.changed), False, False, False, None)
            lost = tuple(lost_folder(folder) for folder in changes.lost)
            yield replace(report, pruned=report.pruned + self._remove(changes.gone), rejects=(*report.rejects, *lost))

    def _remove(self, files: Iterable[str]) -> int:
        """Remove what came from files that are gone."""
        from vlmsearch.indexing.containers import with_parts
        from vlmsearch.indexing.flow import release
        from vlmsearch.indexing.sources import file_id
        from vlmsearch.search.arrange import file_of_part

        ids = {file_id(name) for name in files}
        stamps = self.store.stamps(with_parts(self.store, ids))
        release(self.store, lambda reject: reject.id in ids or file_of_part(reject.id) in ids)
        return self.store.delete([id for id, stamp in stamps.items() if stamp.source in (id, file_of_part(id))])

    def _index(
        self,
        source: Paths,
        prune: bool,
        retry_failed: bool,
        strict: bool,
        on_progress: Callable[[int], None] | None,
    ) -> IndexReport:
        from vlmsearch.indexing.flow import settle
        from vlmsearch.indexing.items import id_of

        seen: set[str] = set()

        def note(item: Item) -> Item:
            if prune:
                seen.add(id_of(item))
            return item

        report = self._run(map(note, source), retry_failed, strict, on_progress)
        return settle(self.store, source, report, seen if prune else None)

    def _run(
        self,
        items: Iterable[Item],
        retry_failed: bool,
        strict: bool,
        on_progress: Callable[[int], None] | None,
    ) -> IndexReport:
        from vlmsearch.indexing.flow import Flow, IndexOptions

        self._check_process()
        encoder, store = self._follow()
        store.bind(encoder.fingerprint, encoder.spaces)
        options = IndexOptions(retry_failed, strict, on_progress, self.image_limits, has_remote_sources=True)
        try:
            with operation("index"):
                return Flow(encoder, store, options).run(items)
        finally:
            self._backgrounds.forget()

    def search(
        self,
        text: str | None = None,
        *,
        image: ImageSource | None = None,
        like: str | Iterable[str] = (),
        without: str | ImageSource | Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int = 10,
        offset: int = 0,
        cursor: str | None = None,
        sort: str = "relevance",
        diversity: float = 0.0,
        min_score: float | None = None,
        weights: Mapping[str, float] | None = None,
        count: bool = False,
        facets: Collection[str] = (),
        group: bool = True,
        rerank: Reranker | str | None = None,
        rerank_first: int = RERANK_FIRST,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> Matches:
        """Return the best matches for a text, an image, documents of the index, or several of these, best first.

        A text is compared with images in spaces that have both towers, and with texts in text-only spaces; an image
        is compared with images and texts in the former. Where the store ranks words, a text also finds the documents
        that share words with it. What they all say of a document is added up as evidence, and its score is how likely
        it is what was asked for; what is less likely than the threshold of the index is not shown.

        Args:
            text: What to look for; what is longer than the model reads is cut, with a TextTruncatedWarning. Words
                with a minus before them, ``a beach -people -"sun shades"``, are left out as ``without`` does.
            image: What to look for, as a path, encoded bytes or a decoded image.
            like: Ids of documents whose vectors to look for; they are not in the result.
            without: What the matches must not be: a text, an image, or a list of ids. The score of a match is how
                likely it is what was asked for and not this; what reaches the index's threshold for this is left out.
            where: A filter on metadata, such as ``{"year": {"$gte": 2020}}``: see `vlmsearch.stores.filters`.
            limit: The most matches, from 1 to 10,000.
            offset: How many of the best to pass over; with the limit at most 10,000.
            cursor: The ``cursor`` of the page before. While others write, a document that is there throughout is on
                exactly one page: at its place, or at the top of the next page where that has been passed.
            sort: ``relevance``, a key of the metadata, or ``-KEY`` for falling values; documents without it are last.
                The up to 10,000 most relevant documents are sorted.
            diversity: From 0 to 1: how far a match is put behind for being like those before it (maximal marginal
                relevance: Carbonell and Goldstein, SIGIR 1998), among the 200 most relevant.
            min_score: The lowest score that is shown, from 0 to 1; by default that of the index.
            weights: How much some legs count, such as ``{"words": 0.5, "clip/image": 2}``; 1 for those that are left
                out, 0 for those that are not asked at all.
            count: Whether to count the relevant documents: `Matches.total`.
            facets: Keys of the metadata whose values to count among the relevant documents: `Matches.facets`.
            group: Whether of the parts of a file, such as pages, only the best is shown: `Match.parts` has the others.
                Pages, counts and facets are of files then.
            rerank: What reads the text with each of the first matches and judges them anew: a re-ranker, or the URL of
                one, which stays open until the pipeline is closed.
            rerank_first: How many matches it reads.
            rerank_seconds: After how long it reads no more; the order so far stands.

        Returns:
            At most ``limit`` matches, with what is known of the others; none from an index that holds nothing.

        Raises:
            InvalidInputError: There is nothing to look for, or the image cannot be used.
            ConfigError: An option is wrong, or an id is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document(str(y), text=f"a dog of {y}", metadata={"year": y}) for y in (2019, 2021))
            ...     found = pipeline.search("dog 2019", limit=1)
            ...     rest = pipeline.search("dog 2019", limit=1, cursor=found.cursor)
            ...     late = pipeline.search("dog 2019", where={"year": {"$gte": 2020}})
            >>> found[0].document.id, rest[0].document.id, len(late)
            ('2019', '2021', 1)
        """
        query = make_query(text, image=image, like=like, without=without)
        options = SearchOptions(
            limit=limit,
            offset=offset,
            cursor=cursor,
            where=where,
            weights=weights,
            min_score=min_score,
            sort=sort,
            diversity=diversity,
            count=count,
            facets=facets,
            group=group,
            rerank=self._reranker(rerank),
            rerank_first=rerank_first,
            rerank_seconds=rerank_seconds,
        )
        with operation("search"):
            return self._search([query], options)[0]

    def search_many(
        self,
        queries: Iterable[str | Query],
        *,
        where: Mapping[str, object] | None = None,
        limit: int = 10,
        sort: str = "relevance",
        diversity: float = 0.0,
        min_score: float | None = None,
        weights: Mapping[str, float] | None = None,
        count: bool = False,
        facets: Collection[str] = (),
        group: bool = True,
        rerank: Reranker | str | None = None,
        rerank_first: int = RERANK_FIRST,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> list[Matches]:
        """Return the matches of several queries: encoded at once, with one call to the store for each field.

        Args:
            queries: Strings, as `search` takes them, or queries of other kinds.
            where: As in `search`, for all of them, and so are all other options.
            limit: The most matches of each query.
            sort: What their order is.
            diversity: How far matches that are like others are put behind.
            min_score: The lowest score that is shown.
            weights: How much some legs count.
            count: Whether to count the relevant documents of each.
            facets: Keys of the metadata whose values to count.
            group: Whether of the parts of a file only the best is shown.
            rerank: What judges the first matches of each query anew.
            rerank_first: How many matches of each query it reads.
            rerank_seconds: After how long it reads no more of a query's matches.

        Returns:
            The matches of each query, in the order of the queries.

        Raises:
            InvalidInputError: A query is empty, or its image cannot be used.
            ConfigError: An option is wrong, or an id is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     texts = {"a": "a dog in the snow", "b": "a dog in the rain", "c": "blue cars"}
            ...     _ = pipeline.add(Document(id, text=text) for id, text in texts.items())
            ...     found = pipeline.search_many(["snow", Query(like=["a"])])
            >>> [[match.document.id for match in matches] for matches in found]
            [['a'], ['b']]
        """
        if isinstance(queries, (str, Query)):
            raise TypeError("search_many takes a list of queries; `search` takes one")
        options = SearchOptions(
            limit=limit,
            where=where,
            weights=weights,
            min_score=min_score,
            sort=sort,
            diversity=diversity,
            count=count,
            facets=facets,
            group=group,
            rerank=self._reranker(rerank),
            rerank_first=rerank_first,
            rerank_seconds=rerank_seconds,
        )
        given = [each if isinstance(each, Query) else make_query(each) for each in queries]
        with operation("search", {"vlmsearch.count": len(given)}):
            return self._search(given, options)

    def explain(
        self,
        text: str | None,
        id: str,
        *,
        image: ImageSource | None = None,
        like: str | Iterable[str] = (),
        without: str | ImageSource | Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int = 10,
        min_score: float | None = None,
        weights: Mapping[str, float] | None = None,
        rerank: Reranker | str | None = None,
        rerank_first: int = RERANK_FIRST,
        rerank_seconds: float = RERANK_SECONDS,
        parts: bool = False,
        seconds: float = 10.0,
        on_progress: Callable[[int], None] | None = None,
    ) -> Explanation:
        """Return why `search` shows a document for a query, or what takes it out of the result.

        The document need not be found: what each leg says of it is looked up.

        Args:
            text: What is asked for, as in `search`; None for an image or documents alone.
            id: The document's.
            image: As in `search`, and so are the options up to ``rerank_seconds``.
            like: Ids of documents whose vectors are looked for.
            without: What the matches must not be.
            where: A filter on metadata.
            limit: The most matches that the search would show.
            min_score: The lowest score that it would show.
            weights: How much some legs count.
            rerank: What judges the first matches anew.
            rerank_first: How many matches it reads.
            rerank_seconds: After how long it reads no more.
            parts: Whether to find the sentences of the document's text and the regions of its image that mattered. Each
                is left out in turn and the rest is encoded: up to 65 texts and 100 images.
            seconds: After how long to look for no more regions; those that are known by then are spread over the image.
            on_progress: Called with the number of regions that are done.

        Returns:
            The explanation, also of an id that is not in the index.

        Raises:
            InvalidInputError: There is nothing to look for, or the image cannot be used.
            ConfigError: An option is wrong, or an id of the query is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="a dog in the snow", metadata={"year": 2019}))
            ...     pipeline.explain("dog", "a", where={"year": {"$gte": 2020}}).reason
            'The filter leaves it out: year is at least 2020, but it is 2019.'
        """
        from vlmsearch.search.explain import explain
        from vlmsearch.search.explanation import Explanation

        query = make_query(text, image=image, like=like, without=without)
        options = SearchOptions(
            limit=limit,
            where=where,
            weights=weights,
            min_score=min_score,
            rerank=self._reranker(rerank),
            rerank_first=rerank_first,
            rerank_seconds=rerank_seconds,
        )
        if not (isinstance(seconds, (int, float)) and seconds > 0):
            raise ConfigError(f"`seconds` is above 0, not {seconds!r}")

        def read(judge: Judge) -> Explanation:
            return explain(
                judge,
                query,
                options,
                id,
                image_limits=self.image_limits,
                seconds=seconds if parts else None,
                on_progress=on_progress,
            )

        with operation("explain"):
            return self._read(read) or Explanation(id, "absent", "There is no index yet.")

    def label(
        self,
        labels: Iterable[str],
        *,
        templates: Sequence[str] = ("{}",),
        where: Mapping[str, object] | None = None,
        min_score: float | None = None,
        single: bool = False,
        write: bool = False,
        key: str = "label",
        limit: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Iterator[Labelled]:
        """Yield the documents of the index with those of some labels that fit them, without any training.

        A document gets each label whose relevance reaches the threshold: the score that a search for the label would
        give it. Images are compared with the mean over the templates; texts and words with the label itself.

        With ``write`` each document has its labels in the index when it is yielded: ``key`` is the most relevant one,
        and ``KEY:LABEL`` the relevance of each, as in ``{"label": "cat", "label:cat": 0.97}``, so that
        ``where={"label:cat": {"$gte": 0.5}}`` filters on it. They take the place of all that an earlier run wrote
        under that key. Run it again after it was interrupted: what is written is not written again. Indexing the
        source of a document again keeps its labels while nothing else of it changes.

        Args:
            labels: Such as ``["cat", "dog", "receipt"]``; none, with ``write``, to take the labels of a key off.
            templates: What images are described by, each with ``{}`` for the label; by default the label alone.
                `vlmsearch.search.labels.PHOTO_TEMPLATES` are the seven that CLIP's authors chose for photographs.
            where: A filter on metadata; what does not pass is neither yielded nor written to.
            min_score: The least relevance of a label, from 0 to 1; by default that of the index.
            single: Whether a document gets the most relevant label alone.
            write: Whether to put the labels into the index.
            key: The key of the metadata.
            limit: The most documents; None for all.
            on_progress: Called with the number of documents that were looked at.

        Returns:
            The documents, in the order of their ids, as they are worked out.

        Raises:
            ConfigError: An option is wrong, or the source of a document has metadata under that key.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
            ...     found = {each.document.id: list(each.labels) for each in pipeline.label(["dog", "car"], write=True)}
            ...     cars = pipeline.search("a", where={"label": "car"}, min_score=0)
            >>> found, [match.document.id for match in cars]
            ({'a': ['dog'], 'b': ['car']}, ['b'])
        """
        from vlmsearch.search.labels import LabelOptions, label

        if isinstance(labels, str):
            raise TypeError(f"labels are a list of strings, such as [{labels!r}]")
        options = LabelOptions(
            labels=list(labels),
            templates=templates,
            where=where,
            min_score=min_score,
            single=single,
            write=write,
            key=key,
            limit=limit,
            on_progress=on_progress,
        )
        judge = self._judge()
        return iter(()) if judge is None else label(judge, options)

    def duplicates(
        self,
        *,
        threshold: float | None = None,
        where: Mapping[str, object] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Duplicates:
        """Return the images of the index that are copies of one picture. Nothing is changed.

        Copies may be encoded again, scaled, cropped by up to a fifth of each side, turned by quarters or mirrored, in
        other light or colours, and have a badge in a corner, a line of text or a frame. The nearest images by vectors
        are compared pixel by pixel, so the files have to be there.

        Args:
            threshold: The cosine of their vectors from which two images are compared, from 0 to 1; 0.5 by default.
            where: A filter on metadata, which both images of a pair pass.
            on_progress: Called with the number of documents that are done.

        Returns:
            Groups of image files, and what could not be compared.

        Raises:
            ConfigError: An option is wrong, or the encoder encodes no images.
            IndexMismatchError: Another encoder built the index.
            BackendError: The store failed.

        Example:
            >>> import tempfile
            >>> from vlmsearch.demo.scenes import make_scene
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     picture = make_scene(1).draw(256)
            ...     picture.save(Path(folder, "large.png"))
            ...     picture.resize((128, 128)).save(Path(folder, "small.jpg"))
            ...     with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
            ...         report = pipeline.index(folder)
            ...         [group] = pipeline.duplicates().groups
            >>> [(file.path.name, file.width) for file in group.files]
            [('large.png', 256), ('small.jpg', 128)]
        """
        from vlmsearch.search.duplicates import LEAST_COSINE, DuplicateOptions, find_duplicates

        options = DuplicateOptions(
            LEAST_COSINE if threshold is None else threshold, where, on_progress, self.image_limits
        )
        with operation("duplicates"):
            return self._read(lambda judge: find_duplicates(judge, options)) or Duplicates((), 0)

    def _judge(self) -> Judge | None:
        """What judges the documents of the index in use; None where there is no index yet."""
        self._check_process()
        encoder, store = self._follow()
        manifest = store.manifest()
        if manifest is None:
            return None
        self._check(encoder, store, manifest)
        return Judge(encoder, store, manifest, self._backgrounds)

    def _reranker(self, given: Reranker | str | None) -> Reranker | None:
        """The re-ranker that is given, or that a URL names: opened once."""
        if not isinstance(given, str):
            return given
        with self._opening:
            if given not in self._rerankers:
                self._rerankers[given] = open_reranker(given)
            return self._rerankers[given]

    def _search(self, queries: Sequence[Query], options: SearchOptions) -> list[Matches]:
        from vlmsearch.search.engine import check_images, run

        found = self._read(lambda judge: run(judge, queries, options, image_limits=self.image_limits))
        if found is None:  # a broken image is refused, whether there is an index or not
            check_images(self._follow()[0], queries, self.image_limits)
            return [Matches() for _ in queries]
        return found

    def _read(self, read: Callable[[Judge], T]) -> T | None:
        """What is read of the index, from the beginning where another one takes its place; None where there is none."""
        self._check_process()
        while True:
            encoder, store = in_use = self._follow()
            manifest = store.manifest()
            if manifest is None:
                return None
            try:
                self._check(encoder, store, manifest)
                try:
                    found = read(Judge(encoder, store, manifest, self._backgrounds))
                finally:  # another thread may have switched the store to another model meanwhile
                    self._check(encoder, store, store.manifest())
            except Exception:
                if not self._has_moved(in_use, manifest):
                    raise
            else:
                if not self._has_moved(in_use, manifest):
                    return found

    def _has_moved(self, was: tuple[Encoder, Store], manifest: Manifest) -> bool:
        """Whether there is another index to go on with than the one that was in use."""
        if len(self._encoders) == 1:
            return False
        _, store = now = self._follow()
        newer = store.manifest()
        return now != was or (newer is not None and newer.created != manifest.created)

    def _follow(self) -> tuple[Encoder, Store]:
        """The encoder and the store in use: those of the index that took the place of this one, if they are known."""
        encoder, store = self._in_use
        if len(self._encoders) > 1:
            newer = store.successor() if isinstance(store, Replaceable) else None
            now = store if newer is None else newer
            manifest = now.manifest()
            for other in self._encoders:
                if manifest is not None and other.fingerprint == manifest.fingerprint:
                    encoder, store = self._in_use = other, now
        return encoder, store

    @overload
    def ask(
        self,
        question: str,
        *,
        image: ImageSource | None = None,
        limit: int = 5,
        where: Mapping[str, object] | None = None,
        stream: Literal[False] = False,
        options: GenerationOptions | None = None,
        template: str | None = None,
    ) -> Answer: ...

    @overload
    def ask(
        self,
        question: str,
        *,
        image: ImageSource | None = None,
        limit: int = 5,
        where: Mapping[str, object] | None = None,
        stream: Literal[True],
        options: GenerationOptions | None = None,
        template: str | None = None,
    ) -> AnswerStream: ...

    def ask(
        self,
        question: str,
        *,
        image: ImageSource | None = None,
        limit: int = 5,
        where: Mapping[str, object] | None = None,
        stream: bool = False,
        options: GenerationOptions | None = None,
        template: str | None = None,
    ) -> Answer | AnswerStream:
        """Answer a question from the best matches, with citations; say so when nothing in the index matches.

        The matches are those that `search` shows, with every part of a file that is relevant.
        Where the generator counts tokens, the weakest matches are left out until prompt and answer fit its context.

        Args:
            question: What to answer, and to search for; at most 32,768 characters.
            image: What to search for beside the question.
            limit: The most sources, from 1 to 10,000.
            where: A filter on metadata: see `vlmsearch.stores.filters`.
            stream: Return an AnswerStream, which gives the pieces of the text as they are made, then the citations.
            options: How to generate; by default greedily, with an answer of at most 256 tokens and a quarter of the
                model's context.
            template: A prompt of one's own with ``$sources`` and ``$question``, each once, in the form of
                `string.Template`; at most 32,768 characters.

        Returns:
            The answer with its sources, or a stream of it.

        Raises:
            ConfigError: There is no generator, or the template or the limit is wrong.
            InvalidInputError: The question is empty or too long, or not even one source fits into the model's context.
            IndexMismatchError: Another encoder built the index.
            BackendError: A back end failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="The dog is called Laika."))
            ...     answer = pipeline.ask("What is the dog called?")
            >>> answer.text, answer.citations[0].id
            ('“The dog is called Laika.” [1]', 'a')
        """
        if self.generator is None:
            raise ConfigError("this pipeline has no generator: open it with one, such as extractive:")
        form = TEMPLATE if template is None else parse_template(template)
        check_question(question)
        question = well_formed(question) if isinstance(question, str) else question
        generator = self.generator
        with operation("ask"):
            [matches] = self._search([Query(question, image)], SearchOptions(limit=limit, where=where, group=False))
            if not matches:
                return nothing_found() if stream else nothing_found().answer()
            options = options or default_options(generator)
            prompt = fit_prompt(question, matches, generator, options, form)
            about = {"gen_ai.operation.name": "text_completion", "gen_ai.request.model": generator.name}
            if stream:
                return AnswerStream(staged("generate", generator.stream(prompt.text, options), about), prompt)
            with stage("generate", about):
                text = generator.generate(prompt.text, options)
            return make_answer(text, prompt.matches, prompt.dropped)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with their vectors, and with a file of several documents, such as a PDF, all of its parts.

        Args:
            ids: One id or several; those that are not there are ignored.

        Returns:
            How many were there.

        Raises:
            BackendError: The store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
            ...     pipeline.delete(["a", "not there"])
            1
        """
        from vlmsearch.indexing.containers import with_parts

        self._check_process()
        _, store = self._follow()
        return store.delete(with_parts(store, [ids] if isinstance(ids, str) else ids))

    def check(self, *, repair: bool = False) -> CheckReport:
        """Check that all parts of the store agree.

        Args:
            repair: Finish or roll back what does not.

        Returns:
            What is in the store, and what is not in order.

        Raises:
            ConfigError: The store has nothing to check itself with.
            BackendError: The store failed.

        Example:
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="a dog"))
            ...     pipeline.check().clean
            True
        """
        _, store = self._follow()
        return check_store(store, repair=repair)

    def _check_process(self) -> None:
        """Raise ConfigError in a process that was forked after this was opened: threads and locks are not there."""
        if os.getpid() != self._process:
            raise ConfigError(f"this pipeline was opened in process {self._process}: open another after a fork")

    def _check(self, encoder: Encoder, store: Store, manifest: Manifest | None) -> None:
        """Check what built the index against the encoder, whenever it is another than before."""
        if manifest is not None and (encoder.fingerprint, manifest) != self._checked:
            check_manifest(store.name, manifest, encoder.fingerprint, encoder.spaces)
            self._checked = encoder.fingerprint, manifest

    def close(self) -> None:
        """Close the encoders, the store, the generator and the re-rankers that searches named."""
        with ExitStack() as stack:  # one that fails leaves none of the others open
            for part in (*self._rerankers.values(), self.generator, self.store, *self._encoders):
                if part is not None:
                    stack.callback(part.close)
