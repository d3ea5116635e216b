"""The arguments of the verb that describes pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vlmsearch._util.options import bounded, local, several, short
from vlmsearch._util.plain import MAX_KEY_CHARS
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.search.options import FilterOptions
from vlmsearch.types import READERS, check_metadata

PROMPT = "Describe the picture."
"""The prompt of a description; the first sentence of the answer is kept."""
FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "whole": (int,),
    "yes-no": (bool,),
    "any": (str, int, float, bool),
}
"""The values of a field, by the name of its type."""
_PROMPT_CHARS = 2**15


@dataclass(frozen=True, kw_only=True)
class DescribeRequest(FilterOptions):
    """The arguments of `Index.describe`.

    Attributes:
        prompt: Question to the generator; by default for a sentence.
        fields: Keys of metadata to fill instead of the text, such as ``["colour", "count:whole"]``. The types are
            ``text``, ``number``, ``whole`` and ``yes-no``; without one, any of them. Answers of another form are
            rejected. Documents with texts are looked at, too.
        where: Filter on metadata. Documents that do not pass are left as they are.
        limit: Maximum number of pictures; None for all.
        concurrency: Pictures at once, for a generator on a server.
        retry_rejects: Try pictures again that are on the reject list.
        dry_run: Look at three pictures, write nothing, and say how long the rest will take.
        on_progress: Function that is called with the number of documents that were looked at.
    """

    prompt: str | None = short(None, _PROMPT_CHARS)
    fields: Sequence[str] = several((), 100, MAX_KEY_CHARS + 10)
    limit: int | None = bounded(None, minimum=1)
    concurrency: int = bounded(1, minimum=1, maximum=32)
    retry_rejects: bool = False
    dry_run: bool = False
    on_progress: Callable[[int], None] | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt is not None and not self.prompt.strip():
            raise ConfigError("the `prompt` is empty")
        if READERS in self.schema:
            raise ConfigError(f"`fields` has {READERS!r}, which says who may read a document: no model fills it")
        try:
            check_metadata(dict.fromkeys(self.schema, ""))
        except InvalidInputError as exc:
            raise ConfigError(f"`fields` are keys of metadata: {exc}") from exc

    @property
    def schema(self) -> dict[str, str]:
        """Return the type of each field; ConfigError for one that there is not."""
        types = {}
        for field in self.fields:
            name, separator, kind = field.partition(":")
            types[name.strip()] = kind.strip() if separator else "any"
        for name, kind in types.items():
            if kind not in FIELD_TYPES:
                raise ConfigError(f"the field {name!r} has the type {kind!r}: there is {', '.join(FIELD_TYPES)}")
        return types

    @property
    def question(self) -> str:
        """Return what the generator is asked, without a picture."""
        if not self.fields:
            return self.prompt or PROMPT
        keys = "; ".join(f'"{name}"' + ("" if kind == "any" else f" ({kind})") for name, kind in self.schema.items())
        asked = f"{self.prompt.rstrip()} " if self.prompt else "Look at the picture. "
        return f"{asked}Answer with one JSON object and nothing else. Its keys are: {keys}."
