"""What is in an index and what built it, as ``vlmsearch info --json`` and the server say it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

from vlmsearch.search.fusion import text_fields
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.base import Described, RejectList, Store, WordSearch
from vlmsearch.types import MIN_SCORE, Manifest


def index_info(store: Store, manifest: Manifest) -> dict[str, object]:
    """Return what is known of an index, in the form of JSON.

    Args:
        store: Where it is.
        manifest: What built it.

    Returns:
        Its store, how many documents it has, its spaces, and how it is searched; ``rejected`` is how many inputs are in
        reject list, by code, and None where the store keeps no such list.
    """
    codes = Counter(reject.code for reject in store.rejects()) if isinstance(store, RejectList) else None
    ranks_words = isinstance(store, WordSearch) and bool(manifest.language)
    return {
        "store": store.name,
        "documents": len(store),
        **(store.describe() if isinstance(store, Described) else {}),
        "fingerprint": manifest.fingerprint,
        "created": manifest.created,
        "spaces": [{"name": s.name, "dim": s.dim, "modalities": sorted(s.modalities)} for s in manifest.spaces],
        "words": manifest.language if ranks_words else None,
        "tuning": dict(manifest.tuning),
        "relevance": relevance_bases(manifest),
        "threshold": manifest.tuning.get(MIN_SCORE, THRESHOLD),
        "rejected": None if codes is None else dict(sorted(codes.items())),
    }


def relevance_bases(manifest: Manifest) -> dict[str, str]:
    """Return how the cosines of a text with each field become relevance, by the models that are on this machine."""
    from vlmsearch.models.bundle import DamagedBundleWarning, built_bundles

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedBundleWarning)
        known = {bundle.fingerprint: bundle for bundle in built_bundles()}
    built = [known[whole] for part in manifest.fingerprint.split("+") if (whole := part.partition("/")[0]) in known]
    bundles = {bundle.space.name: bundle for bundle in built}
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
