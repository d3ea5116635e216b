"""Multimodal retrieval with pluggable back ends: what an application and a back end import.

`Pipeline` indexes, searches and answers. Its parts are an `Encoder`, a `Store`, a `Generator` and a `Reranker`: the
built-in ones, opened by URLs, or classes of one's own. Everything else is a value that they take or give, or an
error that they raise. Protocols name what only some back ends can do.

Example:
    >>> from vlmsearch import Document, Pipeline
    >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
    ...     report = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
    ...     pipeline.search("dog snow", limit=1)[0].document.id
    'a'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlmsearch.answers.stream import (
        AnswerStream as AnswerStream,
    )
    from vlmsearch.async_pipeline import (
        AsyncAnswerStream as AsyncAnswerStream,
        AsyncPipeline as AsyncPipeline,
    )
    from vlmsearch.client import (
        RemoteAnswerStream as RemoteAnswerStream,
        RemotePipeline as RemotePipeline,
        connect as connect,
    )
    from vlmsearch.encoders.base import (
        BatchSizes as BatchSizes,
        Encoder as Encoder,
        MeasuresTexts as MeasuresTexts,
        PreparesImages as PreparesImages,
        TakesPrompts as TakesPrompts,
        TokenizesTexts as TokenizesTexts,
    )
    from vlmsearch.encoders.batching import (
        Batch as Batch,
        BatchingEncoder as BatchingEncoder,
        BatchingStats as BatchingStats,
    )
    from vlmsearch.errors import (
        BackendError as BackendError,
        BackendUnavailableError as BackendUnavailableError,
        ConfigError as ConfigError,
        IndexMismatchError as IndexMismatchError,
        InvalidBatchError as InvalidBatchError,
        InvalidInputError as InvalidInputError,
        MissingDependencyError as MissingDependencyError,
        ModelUnavailableError as ModelUnavailableError,
        OperationCancelledError as OperationCancelledError,
        OverloadedError as OverloadedError,
        QualityError as QualityError,
        RejectCode as RejectCode,
        RejectedDocumentsWarning as RejectedDocumentsWarning,
        TextTruncatedWarning as TextTruncatedWarning,
        UncalibratedWarning as UncalibratedWarning,
        VlmsearchError as VlmsearchError,
    )
    from vlmsearch.generators.base import (
        CountsTokens as CountsTokens,
        GenerationOptions as GenerationOptions,
        Generator as Generator,
        HasLikelihoods as HasLikelihoods,
        Picture as Picture,
        PictureOptions as PictureOptions,
        PicturesRefusedError as PicturesRefusedError,
        QuotesSources as QuotesSources,
        SeesPictures as SeesPictures,
    )
    from vlmsearch.index import (
        Index as Index,
    )
    from vlmsearch.indexing.given import (
        ArrowTable as ArrowTable,
        DocumentInput as DocumentInput,
    )
    from vlmsearch.indexing.items import (
        SourceOptions as SourceOptions,
    )
    from vlmsearch.indexing.sources import (
        Paths as Paths,
    )
    from vlmsearch.media.limits import (
        ImageLimits as ImageLimits,
    )
    from vlmsearch.models.domain import (
        Domain as Domain,
    )
    from vlmsearch.pipeline import (
        Pipeline as Pipeline,
    )
    from vlmsearch.rerankers.base import (
        Reranker as Reranker,
    )
    from vlmsearch.search.curves import (
        Evaluation as Evaluation,
    )
    from vlmsearch.search.explanation import (
        Explanation as Explanation,
        FieldEvidence as FieldEvidence,
        Outcome as Outcome,
        PassageEvidence as PassageEvidence,
        Regions as Regions,
        WordEvidence as WordEvidence,
    )
    from vlmsearch.search.judged import (
        JudgedQuery as JudgedQuery,
    )
    from vlmsearch.search.options import (
        ManyKeywords as ManyKeywords,
        RankingKeywords as RankingKeywords,
        SearchKeywords as SearchKeywords,
        SearchOptions as SearchOptions,
    )
    from vlmsearch.search.query import (
        Query as Query,
    )
    from vlmsearch.search.relevance import (
        Basis as Basis,
    )
    from vlmsearch.stores.base import (
        Checkable as Checkable,
        CheckReport as CheckReport,
        CountsWords as CountsWords,
        Describable as Describable,
        DiskUse as DiskUse,
        OnDisk as OnDisk,
        RejectList as RejectList,
        Replaceable as Replaceable,
        Store as Store,
        Tunable as Tunable,
        WordSearch as WordSearch,
    )
    from vlmsearch.stores.filters import (
        Comparison as Comparison,
        Filter as Filter,
        FilterGroup as FilterGroup,
        Operator as Operator,
    )
    from vlmsearch.types import (
        Answer as Answer,
        AnswerParts as AnswerParts,
        Citation as Citation,
        DescribeReport as DescribeReport,
        Document as Document,
        DocumentLabels as DocumentLabels,
        DuplicateGroup as DuplicateGroup,
        Duplicates as Duplicates,
        EncodedPassage as EncodedPassage,
        Field as Field,
        FieldScore as FieldScore,
        Hit as Hit,
        ImageFile as ImageFile,
        ImageInput as ImageInput,
        ImageSource as ImageSource,
        IndexReport as IndexReport,
        Manifest as Manifest,
        Match as Match,
        Matches as Matches,
        MetadataChange as MetadataChange,
        MetadataValue as MetadataValue,
        Modality as Modality,
        Part as Part,
        Passage as Passage,
        Reading as Reading,
        ReadText as ReadText,
        Record as Record,
        Reject as Reject,
        RelevanceFit as RelevanceFit,
        RemoteImage as RemoteImage,
        Role as Role,
        Scalar as Scalar,
        Space as Space,
        Stamp as Stamp,
        Vectors as Vectors,
        WordHits as WordHits,
        document_of as document_of,
        part_of as part_of,
    )

__version__ = "0.2.0"

_HOMES = {
    "answers.stream": "AnswerStream",
    "async_pipeline": "AsyncAnswerStream AsyncPipeline",
    "client": "RemoteAnswerStream RemotePipeline connect",
    "encoders.base": "BatchSizes Encoder MeasuresTexts PreparesImages TakesPrompts TokenizesTexts",
    "encoders.batching": "Batch BatchingEncoder BatchingStats",
    "errors": (
        "BackendError BackendUnavailableError ConfigError IndexMismatchError InvalidBatchError InvalidInputError "
        "MissingDependencyError ModelUnavailableError OperationCancelledError OverloadedError QualityError RejectCode "
        "RejectedDocumentsWarning TextTruncatedWarning UncalibratedWarning VlmsearchError"
    ),
    "generators.base": "CountsTokens GenerationOptions Generator HasLikelihoods Picture PictureOptions "
    "PicturesRefusedError QuotesSources SeesPictures",
    "index": "Index",
    "indexing.given": "ArrowTable DocumentInput",
    "indexing.items": "SourceOptions",
    "indexing.sources": "Paths",
    "media.limits": "ImageLimits",
    "models.domain": "Domain",
    "pipeline": "Pipeline",
    "rerankers.base": "Reranker",
    "search.curves": "Evaluation",
    "search.explanation": "Explanation FieldEvidence Outcome PassageEvidence Regions WordEvidence",
    "search.judged": "JudgedQuery",
    "search.options": "ManyKeywords RankingKeywords SearchKeywords SearchOptions",
    "search.query": "Query",
    "search.relevance": "Basis",
    "stores.base": (
        "Checkable CheckReport CountsWords Describable DiskUse OnDisk RejectList Replaceable Store Tunable WordSearch"
    ),
    "stores.filters": "Comparison Filter FilterGroup Operator",
    "types": (
        "Answer AnswerParts Citation DescribeReport Document DuplicateGroup Duplicates EncodedPassage Field FieldScore "
        "Hit ImageFile ImageInput ImageSource IndexReport DocumentLabels Manifest Match Matches MetadataChange "
        "MetadataValue Modality Part Passage ReadText Reading Record Reject RelevanceFit RemoteImage Role Scalar Space "
        "Stamp Vectors WordHits document_of part_of"
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
"""The module of each name. `import vlmsearch` loads only what is used: a client takes no numpy."""
__all__ = [*_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """Return what is exported, from the module that it is written in: loaded when it is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what there is, loaded or not."""
    return sorted({*globals(), *__all__})
