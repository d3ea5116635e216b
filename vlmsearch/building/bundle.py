"""From a recipe to a bundle on disk: fetch, export, verify, quantise, measure, write."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vlmsearch._util.extras import installed_versions
from vlmsearch._util.files import file_digest, folder_in_the_making, publish, replace_file
from vlmsearch._util.machine import machine_name
from vlmsearch.building.calibrate import calibrate as observe
from vlmsearch.building.checkpoint import Checkpoint, sentence_modules
from vlmsearch.building.data import Samples, gather
from vlmsearch.building.export import ExportedTower, export
from vlmsearch.building.fetch import as_bundle, checkpoint_folder
from vlmsearch.building.inputs import Feeds, run
from vlmsearch.building.load import load_checkpoint, read_config
from vlmsearch.building.proof import Proof, can_compare, proof_without_transformers
from vlmsearch.building.quantize import (
    D,
    Drift,
    QuantisationPlan,
    QuantisedTower,
    Report,
    Subject,
    drift,
    quantise,
    silent,
    write,
)
from vlmsearch.building.room import check_memory
from vlmsearch.building.verify import (
    IMAGES,
    TEXTS,
    Check,
    drift_checks,
    tower_feeds,
    verify_pixels,
    verify_split,
)
from vlmsearch.errors import ConfigError, QualityError, TextTruncatedWarning
from vlmsearch.models.bundle import FORMAT, Bundle, Precision, Tower, cache_folder, model_file, open_bundle
from vlmsearch.models.domain import DOMAIN_FILE, domain_modality
from vlmsearch.models.inputs import open_tokenizer
from vlmsearch.models.recipe import RECIPE, Recipe, RerankerRecipe, to_toml
from vlmsearch.models.tokenizers import TextTokenizer
from vlmsearch.types import Modality, RelevanceFit, Vectors

if TYPE_CHECKING:
    from vlmsearch.building.torch import Reference

Json = dict[str, object]


@dataclass
class _Work:
    """A bundle in the making."""

    recipe: Recipe
    checkpoint: Checkpoint
    described: Bundle
    folder: Path
    report: Report
    fitted: Samples
    held_out: Samples
    tokenizer: TextTokenizer
    proof: Proof
    exported: dict[Tower, ExportedTower] = field(default_factory=dict)
    feeds: dict[Tower, Feeds] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    quantisation: dict[str, Json] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)
    vectors: dict[Modality, Vectors] = field(default_factory=dict)


def build_bundle(
    recipe: Recipe,
    *,
    checkpoint: Path | None = None,
    out: Path | None = None,
    precisions: Sequence[Precision] | None = None,
    calibrate: Sequence[Path] = (),
    is_first_use: bool = False,
    force: bool = False,
    progress: Report | None = None,
) -> Bundle:
    """Build what a recipe says and give the finished bundle.

    ``checkpoint`` is a folder to build from instead of the recipe's source. ``out`` is the bundle's folder, by default
    in the user's cache. ``calibrate`` names images and texts of the user. Nothing appears at ``out`` before all is
    proven; an older bundle there is replaced, and ConfigError if anything else is there. QualityError lists the gates
    that were missed, unless ``force``, which builds all the same and notes it in the bundle.

    ``is_first_use`` says that somebody waits to use the model. Where ``calibrate`` holds too little, the project's own
    images and texts are taken. A tower that misses the gate of INT8 has float32 alone: no search for the layers
    that need high precision is made, which takes minutes.

    Where torch and transformers are installed, the bundle is compared with them; else see
    `vlmsearch.building.proof`.
    """
    chosen = tuple(dict.fromkeys(("fp32", *(precisions or recipe.precisions))))
    target = out or cache_folder() / "bundles" / recipe.name
    check_target(target)
    report = progress or silent
    report("reading the checkpoint", 0, 1)
    loaded = load_checkpoint(checkpoint or checkpoint_folder(recipe), recipe.prompts, recipe.max_tokens)
    _check_recipe(recipe, loaded)
    check_memory(recipe.name, loaded.float32_bytes)
    with folder_in_the_making(target) as folder:
        fitted, held_out = _samples_of(recipe, loaded, calibrate, not is_first_use, report)
        work = _start(recipe, loaded, folder, fitted, held_out, report)
        _prove_all(work)
        for tower in loaded.towers:
            _add_precisions(work, tower, [precision for precision in chosen if precision != "fp32"], is_first_use)
        _finish(work, chosen, forced=missed_gates(recipe.name, work.checks, force=force))
        publish(folder, target)
    return open_bundle(target)


def missed_gates(name: str, checks: Sequence[Check], *, force: bool) -> list[str]:
    """Return the gates that were missed, with what was reached; QualityError for any unless ``force``."""
    missed = [f"{c.name} is {c.value:.5g}, gate {c.gate:g}" for c in checks if not c.passed]
    if missed and not force:
        raise QualityError(f"{name} was not built: {'; '.join(missed)} (`force=True` builds it all the same)")
    return missed


def _check_recipe(recipe: Recipe, checkpoint: Checkpoint) -> None:
    """ConfigError where a recipe is for another checkpoint than this one."""
    family, _ = read_config(checkpoint.folder)
    if recipe.family and recipe.family != family:
        raise ConfigError(f"{checkpoint.folder} is of the family {family}, and {recipe.name} is {recipe.family}")
    if any(dim >= checkpoint.dim for dim in recipe.dims):
        raise ConfigError(f"{recipe.name}: dims are less than {checkpoint.dim}, the whole length: {list(recipe.dims)}")
    if not checkpoint.fill and recipe.shapes.text_length[2] > checkpoint.max_tokens:
        raise ConfigError(
            f"{recipe.name}: shapes: text_length goes to {recipe.shapes.text_length[2]}, but {checkpoint.folder} "
            f"reads {checkpoint.max_tokens} tokens"
        )


def _samples_of(
    recipe: Recipe, checkpoint: Checkpoint, paths: Sequence[Path], need_all: bool, report: Report
) -> tuple[Samples, Samples]:
    report("collecting calibration data", 0, 1)
    return gather(recipe, paths, images=checkpoint.image is not None, need_all=need_all)


def _start(
    recipe: Recipe, checkpoint: Checkpoint, folder: Path, fitted: Samples, held_out: Samples, report: Report
) -> _Work:
    described = as_bundle(checkpoint, recipe)
    (folder / "tokenizer.json").write_bytes(described.read("tokenizer.json"))
    keep_recipe(recipe, folder)
    proof: Proof = "transformers" if can_compare() else proof_without_transformers(checkpoint)
    return _Work(recipe, checkpoint, described, folder, report, fitted, held_out, open_tokenizer(described), proof)


def _prove_all(work: _Work) -> None:
    """Write all of float32, and compare it with transformers if it is installed.

    Its copy of the weights is let go of before anything is quantised.
    """
    work.report("comparing token ids", 0, 1)
    work.checks.append(verify_split(work.checkpoint.folder, work.described.text, work.tokenizer))
    reference = None
    if work.proof == "transformers":
        from vlmsearch.building.compare import verify_tokens
        from vlmsearch.building.torch import load_reference

        work.checks.append(verify_tokens(work.checkpoint.folder, work.described.text, work.tokenizer))
        reference = load_reference(work.checkpoint.folder)
    elif work.checkpoint.preprocess:
        work.checks += verify_pixels(work.checkpoint.preprocess, work.recipe.gates)
    for tower in work.checkpoint.towers:
        _write_float32(work, tower)
        if reference is not None:
            _compare(work, tower, reference)


def _write_float32(work: _Work, tower: Tower) -> None:
    """Write one tower in float32, and compute what the lower precisions are compared with."""
    form, file = work.described.text, work.folder / model_file(tower, "fp32")
    work.feeds[tower] = tower_feeds(work.checkpoint, tower, work.held_out, form, work.tokenizer, work.report)
    work.report(f"{tower}: exporting", 0, 1)
    work.exported[tower] = export(work.checkpoint, tower, file)
    work.vectors[tower], work.speed[f"{tower}.fp32"] = run(file, work.feeds[tower])
    if not np.isfinite(work.vectors[tower]).all():
        reason = f"the {tower} tower computes NaN or infinity: its weights are damaged"
        raise ConfigError(f"{work.checkpoint.folder}: {reason}")


def _compare(work: _Work, tower: Tower, reference: Reference) -> None:
    """Compare one tower in float32 with transformers."""
    from vlmsearch.building.compare import verify_images, verify_prompts, verify_vectors

    gates, form, file = work.recipe.gates, work.described.text, work.exported[tower].file
    work.report(f"{tower}: comparing with transformers", 0, 1)
    mixed = _together(work.held_out, work.fitted, IMAGES, TEXTS)
    proof = tower_feeds(work.checkpoint, tower, mixed, form, work.tokenizer, work.report)
    work.checks.append(verify_vectors(tower, file, proof, reference, gates))
    if tower == "text":
        work.checks += verify_prompts(work.checkpoint.folder, file, form, work.tokenizer, gates)
    if tower == "image" and work.checkpoint.preprocess:
        pictures = work.held_out.pictures if "image" in work.held_out.own else ()
        folder, preprocess = work.checkpoint.folder, work.checkpoint.preprocess
        work.checks += verify_images(file, folder, preprocess, pictures, reference, gates)


def _add_precisions(work: _Work, tower: Tower, precisions: Sequence[Precision], is_first_use: bool) -> None:
    """Write the lower precisions of one tower."""
    gates = work.recipe.gates
    gate = gates.tower(tower)
    with tempfile.TemporaryDirectory(prefix=".tried-", dir=work.folder) as scratch:
        subject = Subject(
            work.checkpoint, tower, work.feeds[tower], work.vectors[tower], gate, drift,
            Path(scratch) / model_file(tower, "fp32"),
        )  # fmt: skip
        for precision, result in _lower(work, subject, precisions, search=not is_first_use):
            if is_first_use and not result.drift.passes(gate):
                _leave_out(work, tower, precision, result)
                continue
            work.checks += drift_checks(tower, precision, result.drift, gates)
            work.speed[f"{tower}.{precision}"] = result.drift.rate
            work.quantisation[model_file(tower, precision)] = story(result, work.fitted.origin[tower])


def _leave_out(work: _Work, tower: Tower, precision: Precision, result: QuantisedTower[Drift]) -> None:
    """Remove a precision that differs too much from float32, and record that."""
    file = work.folder / model_file(tower, precision)
    file.unlink()
    missed = f"mean cosine {result.drift.mean_cosine:.4f}, nearest kept {result.drift.overlap:.2f}"
    reason = f"it differs too much from float32 ({missed}); `vlmsearch build {work.recipe.name}` searches longer"
    work.quantisation[file.name] = story(result, work.fitted.origin[tower]) | {"method": "none", "left_out": reason}


def _lower(
    work: _Work, subject: Subject[Drift], precisions: Sequence[Precision], *, search: bool
) -> Iterator[tuple[Precision, QuantisedTower[Drift]]]:
    """Write the lower precisions of one tower in turn, and yield how each was made."""
    tower, settings = subject.tower, work.recipe.calibration
    trusted = tower in work.fitted.own or tower in settings.trusted
    seen = None
    for precision in precisions:
        file = work.folder / model_file(tower, precision)
        if precision == "fp16":
            work.report(f"{tower}: fp16", 0, 1)
            export(work.checkpoint, tower, file, np.float16)
            yield precision, QuantisedTower(None, subject.measure(file))
            continue
        if seen is None:
            samples = tower_feeds(work.checkpoint, tower, work.fitted, work.described.text, work.tokenizer, work.report)
            seen = observe(work.exported[tower], samples, _named(work.report, f"{tower}: calibrating"))
        result = quantise(
            subject, precision, seen, settings, _named_steps(work.report, tower), trusted=trusted, search=search
        )
        if result.plan is not None:
            write(subject, precision, result.plan, seen, file)
        yield precision, result


def _named(report: Report, step: str) -> Callable[[int, int], None]:
    return lambda done, total: report(step, done, total)


def _named_steps(report: Report, tower: Tower) -> Report:
    return lambda step, done, total: report(f"{tower}: {step}", done, total)


def _together(first: Samples, second: Samples, images: int, texts: int) -> Samples:
    return dataclasses.replace(
        first,
        pictures=(*first.pictures, *second.pictures)[:images],
        texts=(*first.texts, *second.texts)[:texts],
    )


def story(result: QuantisedTower[D], origin: str) -> Json:
    """Return how a file was quantised, and what else was tried."""
    if result.plan is None:
        return {"method": "cast"}
    tried = [_plan(plan) | rounded(vars(drift)) for plan, drift in result.tried]
    return _plan(result.plan) | {"calibration": origin, "tried": tried}


def _plan(plan: QuantisationPlan) -> Json:
    return dataclasses.asdict(plan)


def _finish(work: _Work, precisions: Sequence[Precision], *, forced: Sequence[str]) -> None:
    """Write ``bundle.json``, with retrieval measured on what was just built where the recipe asks for it."""
    samples: Json = {tower: _samples(work, tower) for tower in work.checkpoint.towers}
    measured = figures(work.checks, work.speed, samples, work.proof) | _prompts(work.checkpoint)
    write_description(work.folder, work.described, {}, measured, work.quantisation, forced)
    fits, of_fits = fit_relevance(work.recipe, open_bundle(work.folder), work.report)
    measured |= of_fits
    if work.recipe.scenes:
        measured["retrieval"] = _retrieval(work, precisions)
    described = dataclasses.replace(work.described, domain=work.recipe.domain)
    write_description(work.folder, described, fits, measured, work.quantisation, forced)


def figures(checks: Sequence[Check], speed: Mapping[str, float], samples: Json, proof: Proof) -> Json:
    """Return what was measured as ``bundle.json`` has it."""
    return {
        "proof": proof,
        "checks": {c.name: {"value": round(c.value, 7), "gate": c.gate, "passed": c.passed} for c in checks},
        "items_per_second": rounded(speed),
        "samples": samples,
        "machine": machine_name(),
        "versions": installed_versions(_VERSIONS),
    }


def _prompts(checkpoint: Checkpoint) -> Json:
    """Return what the prompts of a checkpoint stand before, by their names."""
    prompts, names = checkpoint.prompts, dict[str, object]()
    if (checkpoint.folder / "modules.json").is_file():
        modules = sentence_modules(checkpoint.folder)
        names = dict.fromkeys(modules.other_prompts if modules.prompts == prompts else (), "no text")
    uses = {"query": ("queries", prompts.query), "document": ("documents", prompts.document)}
    return {"prompts": {name: use for name, (use, text) in uses.items() if text} | names}


_VERSIONS = ("onnxruntime", "transformers", "tokenizers")


def _samples(work: _Work, tower: Tower) -> Json:
    """Return what a tower was measured on."""
    return {"origin": work.held_out.origin[tower], "count": len(work.vectors[tower])}


def fit_relevance(recipe: Recipe, bundle: Bundle, report: Report) -> tuple[dict[Modality, RelevanceFit], Json]:
    """Return how relevance follows from the cosines of a finished bundle, and how well that holds.

    The same vectors make the file of its domain, which is written into its folder.
    """
    from vlmsearch.building.domain import domain_file
    from vlmsearch.building.relevance import fit_each, labelled_vectors, relevance_origin, sigmoid_fit
    from vlmsearch.encoders.onnx import OnnxEncoder

    settings = recipe.calibration
    if not settings.relevance_scenes:
        own = sigmoid_fit(bundle.logits)
        return {"image": own} if own else {}, {}
    report("fitting relevance", 0, 1)
    with OnnxEncoder(f"{bundle.folder}/") as encoder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TextTruncatedWarning)  # of the project's questions, by models that read little
        sets = labelled_vectors(encoder, texts_from=settings.texts_from, scenes=settings.relevance_scenes)
    if recipe.domain:
        modality = domain_modality(bundle)
        replace_file(bundle.folder / DOMAIN_FILE, domain_file(sets[modality], modality))
    fitted = fit_each(sets, bundle.logits)
    measured: Json = {
        "relevance": {modality: figures for modality, (_, figures) in fitted.items()},
        "relevance_from": {modality: relevance_origin(modality, settings.texts_from) for modality in fitted},
    }
    return {modality: fit for modality, (fit, _) in fitted.items()}, measured


def _retrieval(work: _Work, precisions: Sequence[Precision]) -> Json:
    from vlmsearch.building.retrieval import scene_recall
    from vlmsearch.encoders.onnx import OnnxEncoder

    recalls: Json = {"scenes": work.recipe.scenes, "command": f"vlmsearch build {work.recipe.name}"}
    for precision in (p for p in precisions if p in ("fp32", "int8")):
        work.report(f"finding {work.recipe.scenes} scenes with {precision}", 0, 1)
        with OnnxEncoder(f"{work.folder}/", precision=precision) as encoder:
            recalls[precision] = scene_recall(encoder, work.recipe.scenes)
    return recalls


def rounded(values: Mapping[str, float]) -> Json:
    """Figures as ``bundle.json`` has them."""
    return {name: round(value, 5 if abs(value) <= 1 else 1) for name, value in values.items()}


def write_description(
    folder: Path, bundle: Bundle, relevance: Mapping[Modality, RelevanceFit], measured: Json,
    quantisation: Mapping[str, Json],
    forced: Sequence[str],
) -> None:  # fmt: skip
    """Write ``bundle.json`` into ``folder``."""
    image, text = bundle.preprocess, bundle.text
    data: Json = {
        "name": bundle.name,
        "source": bundle.source,
        "revision": bundle.revision,
        "licence": bundle.licence,
        "fingerprint": bundle.fingerprint,
        "space": bundle.space.name,
        "dim": bundle.space.dim,
        "dims": list(bundle.dims),
        "image": dataclasses.asdict(image) if image else None,
        "text": dataclasses.asdict(text),
        "relevance": {modality: dataclasses.asdict(fit) for modality, fit in relevance.items()},
        "quantisation": dict(quantisation),
        "forced": list(forced),
        "measured": measured,
        "logits": dataclasses.asdict(bundle.logits) if bundle.logits else None,
        "domain": bundle.domain,
    }
    write_json(folder, data)


def write_json(folder: Path, data: Json) -> None:
    """Write ``bundle.json``, with the format and the files in ``folder``."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "bundle.json")
    whole = {"format": FORMAT, **data, "files": {name: file_entry(folder / name) for name in names}}
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    (folder / "bundle.json").write_text(text, encoding="utf-8")


def keep_recipe(recipe: Recipe | RerankerRecipe, folder: Path) -> None:
    """Write a derived recipe beside what it builds, so that the next build is the same."""
    if recipe.folder == Path():
        (folder / RECIPE).write_text(to_toml(recipe), encoding="utf-8")


def file_entry(path: Path) -> Json:
    """Return what ``bundle.json`` says of a file."""
    return {"sha256": file_digest(path), "size": path.stat().st_size}


def check_target(target: Path) -> None:
    """ConfigError where something else than a bundle is there already, which a bundle would replace."""
    if (target / "bundle.json").is_file() or not target.exists():
        return
    names = [path.name for path in target.iterdir()] if target.is_dir() else [target.name]
    of_a_bundle = {"tokenizer.json", DOMAIN_FILE, RECIPE}  # which may be damaged
    if any(not name.endswith(".onnx") and name not in of_a_bundle for name in names):
        raise ConfigError(f"{target} is there and is not a bundle: name another folder")
