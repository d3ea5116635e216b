"""From a recipe to a re-ranker on disk: fetch, export, verify, quantise, calibrate, write."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.building.bundle import (
    Json,
    check_target,
    figures,
    keep_recipe,
    missed_gates,
    story,
    write_json,
)
from vlmsearch.building.calibrate import calibrate as observe
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.export import ExportedTower, export
from vlmsearch.building.fetch import checkpoint_folder, fingerprint
from vlmsearch.building.inputs import Feeds, pair_feeds, run
from vlmsearch.building.load import load_cross_encoder
from vlmsearch.building.pairs import LabelledPairs, labelled_pairs
from vlmsearch.building.proof import Proof, can_compare, proof_without_transformers
from vlmsearch.building.quantize import Report, ScoreDrift, Subject, quantise, score_drift, silent, write
from vlmsearch.building.relevance import calibration_error
from vlmsearch.building.verify import Check
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import RERANKER, cache_folder
from vlmsearch.models.recipe import Calibration, RerankerGates, RerankerRecipe
from vlmsearch.models.reranker import (
    PRECISIONS,
    PlattScaling,
    RerankerBundle,
    RerankerPrecision,
    open_reranker_bundle,
    pair_tokenizer,
    reranker_file,
)
from vlmsearch.models.tokenizers import TextTokenizer
from vlmsearch.rerankers.onnx import OnnxReranker
from vlmsearch.types import Vectors

GATED = 512
"""Pairs that lower precisions are compared with float32 on."""
CALIBRATED = 256
"""Pairs that INT8 ranges are taken from."""
BINS = 15
"""Of probabilities, all of one width, in the expected calibration error."""


def build_reranker(
    recipe: RerankerRecipe,
    *,
    checkpoint: Path | None = None,
    out: Path | None = None,
    precisions: Sequence[RerankerPrecision] | None = None,
    force: bool = False,
    progress: Report | None = None,
) -> RerankerBundle:
    """Build what a recipe says and give the finished bundle.

    ``checkpoint``, ``out``, ``force`` and what is raised are as those of `vlmsearch.building.bundle.build_bundle`.
    """
    chosen = tuple(p for p in PRECISIONS if p in ("fp32", *(precisions or recipe.precisions)))
    target, report, gates = out or cache_folder() / "bundles" / recipe.name, progress or silent, recipe.gates
    check_target(target)
    report("reading the checkpoint", 0, 1)
    loaded = load_cross_encoder(checkpoint or checkpoint_folder(recipe))
    data = (loaded.folder / "tokenizer.json").read_bytes()
    tokenizer = pair_tokenizer(data, recipe.name, loaded.max_tokens)
    report("collecting labelled pairs", 0, 1)
    fitted, held_out = split_pairs(recipe)
    with folder_in_the_making(target) as folder:
        (folder / "tokenizer.json").write_bytes(data)
        keep_recipe(recipe, folder)
        report("exporting", 0, 1)
        exported = export(loaded, "text", folder / reranker_file("fp32"))
        proof: Proof = "transformers" if can_compare() else proof_without_transformers(loaded)
        checks = _compared(exported, tokenizer, held_out, gates, report) if proof == "transformers" else []
        report("calibrating probabilities", 0, 1)
        logits, _ = run(exported.file, _feeds(fitted, loaded, tokenizer))
        if not np.isfinite(logits).all():
            raise ConfigError(f"{loaded.folder}: it computes NaN or infinity: its weights are damaged")
        platt = fit_platt(logits[:, 0], fitted.labels)
        stories: dict[str, Json] = {}
        if "int8" in chosen:
            file = folder / reranker_file("int8")
            drift, stories[file.name] = _quantised(exported, tokenizer, fitted, held_out, platt, recipe, report, file)
            checks += [
                Check("int8.mean_difference", drift.mean_difference, gates.int8.difference, is_maximum=True),
                Check("int8.max_difference", drift.max_difference),
                Check("int8.order", drift.order, gates.int8.order),
            ]
        speed: dict[str, float] = {}
        for precision in chosen:
            report(f"measuring {precision}", 0, 1)
            logits, speed[precision] = run(folder / reranker_file(precision), _feeds(held_out, loaded, tokenizer))
            probabilities = platt.probabilities(logits[:, 0])
            error = calibration_error(probabilities, held_out.labels, bins=BINS)
            checks.append(Check(f"{precision}.calibration_error", error, gates.calibration_error, is_maximum=True))
            for name, value in threshold_figures(probabilities, held_out.labels).items():
                checks.append(Check(f"{precision}.{name}", value))
        failed = missed_gates(recipe.name, checks, force=force)
        count, relevant = len(held_out.labels), int(held_out.labels.sum())
        measured = figures(checks, speed, {"origin": held_out.origin, "count": count, "relevant": relevant}, proof)
        _describe(folder, recipe, loaded, platt, stories, failed, measured)
        if recipe.scenes:
            measured["retrieval"] = _retrieval(folder, recipe, chosen, report)
            _describe(folder, recipe, loaded, platt, stories, failed, measured)
        publish(folder, target)
    return open_reranker_bundle(target)


def split_pairs(recipe: RerankerRecipe) -> tuple[LabelledPairs, LabelledPairs]:
    """Pairs to fit the probability to, and pairs of other queries to measure it on."""
    data = recipe.calibration
    pairs = labelled_pairs(data.pairs_from, data.queries + data.held_out, data.candidates)
    cut = data.queries * data.candidates
    first, second = slice(0, cut), slice(cut, None)
    return (
        LabelledPairs(pairs.queries[first], pairs.documents[first], pairs.labels[first], pairs.origin),
        LabelledPairs(pairs.queries[second], pairs.documents[second], pairs.labels[second], pairs.origin),
    )


def _feeds(pairs: LabelledPairs, checkpoint: Checkpoint, tokenizer: TextTokenizer) -> Feeds:
    return pair_feeds(pairs.texts, tokenizer, checkpoint.pad)


def fit_platt(logits: NDArray[np.floating], labels: NDArray[np.bool_]) -> PlattScaling:
    """Scale and shift that make the labels likeliest (Platt, 1999), by Newton's method.

    As there, the labels are moved a little away from 0 and 1. Otherwise pairs that the model always tells apart would
    ask for infinite certainty.
    """
    positive, negative = int(labels.sum()), int((~labels).sum())
    wanted = np.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    inputs = np.stack([logits.astype(np.float64), np.ones(len(logits))], axis=1)
    weights = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    for _ in range(100):
        chances = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (chances - wanted)
        curve = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + 1e-9 * np.eye(2)
        step = np.linalg.solve(curve, slope)
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    if weights[0] <= 0:
        raise ConfigError("this model scores what is relevant lower than what is not: it is not a re-ranker")
    return PlattScaling(round(float(weights[0]), 6), round(float(weights[1]), 6))


def threshold_figures(probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> dict[str, float]:
    """Precision and recall of what is at least 0.5."""
    shown = probabilities >= 0.5
    return {
        "precision": float(labels[shown].mean()) if shown.any() else 0.0,
        "recall": float(shown[labels].mean()) if labels.any() else 0.0,
    }


def _compared(
    exported: ExportedTower, tokenizer: TextTokenizer, held_out: LabelledPairs, gates: RerankerGates, report: Report
) -> list[Check]:
    """Return how token ids and numbers differ from those of transformers."""
    from vlmsearch.building.compare import verify_logits, verify_pairs

    loaded = exported.checkpoint
    report("comparing token ids", 0, 1)
    checks = [verify_pairs(loaded.folder, tokenizer, loaded.max_tokens)]
    report("comparing with transformers", 0, 1)
    return [*checks, verify_logits(exported.file, loaded, tokenizer, held_out, gates)]


def _quantised(
    exported: ExportedTower, tokenizer: TextTokenizer, fitted: LabelledPairs, held_out: LabelledPairs,
    platt: PlattScaling, recipe: RerankerRecipe, report: Report, file: Path,
) -> tuple[ScoreDrift, Json]:  # fmt: skip
    """Write the INT8 model, and return how it differs from float32 and how it was made."""

    def compare(reference: Vectors, logits: Vectors, rate: float) -> ScoreDrift:
        expected, other = (platt.probabilities(values).astype(np.float32) for values in (reference, logits))
        return score_drift(expected, other, rate)

    checkpoint = exported.checkpoint
    feeds = _feeds(held_out.some(GATED), checkpoint, tokenizer)
    reference, _ = run(exported.file, feeds)
    samples = _feeds(fitted.some(CALIBRATED), checkpoint, tokenizer)
    seen = observe(exported, samples, lambda done, total: report("calibrating INT8", done, total))
    with tempfile.TemporaryDirectory(prefix=".tried-", dir=file.parent) as scratch:
        tried = Path(scratch) / file.name
        subject = Subject(checkpoint, "text", feeds, reference, recipe.gates.int8, compare, tried)
        result = quantise(subject, "int8", seen, Calibration(), report, trusted=True)
        if result.plan is not None:
            write(subject, "int8", result.plan, seen, file)
    return result.drift, story(result, fitted.origin)


def _retrieval(folder: Path, recipe: RerankerRecipe, precisions: Sequence[RerankerPrecision], report: Report) -> Json:
    """Return how often the right scene comes first, without the re-ranker and with it."""
    from vlmsearch.building.retrieval import reranked_recall

    recalls: Json = {"scenes": recipe.scenes, "command": f"vlmsearch build {recipe.name}"}
    for precision in precisions:
        report(f"re-ranking {recipe.scenes} scenes with {precision}", 0, 1)
        with OnnxReranker(f"{folder}/", precision=precision) as reranker:
            recalls[precision] = reranked_recall(reranker, recipe.scenes)
    return recalls


def _describe(
    folder: Path, recipe: RerankerRecipe, checkpoint: Checkpoint, platt: PlattScaling, stories: dict[str, Json],
    forced: Sequence[str], measured: Json,
) -> None:  # fmt: skip
    """Write ``bundle.json`` into ``folder``."""
    data: Json = {
        "kind": RERANKER,
        "name": recipe.name,
        "source": recipe.source,
        "revision": recipe.revision,
        "licence": recipe.licence,
        "fingerprint": fingerprint(checkpoint, recipe.name),
        "text": {"max_tokens": checkpoint.max_tokens, "pad": checkpoint.pad},
        "calibration": dataclasses.asdict(platt),
        "quantisation": stories,
        "forced": list(forced),
        "measured": measured,
    }
    write_json(folder, data)
