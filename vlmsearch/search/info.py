"""What is in an index and what built it, as ``vlmsearch info --json`` and the server say it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vlmsearch.search.fusion import text_fields
from vlmsearch.search.relevance import SAMPLE, THRESHOLD
from vlmsearch.stores.base import Describable, RejectList, Store, WordSearch
from vlmsearch.types import MIN_SCORE, Field, Manifest, Modality

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.domain import Domain


def index_info(
    store: Store, manifest: Manifest, domains: Mapping[tuple[str, Modality], Domain] | None = None
) -> dict[str, object]:
    """Return what is known of an index, in the form of JSON.

    Args:
        store: Where it is.
        manifest: What built it.
        domains: Those of its encoder; by default those of the models that are on this machine.

    Returns:
        Its store, how many documents and passages of long texts it has, its spaces, and how it is searched;
        ``files`` is how many documents are no parts of files;
        ``rejected`` is how many inputs are in reject list, by code, and None where the store keeps no such list.
        ``domains`` says what each field's model is made for, and ``uncalibrated`` why scores of a field are no
        probabilities.
    """
    bundles = _bundles_of(manifest)
    domains = _domains_of(bundles.values(), manifest) if domains is None else domains
    by_field = {Field(*key): domain for key, domain in domains.items()}
    verdicts = {
        str(field): domain.verdict(store.sample(field, SAMPLE), field.modality) for field, domain in by_field.items()
    }
    codes = Counter(reject.code for reject in store.rejects()) if isinstance(store, RejectList) else None
    ranks_words = isinstance(store, WordSearch) and bool(manifest.language)
    return {
        "store": store.name,
        "documents": len(store),
        "files": store.count_files(),
        "passages": store.count_passages(),
        **(store.describe() if isinstance(store, Describable) else {}),
        "fingerprint": manifest.fingerprint,
        "created": manifest.created,
        "spaces": [{"name": s.name, "dim": s.dim, "modalities": sorted(s.modalities)} for s in manifest.spaces],
        "words": manifest.language if ranks_words else None,
        "tuning": dict(manifest.tuning),
        "relevance": _relevance_bases(manifest, bundles),
        "domains": {str(field): domain.name for field, domain in by_field.items()},
        "uncalibrated": {name: reason for name, reason in verdicts.items() if reason is not None},
        "threshold": manifest.tuning.get(MIN_SCORE, THRESHOLD),
        "rejected": None if codes is None else dict(sorted(codes.items())),
    }


def _bundles_of(manifest: Manifest) -> dict[str, Bundle]:
    """Return the models of an index that are on this machine, by space."""
    from vlmsearch.models.bundle import DamagedBundleWarning, built_bundles

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedBundleWarning)
        known = {bundle.fingerprint: bundle for bundle in built_bundles()}
    built = [known[whole] for part in manifest.fingerprint.split("+") if (whole := part.partition("/")[0]) in known]
    return {bundle.space.name: bundle for bundle in built}


def _domains_of(bundles: Iterable[Bundle], manifest: Manifest) -> dict[tuple[str, Modality], Domain]:
    """Return the domains of models whose vectors the index has as they are, and not cut."""
    from vlmsearch.models.domain import domain_modality, open_domain

    whole = [bundle for bundle in bundles if bundle.space in manifest.spaces]
    opened = {(bundle.space.name, domain_modality(bundle)): open_domain(bundle) for bundle in whole}
    return {key: domain for key, domain in opened.items() if domain is not None}


def _relevance_bases(manifest: Manifest, bundles: Mapping[str, Bundle]) -> dict[str, str]:
    """Return how the cosines of a text with each field become relevance."""
    dims = {space.name: space.dim for space in manifest.spaces}
    bases = {}
    for field in text_fields(manifest.spaces):
        bundle = bundles.get(field.space)
        if bundle is None:
            bases[str(field)] = "as its encoder says, which is not on this machine"
        elif bundle.space.dim != dims[field.space]:
            bases[str(field)] = "by how far a cosine stands out from those of the index; the fit is of whole vectors"
        elif field.modality not in bundle.relevance:
            bases[str(field)] = "by how far a cosine stands out from those of the index; nothing was fitted"
        else:
            bases[str(field)] = f"fitted on labelled pairs{_figures(bundle.measured.get('relevance'), field.modality)}"
    return bases


def _figures(measured: object, modality: str) -> str:
    """Return what was measured of a fit on pairs that it was not made from."""
    figures = measured.get(modality) if isinstance(measured, Mapping) else None
    if not isinstance(figures, Mapping):
        return ""
    error, precision = (figures.get(name) for name in ("calibration_error", "precision"))
    return f", with a calibration error of {error} and a precision of {precision}"
