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
    from vlmsearch.answers.stream import AnswerStream
    from vlmsearch.async_pipeline import AsyncAnswerStream, AsyncPipeline
    from vlmsearch.client import RemoteAnswerStream, RemotePipeline, connect
    from vlmsearch.encoders.base import BatchSizes, Encoder, PreparesImages, TokenizesTexts
    from vlmsearch.encoders.batching import Batch, BatchingEncoder, BatchingStats
    from vlmsearch.errors import (
        BackendError,
        BackendUnavailableError,
        ConfigError,
        IndexMismatchError,
        InvalidBatchError,
        InvalidInputError,
        MissingDependencyError,
        ModelUnavailableError,
        OperationCancelledError,
        OverloadedError,
        QualityError,
        RejectCode,
        RejectedDocumentsWarning,
        TextTruncatedWarning,
        UncalibratedWarning,
        VlmsearchError,
    )
    from vlmsearch.generators.base import (
        CountsTokens,
        GenerationOptions,
        Generator,
        HasLikelihoods,
        HasPromptTemplate,
        Picture,
        PictureOptions,
        PicturesRefusedError,
        SeesPictures,
    )
    from vlmsearch.index import Index
    from vlmsearch.indexing.given import ArrowTable, DocumentInput
    from vlmsearch.indexing.items import SourceOptions
    from vlmsearch.indexing.sources import Paths
    from vlmsearch.media.limits import ImageLimits
    from vlmsearch.models.domain import Domain
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.rerankers.base import Reranker
    from vlmsearch.search.curves import Evaluation
    from vlmsearch.search.explanation import Explanation, FieldEvidence, Outcome, PassageEvidence, Regions, WordEvidence
    from vlmsearch.search.judged import JudgedQuery
    from vlmsearch.search.options import ManyKeywords, RankingKeywords, SearchKeywords, SearchOptions
    from vlmsearch.search.query import Query
    from vlmsearch.search.relevance import Basis
    from vlmsearch.stores.base import (
        Checkable,
        CheckReport,
        Describable,
        DiskUse,
        OnDisk,
        RejectList,
        Replaceable,
        Store,
        Tunable,
        WordSearch,
    )
    from vlmsearch.stores.filters import Comparison, Filter, FilterGroup, Operator
    from vlmsearch.types import (
        Answer,
        AnswerParts,
        Citation,
        DescribeReport,
        Document,
        DocumentLabels,
        DuplicateGroup,
        Duplicates,
        Field,
        FieldScore,
        Hit,
        ImageFile,
        ImageInput,
        ImageSource,
        IndexReport,
        Manifest,
        Match,
        Matches,
        MetadataChange,
        Modality,
        Part,
        Reading,
        Record,
        Reject,
        RelevanceFit,
        RemoteImage,
        Role,
        Scalar,
        Space,
        Stamp,
        Vectors,
        WordHits,
        part_of,
    )

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "AnswerParts",
    "AnswerStream",
    "ArrowTable",
    "AsyncAnswerStream",
    "AsyncPipeline",
    "BackendError",
    "BackendUnavailableError",
    "Basis",
    "Batch",
    "BatchSizes",
    "BatchingEncoder",
    "BatchingStats",
    "CheckReport",
    "Checkable",
    "Citation",
    "Comparison",
    "ConfigError",
    "CountsTokens",
    "Describable",
    "DescribeReport",
    "DiskUse",
    "Document",
    "DocumentInput",
    "DocumentLabels",
    "Domain",
    "DuplicateGroup",
    "Duplicates",
    "Encoder",
    "Evaluation",
    "Explanation",
    "Field",
    "FieldEvidence",
    "FieldScore",
    "Filter",
    "FilterGroup",
    "GenerationOptions",
    "Generator",
    "HasLikelihoods",
    "HasPromptTemplate",
    "Hit",
    "ImageFile",
    "ImageInput",
    "ImageLimits",
    "ImageSource",
    "Index",
    "IndexMismatchError",
    "IndexReport",
    "InvalidBatchError",
    "InvalidInputError",
    "JudgedQuery",
    "Manifest",
    "ManyKeywords",
    "Match",
    "Matches",
    "MetadataChange",
    "MissingDependencyError",
    "Modality",
    "ModelUnavailableError",
    "OnDisk",
    "OperationCancelledError",
    "Operator",
    "Outcome",
    "OverloadedError",
    "Part",
    "PassageEvidence",
    "Paths",
    "Picture",
    "PictureOptions",
    "PicturesRefusedError",
    "Pipeline",
    "PreparesImages",
    "QualityError",
    "Query",
    "RankingKeywords",
    "Reading",
    "Record",
    "Regions",
    "Reject",
    "RejectCode",
    "RejectList",
    "RejectedDocumentsWarning",
    "RelevanceFit",
    "RemoteAnswerStream",
    "RemoteImage",
    "RemotePipeline",
    "Replaceable",
    "Reranker",
    "Role",
    "Scalar",
    "SearchKeywords",
    "SearchOptions",
    "SeesPictures",
    "SourceOptions",
    "Space",
    "Stamp",
    "Store",
    "TextTruncatedWarning",
    "TokenizesTexts",
    "Tunable",
    "UncalibratedWarning",
    "Vectors",
    "VlmsearchError",
    "WordEvidence",
    "WordHits",
    "WordSearch",
    "connect",
    "part_of",
]

_HOMES = {
    "answers.stream": "AnswerStream",
    "async_pipeline": "AsyncAnswerStream AsyncPipeline",
    "client": "RemoteAnswerStream RemotePipeline connect",
    "encoders.base": "BatchSizes Encoder PreparesImages TokenizesTexts",
    "encoders.batching": "Batch BatchingEncoder BatchingStats",
    "errors": (
        "BackendError BackendUnavailableError ConfigError IndexMismatchError InvalidBatchError InvalidInputError "
        "MissingDependencyError ModelUnavailableError OperationCancelledError OverloadedError QualityError RejectCode "
        "RejectedDocumentsWarning TextTruncatedWarning UncalibratedWarning VlmsearchError"
    ),
    "generators.base": "CountsTokens GenerationOptions Generator HasLikelihoods HasPromptTemplate Picture "
    "PictureOptions PicturesRefusedError SeesPictures",
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
    "stores.base": "Checkable CheckReport Describable DiskUse OnDisk RejectList Replaceable Store Tunable WordSearch",
    "stores.filters": "Comparison Filter FilterGroup Operator",
    "types": (
        "Answer AnswerParts Citation DescribeReport Document DuplicateGroup Duplicates Field FieldScore Hit ImageFile "
        "ImageInput ImageSource IndexReport DocumentLabels Manifest Match Matches MetadataChange Modality Part Reading "
        "Record Reject RelevanceFit RemoteImage Role Scalar Space Stamp Vectors WordHits part_of"
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
"""The module of each name. `import vlmsearch` loads only what is used: a client takes no numpy."""


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
