"""A long text with passages, as indexing makes them, where a test says what they are."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from vlmsearch.encoders.base import Encoder
from vlmsearch.types import Document, EncodedPassage, Field, Passage, Record, Scalar, Stamp

HEADINGS = ("", "Opening hours", "Keys")
PASSAGES = (
    "The garden has a pond with carps, and benches under the lime trees. " * 4,
    "The house is open from nine to five, on Sundays until noon. " * 4,
    "Ask the porter for a key of the gate. " * 9
    + "The emergency number of the plumber is 4471. "
    + "Bring back what you borrow. " * 5,
)
PARTS = tuple(zip(HEADINGS, PASSAGES))
"""A handbook: its middle is said nowhere else."""


def long_record(
    encoder: Encoder,
    id: str,
    parts: Sequence[tuple[str, str]] = PARTS,
    metadata: Mapping[str, Scalar] | None = None,
) -> Record:
    """The record of a document with these passages, each with its heading."""
    ends = list(accumulate(len(text) for _, text in parts))
    passages = [
        Passage(number, end - len(text), end, heading, text)
        for number, ((heading, text), end) in enumerate(zip(parts, ends), 1)
    ]
    by_space = encoder.encode_texts([passage.encoded for passage in passages])
    encoded = tuple(
        EncodedPassage(passage, {Field(space, "text"): rows[n] for space, rows in by_space.items()})
        for n, passage in enumerate(passages)
    )
    document = Document(id, "".join(text for _, text in parts), metadata=metadata)
    return Record(document, {}, Stamp("long", id), encoder.fingerprint, encoded)
