"""Zero-shot labels: which of some words each document of an index is likely to be about.

A label is asked for as a query is, with the words of a template around it. A document gets it if its relevance, the
score that a search would give it, reaches the threshold. See Radford et al., "Learning Transferable Visual Models From
Natural Language Supervision", ICML 2021, section 3.1. A relevance takes the place of a softmax over the labels, so a
document may have several of them or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vlmsearch._util.batching import pages
from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.tracing import encoding
from vlmsearch.errors import ConfigError
from vlmsearch.search import fusion
from vlmsearch.search.engine import relevance_of, row_ids_of
from vlmsearch.search.options import LabelRequest
from vlmsearch.search.query import PreparedQuery
from vlmsearch.search.relevance import Judge
from vlmsearch.stores.label_keys import split_labels, with_labels
from vlmsearch.types import Document, DocumentLabels, Field, MetadataChange, MetadataValue, Stamp, Vectors

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder

PHOTO_TEMPLATES = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
"""The short list of CLIP's authors for photographs, chosen on ImageNet among 80 templates: openai/CLIP, notebooks,
Prompt_Engineering_for_ImageNet.ipynb. It is not the default: relevance was fitted on queries as people write them."""
_DIGITS = 4


def label(judge: Judge, options: LabelRequest) -> Iterator[DocumentLabels]:
    """Yield each document with its labels, in the order of the ids.

    With ``write``, they are in the index by then. The ids are those of the beginning. A document that others change or
    delete meanwhile is not written to.
    """
    condition = options.condition
    sought = _encode(judge.encoder, options)
    if not judge.manifest.language:
        sought = {label: replace(asked, text="") for label, asked in sought.items()}
    done, left = 0, options.limit
    for ids in pages(sorted(judge.store.ids())):
        check_cancelled()
        page = judge.store.get(ids)
        documents = [document for document in page if condition is None or condition.matches(document.metadata)][:left]
        yield from _label_page(judge, documents, sought, options)
        done += len(ids)
        if options.on_progress:
            options.on_progress(done)
        left = None if left is None else left - len(documents)
        if left == 0:
            return


def _encode(encoder: Encoder, options: LabelRequest) -> dict[str, PreparedQuery]:
    """Return what each field is asked for, by label.

    Images for the mean over all templates, texts for the label itself.
    """
    if not options.labels:
        return {}
    forms = ("{}", *options.templates)
    texts = [form.replace("{}", label) for label in options.labels for form in forms]
    with encoding(encoder.fingerprint, "text", len(texts)):
        encoded = encoder.encode_texts(texts, role="query")
    sought: dict[str, PreparedQuery] = {}
    for place, label in enumerate(options.labels):
        start = place * len(forms)
        vectors: dict[Field, Vectors] = {}
        for field in fusion.text_fields(encoder.spaces):
            if field.space in encoded:
                rows = encoded[field.space][start : start + len(forms)]
                shown = [rows[i : i + 1] for i in range(1, len(forms))]
                vectors[field] = fusion.mean_of(shown) if field.modality == "image" else rows[:1]
        sought[label] = PreparedQuery(label, vectors, by_text=True)
    return sought


def _label_page(
    judge: Judge, documents: Sequence[Document], sought: Mapping[str, PreparedQuery], options: LabelRequest
) -> Iterator[DocumentLabels]:
    ids = [document.id for document in documents]
    rows = row_ids_of(judge.store, ids)
    stamps = judge.store.stamps(ids) if options.write else {}
    scores: dict[str, dict[str, float]] = {id: {} for id in ids}
    min_score = judge.threshold if options.min_score is None else options.min_score
    for label, asked in sought.items():
        check_cancelled()
        for id, score in relevance_of(judge, asked, rows).items():
            if score >= min_score:
                scores[id][label] = score
    ranked = {id: sorted(scored.items(), key=lambda pair: -pair[1]) for id, scored in scores.items()}
    labels = {id: dict(scored[:1] if options.single else scored) for id, scored in ranked.items()}
    written = _write(judge, documents, stamps, labels, options.key) if options.write else {}
    for document in documents:
        yield DocumentLabels(written.get(document.id, document), labels[document.id], document.id in written)


def _write(
    judge: Judge,
    documents: Sequence[Document],
    stamps: Mapping[str, Stamp],
    labels: Mapping[str, Mapping[str, float]],
    key: str,
) -> dict[str, Document]:
    """Put labels into the index where they are not there yet.

    Return the documents as they are in it from now on.
    """
    changes: list[MetadataChange] = []
    for document in documents:
        wanted = _relabelled(document, labels[document.id], key)
        if document.metadata != wanted and document.id in stamps:
            stamp = stamps[document.id]
            digest = with_labels(stamp.digest, split_labels(wanted)[1])
            changes.append(MetadataChange(document, stamp, wanted, digest))
    changed = set(judge.store.update_metadata(changes)) if changes else set()
    new = (replace(change.document, metadata=change.metadata) for change in changes)
    return {document.id: document for document in new if document.id in changed}


def _relabelled(document: Document, labels: Mapping[str, float], key: str) -> dict[str, MetadataValue]:
    """Return the metadata of a document with other labels under a key.

    ConfigError where its source uses that key.
    """
    own, others = split_labels(document.metadata)
    kept = {name: value for name, value in others.items() if name != key and not name.startswith(f"{key}:")}
    added: dict[str, MetadataValue] = {key: next(iter(labels))} if labels else {}
    added |= {f"{key}:{label}": round(score, _DIGITS) for label, score in labels.items()}
    taken = sorted(own.keys() & added.keys())
    if taken:
        raise ConfigError(f"the source of {document.id!r} has {taken[0]!r} in its metadata: choose another `key`")
    return {**own, **kept, **added}
