"""The verbs of an index: what `Pipeline`, `RemotePipeline` and, awaited, `AsyncPipeline` have in common."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from vlmsearch import verbs
from vlmsearch._util.closable import Closable
from vlmsearch._util.plain import CONTROLS
from vlmsearch.errors import InvalidInputError, RejectedDocumentsWarning, UncalibratedWarning
from vlmsearch.types import (
    Answer,
    AnswerParts,
    DescribeReport,
    Document,
    DocumentLabels,
    Duplicates,
    IndexReport,
    Matches,
    Reject,
)
from vlmsearch.verbs import verb

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vlmsearch.search.curves import Evaluation
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.stores.base import CheckReport

_ADVICE = (
    "Choose a model that is made for them, such as onnx:default, or onnx:multilingual-e5-small for texts and queries "
    "in several languages"
)


def _level_of_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package.

    It is for a warning of the calling function.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "vlmsearch":
        frame, level = frame.f_back, level + 1
    return level


class Index(Closable, ABC):
    """An index that can be searched, asked and changed, wherever it is.

    `Pipeline` is an index in this process, `RemotePipeline` one behind a service. `AsyncPipeline` has the same verbs,
    awaited. `vlmsearch.connect` and `Pipeline.open` make one.

    Two verbs are local:

    - `Pipeline.watch` listens to this machine's file system. On a server, `vlmsearch watch` runs beside the service.
    - `vlmsearch.indexing.parquet.export_index` reads a store with its vectors, which a service does not send.

    Example:
        >>> from vlmsearch import Document, Index, Pipeline
        >>> def count_dogs(index: Index) -> int:
        ...     return len(index.search("a dog"))
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add(Document("a", text="a dog"))
        ...     count_dogs(pipeline)
        1
    """

    _has_warned = False

    def _warn(self, uncalibrated: Mapping[str, str]) -> None:
        """Issue an UncalibratedWarning, once, where fields are uncalibrated for these reasons."""
        if uncalibrated and not self._has_warned:
            self._has_warned = True
            message = f"scores are uncalibrated: {'; '.join(uncalibrated.values())}. {_ADVICE}"
            warnings.warn(message, UncalibratedWarning, stacklevel=_level_of_caller())

    def __len__(self) -> int:
        """Return the number of documents, as `count` does."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True, for an empty index too."""
        return True

    @abstractmethod
    def restricted(self, principals: Iterable[str]) -> Index:
        """Return a handle on the documents that some principals may read.

        Whatever it says is what an index of these documents alone would say: their words are counted, their samples
        drawn and their values listed. A document that is not readable is one that is not there. A writer can read what
        it replaces and what it writes. `check`, `Pipeline.watch` and pruning are for the unrestricted handle.

        Args:
            principals: Who asks, such as ``["user:ann", "group:hr"]``. A document is readable where one of them is
                among `Document.readers`, or it has none. Without principals, documents of everyone are readable.

        Returns:
            The handle over the same connections. Closing it closes nothing.

        Raises:
            TypeError: They are no strings.
            ConfigError: A name is longer than 256 bytes, or there are more than 10,000.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("pay", text="pay", readers=["group:hr"]), Document("map", text="map")])
            ...     len(pipeline), len(pipeline.restricted(["group:hr"])), len(pipeline.restricted(["user:bob"]))
            (2, 2, 1)
        """

    @verb(verbs.SearchRequest)
    @abstractmethod
    def search(self, given: verbs.SearchRequest) -> Matches:
        """Return the best matches for a text, an image or documents of the index.

        A query may have several of these. The best come first.

        A text is compared with images in spaces that have both towers, and with texts in text-only spaces. An image is
        compared with images and texts in the former. Where the store ranks words, a text also finds the documents that
        share words with it. What they all say of a document is added up as evidence, and its score is how likely it is
        what was asked for. Documents below the threshold of the index are not shown. Where
        nothing reaches it, `Matches.closest` has up to three that may be meant.

        Returns:
            At most ``limit`` matches, with what is known of the others; none from an index that holds nothing.

        Raises:
            InvalidInputError: There is nothing to look for, or the image cannot be used.
            ConfigError: An option is wrong, or an id is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document(str(y), text=f"a dog of {y}", metadata={"year": y}) for y in (2019, 2021))
            ...     matches = pipeline.search("dog 2019", limit=1)
            ...     rest = pipeline.search("dog 2019", limit=1, cursor=matches.cursor)
            ...     late = pipeline.search("dog 2019", where={"year": {"$gte": 2020}})
            >>> matches[0].document.id, rest[0].document.id, len(late)
            ('2019', '2021', 1)
        """

    @verb(verbs.SearchManyRequest)
    @abstractmethod
    def search_many(self, given: verbs.SearchManyRequest) -> list[Matches]:
        """Return the matches of several queries: encoded at once, with one call to the store for each field.

        Returns:
            The matches of each query, in the order of the queries.

        Raises:
            InvalidInputError: A query is empty, or its image cannot be used.
            ConfigError: An option is wrong, or an id is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline, Query
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     texts = {"a": "a dog in the snow", "b": "a dog in the rain", "c": "blue cars"}
            ...     _ = pipeline.add(Document(id, text=text) for id, text in texts.items())
            ...     results = pipeline.search_many(["snow", Query(like=["a"])])
            >>> [[match.document.id for match in matches] for matches in results]
            [['a'], ['b']]
        """

    @verb(verbs.ExplainRequest)
    @abstractmethod
    def explain(self, given: verbs.ExplainRequest) -> Explanation:
        """Return why `search` shows a document for a query, or leaves it out.

        The document need not be found: what each field says of it is looked up.

        Returns:
            The explanation, also of an id that is not in the index.

        Raises:
            InvalidInputError: There is nothing to look for, or the image cannot be used.
            ConfigError: An option is wrong, or an id of the query is not in the index.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="a dog in the snow", metadata={"year": 2019}))
            ...     pipeline.explain("dog", "a", where={"year": {"$gte": 2020}}).reason
            'The filter leaves it out: year is at least 2020, but it is 2019.'
        """

    @overload
    def ask(self, question: str, *, stream: Literal[False] = False, **options: Unpack[verbs.AskKeywords]) -> Answer: ...

    @overload
    def ask(self, question: str, *, stream: Literal[True], **options: Unpack[verbs.AskKeywords]) -> AnswerParts: ...

    @verb(verbs.AskRequest)  # type: ignore[misc]  # it takes the keywords by their names
    def ask(self, given: verbs.AskRequest) -> Answer | AnswerParts:
        """Answer a question from the best matches, with citations.

        Where nothing in the index matches, the answer says so.

        The matches are those that `search` shows, with every part of a file that is relevant. Where nothing matches,
        what comes closest is read, and `Answer.is_unsure` is true. Where the generator counts tokens, the weakest
        matches are left out until prompt and answer fit its context.

        Returns:
            The answer with its sources, or a stream of it.

        Raises:
            ConfigError: There is no generator, or the template or an option is wrong.
            InvalidInputError: The question is empty or too long, or not even one source fits into the model's context.
            IndexMismatchError: Another encoder built the index.
            BackendError: A back end or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="The dog is called Laika."))
            ...     answer = pipeline.ask("What is the dog called?")
            >>> answer.text, answer.citations[0].id
            ('“The dog is called Laika.” [1]', 'a')
        """
        return self._ask(given)

    @abstractmethod
    def _ask(self, given: verbs.AskRequest) -> Answer | AnswerParts:
        """Return the answer, or a stream of it."""

    @verb(verbs.AddRequest)
    def add(self, given: verbs.AddRequest) -> IndexReport:
        """Index documents: add new ones, replace changed ones, skip unchanged ones.

        A document that cannot be used goes to the reject list, if the store keeps one, and is skipped until it
        changes. A RejectedDocumentsWarning says so, unless all of the call are of that kind. What was done when an
        error or Ctrl-C ends the run stays, and the next run completes it. To a service, images are sent along, in
        requests of a few MiB; an image that cannot be read here is in no reject list.

        Returns:
            What was done, with each document that could not be used.

        Raises:
            InvalidInputError: No document can be used; or one cannot, and ``strict`` is set.
            ConfigError: A table has no column for a text or an image.
            IndexMismatchError: Another encoder built the index.
            TypeError: Something is no document, or its id is not a string.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from vlmsearch import Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     first = pipeline.add([{"id": "a", "text": "a dog", "year": 2024}, {"text": "a car"}])
            ...     again = pipeline.add(Document("a", text="a dog", metadata={"year": 2024}))
            >>> first.added, again.unchanged
            (2, 1)
        """
        report = self._add(given)
        if report.rejects:
            message = _rejected(report)
            if not report.indexed:
                raise InvalidInputError(report.rejects[0].code, message)
            warnings.warn(
                f"{message} (all are in `rejects` of the report)", RejectedDocumentsWarning, _level_of_caller()
            )
        return report

    @abstractmethod
    def _add(self, given: verbs.AddRequest) -> IndexReport:
        """Index documents, and report those that cannot be used."""

    @verb(verbs.IndexRequest)
    @abstractmethod
    def index(self, given: verbs.IndexRequest) -> IndexReport:
        """Index what paths name, as `add` does: folders, files, globs, and tables in JSONL, CSV, Parquet or tar.

        `vlmsearch.indexing.sources` describes them. The id of a file is its absolute path, or its URL in object
        storage. A service reads files of its own machine, below the folders that its operator allowed; an error, or
        Ctrl-C, cancels its job. `vlmsearch.integrations.ray` does the same on a cluster.

        Returns:
            What was done, with each input that could not be used.

        Raises:
            ConfigError: A path does not exist or is not allowed, or there is nothing to index.
            InvalidInputError: An input cannot be used, and ``strict`` is set.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from pathlib import Path
            >>> from vlmsearch import Pipeline
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

    @abstractmethod
    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with their vectors.

        With a file of several documents, such as a PDF, all of its parts go.

        Args:
            ids: One id or several; those that are not there are ignored.

        Returns:
            How many were there.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
            ...     pipeline.delete(["a", "not there"])
            1
        """

    @abstractmethod
    def get(self, ids: str | Iterable[str]) -> list[Document]:
        """Return documents of the index.

        Args:
            ids: One id or several; those that are not there are left out.

        Returns:
            The documents, in the order of the ids. From a service, an image is a `RemoteImage`.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="a dog"))
            ...     [document.text for document in pipeline.get(["a", "b"])]
            ['a dog']
        """

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield all documents of the index, by id.

        Returns:
            The documents, read page by page. Those that others add or remove meanwhile may be among them or not.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("b", text="a car"), Document("a", text="a dog")])
            ...     [document.id for document in pipeline.documents()]
            ['a', 'b']
        """

    @abstractmethod
    def count(self) -> int:
        """Return the number of documents in the index.

        Returns:
            The number.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     pipeline.count()
            0
        """

    @verb(verbs.ThumbnailRequest)
    @abstractmethod
    def thumbnail(self, given: verbs.ThumbnailRequest) -> bytes:
        """Return the image of a document, scaled.

        Returns:
            The bytes of a JPEG.

        Raises:
            ConfigError: The document is not there, or has no image.
            InvalidInputError: Its image cannot be read.
            BackendError: The store or the service failed.

        Example:
            >>> from pathlib import Path
            >>> from vlmsearch import Document, Pipeline
            >>> import tempfile
            >>> from vlmsearch.demo.scenes import make_scene
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     make_scene(1).draw(256).save(path := Path(folder, "scene.png"))
            ...     with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...         _ = pipeline.add(Document("a", image=path))
            ...         len(pipeline.thumbnail("a", size=64)) > 0
            True
        """

    @verb(verbs.LabelRequest)
    @abstractmethod
    def label(self, given: verbs.LabelRequest) -> Iterator[DocumentLabels]:
        """Yield the documents with those of some labels that fit them.

        This needs no training.

        A document gets each label whose relevance reaches the threshold: the score that a search for the label would
        give it. Images are compared with the mean over the templates; texts and words with the label itself.

        With ``write`` each document has its labels in the index when it is yielded: ``key`` is the most relevant one,
        and ``KEY:LABEL`` the relevance of each, as in ``{"label": "cat", "label:cat": 0.97}``, so that
        ``where={"label:cat": {"$gte": 0.5}}`` filters on it. They take the place of all that an earlier run wrote
        under that key. Run it again after it was interrupted: what is written is not written again. Indexing the
        source of a document again keeps its labels while nothing else of it changes. To a service this is a job, whose
        end the first document waits for.

        Returns:
            The documents, in the order of their ids, as they are worked out.

        Raises:
            ConfigError: An option is wrong, or the source of a document has metadata under that key.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder, the store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
            ...     labelled = list(pipeline.label(["dog", "car"], write=True))
            ...     cars = pipeline.search("a", where={"label": "car"}, min_score=0)
            >>> [list(item.labels) for item in labelled], [match.document.id for match in cars]
            ([['dog'], ['car']], ['b'])
        """

    @verb(verbs.DescribeRequest)
    @abstractmethod
    def describe(self, given: verbs.DescribeRequest) -> DescribeReport:
        """Describe the pictures that have no text by the generator.

        Words and vectors find them then.

        A description becomes the text of its document. The metadata ``described_by`` name the model and a digest of the
        prompt, and tell it from a caption, which is never touched. Run it again after it was interrupted, or when
        pictures are new: those with a description of the same model and prompt are left as they are. Indexing a picture
        again keeps its description while the file does not change. A refusal, an empty text or a picture that is gone
        goes to the reject list. To a service this is a job.

        Returns:
            The numbers of the run.

        Raises:
            ConfigError: There is no generator, it sees no pictures, or an option is wrong.
            IndexMismatchError: Another encoder built the index.
            BackendError: A back end or the service failed. What was described is in the index.

        Example:
            >>> import tempfile
            >>> from vlmsearch import Document, Pipeline
            >>> from vlmsearch.demo.scenes import make_scene
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     make_scene(1).draw(64).save(f"{folder}/a.png")
            ...     with Pipeline.open(encoder="mock:", store="mock:", generator="mock:?pictures=1") as pipeline:
            ...         _ = pipeline.add(Document("a", image=f"{folder}/a.png"))
            ...         report = pipeline.describe()
            ...         text = pipeline.get("a")[0].text
            >>> report.described, text
            (1, 'A mock reply.')
        """

    @verb(verbs.DuplicatesRequest)
    @abstractmethod
    def duplicates(self, given: verbs.DuplicatesRequest) -> Duplicates:
        """Return the duplicate images of the index. Nothing is changed.

        Duplicates may be encoded again, scaled, turned by quarters, mirrored, or cropped by up to a fifth of each side.
        Light and colours may differ. A badge in a corner, a line of text or a frame may be added. The nearest images by
        vectors are compared pixel by pixel: their files have to exist.

        Returns:
            Groups of image files, and what could not be compared.

        Raises:
            ConfigError: An option is wrong, or the encoder encodes no images.
            IndexMismatchError: Another encoder built the index.
            BackendError: The store or the service failed.

        Example:
            >>> from pathlib import Path
            >>> from vlmsearch import Pipeline
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

    @verb(verbs.EvaluateRequest)
    @abstractmethod
    def evaluate(self, given: verbs.EvaluateRequest) -> Evaluation:
        """Measure how well the index answers queries whose answers are known: each field alone and all fused.

        Returns:
            What ``vlmsearch eval --json`` prints, which notebooks show with its plots.

        Raises:
            MissingDependencyError: ir-measures is not installed.
            VlmsearchError: As for `search`.
        """

    @verb(verbs.CheckRequest)
    @abstractmethod
    def check(self, given: verbs.CheckRequest) -> CheckReport:
        """Check that all parts of the store agree.

        Returns:
            What is in the store, and what is not in order.

        Raises:
            ConfigError: The store has nothing to check itself with.
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Document, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     _ = pipeline.add(Document("a", text="a dog"))
            ...     pipeline.check().clean
            True
        """

    @abstractmethod
    def info(self) -> Mapping[str, Any]:
        """Return what is in the index and what built it.

        Returns:
            What ``vlmsearch info --json`` prints; from a service also ``can``, what the token may do.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     pipeline.info()["documents"]
            0
        """

    @abstractmethod
    def rejects(self) -> list[Reject]:
        """Return the reject list of the index.

        Returns:
            The inputs that could not be used, by id; none where the store keeps no such list.

        Raises:
            BackendError: The store or the service failed.

        Example:
            >>> from vlmsearch import Document, InvalidInputError, Pipeline
            >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
            ...     try:
            ...         pipeline.add(Document("a", image=b"no image"))
            ...     except InvalidInputError:
            ...         print([reject.code for reject in pipeline.rejects()])
            ['unsupported']
        """


def _rejected(report: IndexReport) -> str:
    """Return which documents of a call cannot be used, in one line."""
    first = report.rejects[0]
    id = CONTROLS.sub("?", first.id)
    message = first.message if first.message.startswith(f"{id}: ") else f"{id}: {first.message}"
    if report.seen == 1:
        return f"the document cannot be used: {message}"
    return f"{len(report.rejects):,} of {report.seen:,} documents cannot be used; the first is {message}"


@verb(verbs.AddRequest)
def add_reported(index: Index, given: verbs.AddRequest) -> IndexReport:
    """Do what `Index.add` does, without its warning and its error: the caller reads the report."""
    return index._add(given)  # noqa: SLF001
