"""``vlmsearch info``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

import click

from vlmsearch.cli.common import command, json_option, need_manifest, option, print_json, store_option
from vlmsearch.registry import open_store
from vlmsearch.search.fusion import text_fields
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.base import Described, Quarantine, WordSearch
from vlmsearch.types import MIN_SCORE, Manifest


@command()
@store_option
@option("--rejects", is_flag=True, help="List the quarantined files.")
@json_option
def info(store: str, rejects: bool, as_json: bool) -> None:
    """Show what is in an index and what built it."""
    with open_store(store) as opened:
        manifest = need_manifest(opened)
        quarantine = opened.rejects() if isinstance(opened, Quarantine) else None
        count = len(opened)
        ranks_words = isinstance(opened, WordSearch)
        details = opened.describe() if isinstance(opened, Described) else {}
    codes = None if quarantine is None else dict(sorted(Counter(reject.code for reject in quarantine).items()))
    if as_json:
        listed = [{"id": r.id, "code": r.code, "message": r.message} for r in quarantine or ()]
        print_json(
            {
                "store": opened.name,
                "documents": count,
                **details,
                "fingerprint": manifest.fingerprint,
                "created": manifest.created,
                "spaces": [{"name": s.name, "dim": s.dim, "modalities": sorted(s.modalities)} for s in manifest.spaces],
                "words": manifest.language if ranks_words and manifest.language else None,
                "tuning": dict(manifest.tuning),
                "relevance": _relevance(manifest),
                "threshold": manifest.tuning.get(MIN_SCORE, THRESHOLD),
                "failed": codes,
                **({"rejects": listed} if rejects else {}),
            }
        )
        return
    click.echo(f"store       {opened.name}")
    click.echo(f"documents   {count}")
    for name, value in details.items():
        click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {manifest.fingerprint}, {manifest.created}")
    for space in manifest.spaces:
        click.echo(f"space       {space.name}: {' and '.join(sorted(space.modalities))}, {space.dim} dimensions")
    words = manifest.language or "not ranked by this index"
    click.echo(f"words       {words if ranks_words else 'not ranked by this store'}")
    for field, basis in _relevance(manifest).items():
        click.echo(f"relevance   {field}: {basis}")
    click.echo(f"threshold   {manifest.tuning.get(MIN_SCORE, THRESHOLD):g}")
    if manifest.tuning:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in manifest.tuning.items())}")
    failed = "not kept by this store" if codes is None else ", ".join(f"{n} {code}" for code, n in codes.items())
    click.echo(f"failed      {failed or 'none'}")
    for reject in quarantine or () if rejects else ():
        click.echo(f"  {reject.code:<12} {reject.message}")


def _relevance(manifest: Manifest) -> dict[str, str]:
    """How the cosines of a text with each field become relevance, by the models that are on this machine."""
    from vlmsearch.models.bundle import DamagedBundleWarning, built_bundles

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedBundleWarning)
        known = {bundle.fingerprint: bundle for bundle in built_bundles()}
    built = [known[whole] for part in manifest.fingerprint.split("+") if (whole := part.partition("/")[0]) in known]
    bundles = {bundle.space.name: bundle for bundle in built}
    dims = {space.name: space.dim for space in manifest.spaces}
    found = {}
    for field in text_fields(manifest.spaces):
        bundle = bundles.get(field.space)
        if bundle is None:
            found[str(field)] = "as its encoder says, which is not on this machine"
        elif bundle.space.dim != dims[field.space]:
            found[str(field)] = "by how far a cosine stands out from those of the index; the fit is of whole vectors"
        elif field.modality not in bundle.relevance:
            found[str(field)] = "by how far a cosine stands out from those of the index; nothing was fitted"
        else:
            found[str(field)] = f"fitted on labelled pairs{_figures(bundle.measured.get('relevance'), field.modality)}"
    return found


def _figures(measured: object, modality: str) -> str:
    """What was measured of a fit on pairs that it was not made from."""
    figures = measured.get(modality) if isinstance(measured, Mapping) else None
    if not isinstance(figures, Mapping):
        return ""
    error, precision = (figures.get(name) for name in ("calibration_error", "precision"))
    return f", with a calibration error of {error} and a precision of {precision}"
