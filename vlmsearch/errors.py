"""Every error that vlmsearch raises on purpose.

- VlmsearchError
    - ConfigError (ValueError): a URL, an option or a recipe is wrong
    - MissingDependencyError (ImportError): an extra is not installed
    - InvalidInputError (ValueError): an image or a text cannot be used
        - InvalidBatchError: some items of a batch cannot be used
    - IndexMismatchError (ValueError): the index was built with another model
    - ModelUnavailableError (RuntimeError): weights are not here and cannot be fetched
    - QualityError (RuntimeError): a built model fell below its gate
    - BackendError (RuntimeError): a back end failed
        - BackendUnavailableError: it was not reached, or timed out: retrying may help
            - OverloadedError: too many calls are waiting
    - OperationCancelledError: the caller gave the call up

Each message says what was given, what is possible and what to do; an argument is written as `name`, which the command
line replaces with its flag. Anything else that escapes is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")

ERRNO = re.compile(r"\[Errno -?\d+\] ")
"""The number of an error of the operating system, which tells a reader nothing."""
_NAMED = 3
"""Items of a batch that the message names, of many that cannot be used."""

RejectCode = Literal[
    "corrupt", "truncated", "too_large", "too_long", "unsupported", "empty", "unreadable", "invalid", "timeout"
]
"""The reason why an input cannot be used: see `InvalidInputError`."""


class VlmsearchError(Exception):
    """The root of all errors that vlmsearch raises on purpose.

    Example:
        >>> from vlmsearch import Pipeline
        >>> try:
        ...     Pipeline.open(encoder="onyx:demo")
        ... except VlmsearchError as exc:
        ...     print(type(exc).__name__, "onyx:" in str(exc))
        ConfigError True
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Return what pickle and copy need: the arguments of an `__init__` are not those of the message."""
        reduced: Any = super().__reduce__()
        cause = self.__cause__
        if cause is not None and not isinstance(cause, VlmsearchError):
            cause = RuntimeError(repr(cause))  # errors of other packages often cannot be pickled
        attributes = reduced[2] if len(reduced) > 2 else {}
        return _restore, (type(self), self.args), {**attributes, "__cause__": cause}


def _restore(kind: type[VlmsearchError], args: tuple[object, ...]) -> VlmsearchError:
    """Return an error with a message; pickle sets its attributes."""
    error = kind.__new__(kind, *args)
    super(VlmsearchError, error).__init__(*args)
    return error


class ConfigError(VlmsearchError, ValueError):
    """A URL, an option, a filter or a recipe is wrong.

    The message says what there is instead.

    Example:
        >>> from vlmsearch import GenerationOptions
        >>> GenerationOptions(top_p=2)
        Traceback (most recent call last):
        vlmsearch.errors.ConfigError: `top_p` is above 0 and at most 1, not 2
    """


class MissingDependencyError(VlmsearchError, ImportError):
    """An optional package is not installed; the message ends with the ``pip install`` that brings it."""


class InvalidInputError(VlmsearchError, ValueError):
    """An image or a text cannot be used.

    ``code`` is the reason in one word:

    - ``corrupt``: it is damaged.
    - ``truncated``: its end is missing.
    - ``too_large``: it has more pixels, bytes or metadata than allowed.
    - ``too_long``: it has more characters than allowed.
    - ``unsupported``: its format cannot be read.
    - ``empty``: it has no content.
    - ``unreadable``: the operating system refused.
    - ``invalid``: it is an id, a string or metadata that back ends cannot take.
    - ``timeout``: reading it took too long.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     try:
        ...         pipeline.add(Document("a", image=b"no image"), strict=True)
        ...     except InvalidInputError as exc:
        ...         exc.code
        'unsupported'
    """

    def __init__(self, code: RejectCode, message: str) -> None:
        super().__init__(message)
        self.code: RejectCode = code


class InvalidBatchError(InvalidInputError):
    """Some items of a batch cannot be used; all of them are named at once.

    Attributes:
        items: Why an item cannot be used, by its position in the batch, in ascending order; never empty.
        vectors: By space, the vectors of the other items in their order, where an encoder computed them: float32 of
            shape (good items, dim). None where the bad items were found before anything was computed, so that
            encoding the others computes nothing twice.
        code: That of the first bad item.

    Example:
        >>> error = InvalidBatchError({2: InvalidInputError("empty", "'cat.jpg' is empty: 0 bytes")})
        >>> error.code, sorted(error.items), str(error)
        ('empty', [2], "'cat.jpg' is empty: 0 bytes")
    """

    def __init__(
        self, items: Mapping[int, InvalidInputError], vectors: Mapping[str, NDArray[float32]] | None = None
    ) -> None:
        self.items = {item: items[item] for item in sorted(items)}
        self.vectors = vectors
        errors = list(self.items.values())
        message = str(errors[0])
        if len(errors) > 1:
            named = [f"item {item}: {error}" for item, error in list(self.items.items())[:_NAMED]]
            named += [f"and {len(errors) - _NAMED} more"] if len(errors) > _NAMED else []
            message = f"{len(errors)} items cannot be used: {'; '.join(named)}"
        super().__init__(errors[0].code, message)


def apply_to_each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what a function makes of each item of a batch.

    Args:
        function: Takes one item; raises InvalidInputError for one that cannot be used.
        items: The batch.

    Returns:
        The results, in the order of the items.

    Raises:
        InvalidBatchError: The function refused some of the items.

    >>> apply_to_each(str.upper, ["dog", "cat"])
    ['DOG', 'CAT']
    """
    results, bad = [], {}
    for item, value in enumerate(items):
        try:
            results.append(function(value))
        except InvalidInputError as exc:
            bad[item] = exc
    if bad:
        raise InvalidBatchError(bad)
    return results


class IndexMismatchError(VlmsearchError, ValueError):
    """The index was built with another model; the message names both and the command that rebuilds.

    Example:
        >>> from vlmsearch import Space
        >>> from vlmsearch.registry import open_store
        >>> spaces = [Space("clip", 512, frozenset({"text", "image"}))]
        >>> with open_store("mock:") as store:
        ...     store.bind("clip:1", spaces)
        ...     try:
        ...         store.bind("clip:2", spaces)
        ...     except IndexMismatchError as exc:
        ...         "built with clip:1, not with clip:2" in str(exc)
        True
    """


class ModelUnavailableError(VlmsearchError, RuntimeError):
    """Weights are not on this machine and cannot be fetched.

    The message says what to run and what works offline.
    """


class QualityError(VlmsearchError, RuntimeError):
    """A built model fell below its quality gate; the message gives the figures."""


class BackendError(VlmsearchError, RuntimeError):
    """A back end failed; ``__cause__`` is its own error."""


class BackendUnavailableError(BackendError):
    """A back end was not reached or timed out; trying again may help.

    Attributes:
        retry_after: Seconds after which to try again, where the back end says so; else 0.

    Example:
        >>> error = BackendUnavailableError("the server is restarting", retry_after=5)
        >>> str(error), error.retry_after
        ('the server is restarting', 5)
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OverloadedError(BackendUnavailableError):
    """More is waiting than is accepted, or was waiting for too long; nothing was done."""


class OperationCancelledError(VlmsearchError):
    """The caller gave the call up before it was done.

    It ends the work in its threads. Who awaits `AsyncPipeline` gets asyncio's own CancelledError.
    """


def one_line(exc: BaseException, max_chars: int = 200) -> str:
    """Return an exception's message on one line, or else its type.

    It has at most ``max_chars`` characters, and no number of an error of the operating system.

    >>> one_line(ConnectionRefusedError(111, "Connection refused"))
    'Connection refused'
    """
    return " ".join(ERRNO.sub("", str(exc)).split())[:max_chars] or type(exc).__name__


class TextTruncatedWarning(UserWarning):
    """A query was longer than a model reads, and its end was not used.

    Example:
        >>> import warnings
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("mock:") as encoder, warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = encoder.encode_texts(["word " * 1000], role="query")
        >>> caught[0].category.__name__
        'TextTruncatedWarning'
    """


class RejectedDocumentsWarning(UserWarning):
    """Some documents of a call of `Index.add` could not be used.

    The others are in the index.

    Example:
        >>> import warnings
        >>> from vlmsearch import Document, Pipeline
        >>> pipeline = Pipeline.open(encoder="mock:", store="mock:")
        >>> with pipeline, warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = pipeline.add([Document("a", text="a dog"), Document("b", image=b"no image")])
        >>> caught[0].category.__name__
        'RejectedDocumentsWarning'
    """


class UncalibratedWarning(UserWarning):
    """An index holds documents that its model is not made for.

    Scores are no probabilities then.

    A pipeline warns once, after it indexed or searched; `Matches.uncalibrated` has the reasons.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", UncalibratedWarning)  # for an application that would rather stop
    """
