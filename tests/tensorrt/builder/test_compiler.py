"""Every form of every family's graphs through NVIDIA's compiler, for two GPUs that are not here."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import tensorrt_rtx

from tests.support.checkpoints import make_clip, minilm
from tests.support.paths import ENGINES
from tests.support.siglip import make_siglip
from tests.support.tensorrt_compiler import TARGETS, CompiledPlan, Compiler, Target, compiling
from tests.support.tensorrt_standin.fidelity import CLASSES, class_differences, members_of
from tests.support.text_models import TEXT_FAMILIES, make_text_model
from vlmsearch.building.bundle import build_bundle
from vlmsearch.cli import doctor
from vlmsearch.errors import BackendError
from vlmsearch.models.bundle import Bundle, Tower
from vlmsearch.models.recipe import Calibration, Gates, Recipe, Shapes, TowerGate, read_recipe

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # the bindings' own

BuiltPrecision = Literal["fp16", "int8", "fp32"]
PRECISIONS: tuple[BuiltPrecision, ...] = ("fp16", "int8", "fp32")
MALFORMED = int(tensorrt_rtx.EngineInvalidityDiagnostics.MALFORMED_ENGINE)
FEW = Calibration(images=32, texts=48, held_out=24, relevance_scenes=0, trusted=("image", "text"))
LAX = TowerGate(mean_cosine=0.0, overlap=0.0)
PLAIN = Recipe(
    "random", "MIT", "words", checkpoint="checkpoint", calibration=FEW, gates=Gates(image=LAX, text=LAX),
    shapes=Shapes(text_length=(2, 32, 64)),
)  # fmt: skip
REAL_TEXTS: dict[str, Callable[[Path], Path]] = {
    family: partial(make_text_model, family=family, real=True, limit=64) for family in TEXT_FAMILIES
}
REAL_SIGLIP: dict[str, Any] = {
    "size": 224,
    "patch": 16,
    "width": 768,
    "heads": 12,
    "layers": 12,
    "inner": 3072,
    "positions": 64,
}
REAL: dict[str, Callable[[Path], Path]] = {
    **REAL_TEXTS,
    "minilm": lambda folder: minilm(),
    "clip": partial(
        make_clip, size=224, patch=32, width=768, heads=12, layers=12, dim=512, positions=77, text=(512, 12, 8),
        inner=4, times=1.5,
    ),
    "siglip": partial(make_siglip, second=False, weaker=2.0, **REAL_SIGLIP),
    "siglip2": partial(make_siglip, second=True, weaker=2.0, **REAL_SIGLIP),
}  # fmt: skip
"""Checkpoints of published sizes with small vocabularies, and the real MiniLM."""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with pytest.MonkeyPatch.context() as patch, compiling() as compiler:
        patch.setenv("VLMSEARCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield compiler


def make_bundle(recipe: Recipe, folder: Path) -> Bundle:
    """A bundle of all files that engines are built from."""
    return build_bundle(recipe, out=folder, precisions=("fp32", "fp16", "qdq"))


@pytest.fixture(scope="module", params=["demo-clip", "demo-minilm"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Recipe]:
    recipe = replace(read_recipe(ENGINES / request.param / "recipe.toml"), calibration=FEW)
    return make_bundle(recipe, tmp_path_factory.mktemp("demo") / "bundle"), recipe


def towers_of(bundle: Bundle) -> list[Tower]:
    return ["image", "text"] if bundle.preprocess else ["text"]


def compile_forms(
    compiler: Compiler, bundle: Bundle, recipe: Recipe, tower: Tower, precision: BuiltPrecision
) -> list[CompiledPlan]:
    """Build an engine; return the plans of all forms that the builder tries, of which none can be loaded."""
    from vlmsearch.tensorrt.builder.engines import ensure_engine

    compiler.plans.clear()
    with pytest.raises(BackendError, match=r"^TensorRT cannot load the plan: TensorRT gave no reason$"):
        ensure_engine(bundle, tower, precision=precision, recipe=recipe)
    return list(compiler.plans)


def check_all(compiler: Compiler, bundle: Bundle, recipe: Recipe, target: Target) -> int:
    """Compile every form of a bundle for a target and check each; return how many plans there are."""
    compiler.target = target
    count = 0
    for tower in towers_of(bundle):
        for precision in PRECISIONS:
            plans = compile_forms(compiler, bundle, recipe, tower, precision)
            assert [plan.target for plan in plans] == [target] * len(plans)
            check_plans(plans, bundle, recipe, tower, precision)
            count += len(plans)
    return count


def check_plans(
    plans: list[CompiledPlan], bundle: Bundle, recipe: Recipe, tower: Tower, precision: BuiltPrecision
) -> None:
    """Check that the compiler was given what the runtime expects, and that each plan is for its form."""
    from vlmsearch.tensorrt.builder.shapes import Split, profiles
    from vlmsearch.tensorrt.engine.runtime import _TYPES, log

    shapes = recipe.shapes.of(bundle.text)
    size = bundle.preprocess.size if bundle.preprocess else 0
    splits: tuple[Split, ...] = ("one",) if precision == "fp32" else ("several", "one")
    assert len(plans) == len(splits)
    runtime = tensorrt_rtx.Runtime(log())
    for split, plan in zip(splits, plans):
        assert plan.parser_errors == 0
        if tower == "image":
            assert plan.inputs == {"pixels": ("UINT8", (-1, size, size, 3))}
        else:
            assert plan.inputs == dict.fromkeys(("input_ids", "attention_mask"), ("INT32", (-1, -1)))
        assert plan.outputs == {"embedding": ("FLOAT", (-1, bundle.space.dim))}
        assert {kind for kind, _ in (plan.inputs | plan.outputs).values()} <= _TYPES.keys()
        wanted = profiles(bundle, replace(recipe, shapes=shapes), tower, None, split)
        assert plan.profiles == tuple({r.input: (r.min, r.opt, r.max) for r in profile} for profile in wanted)
        assert (plan.layers["QUANTIZE"] > 0) is (precision == "int8")
        assert plan.layers["QUANTIZE"] == plan.layers["DEQUANTIZE"]
        assert not int(runtime.get_engine_validity(plan.plan)[1]) & MALFORMED
    assert len({len(plan.plan) for plan in plans}) == len(plans), "each profile has kernels of its own"


@pytest.mark.parametrize("target", TARGETS)
def test_every_form_of_the_demonstration_models_is_compiled(
    compiler: Compiler, demo: tuple[Bundle, Recipe], target: Target
) -> None:
    assert check_all(compiler, *demo, target) == 5 * len(towers_of(demo[0]))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", REAL)
def test_every_form_of_every_family_is_compiled_at_its_real_size(
    compiler: Compiler, tmp_path: Path, family: str
) -> None:
    recipe = replace(PLAIN, checkpoint=str(REAL[family](tmp_path / "checkpoint")))
    bundle = make_bundle(recipe, tmp_path / "bundle")
    for target in TARGETS:
        assert check_all(compiler, bundle, recipe, target) == 5 * len(towers_of(bundle))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_graphs_for_tensorrt_8_are_read_as_well(
    compiler: Compiler, demo: tuple[Bundle, Recipe], precision: BuiltPrecision
) -> None:
    import tensorrt as trt

    from vlmsearch.tensorrt.builder.graph import engine_graph, read_int8
    from vlmsearch.tensorrt.engine.runtime import log

    bundle, _ = demo
    for tower in towers_of(bundle):
        int8 = read_int8(bundle.model(tower, "qdq")) if precision == "int8" else {}
        model = engine_graph(
            bundle.model(tower, "fp16" if precision == "fp16" else "fp32"), int8, list(int8), spelled_out=True
        )
        network = trt.Builder(log()).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, log())
        assert parser.parse(model), [parser.get_error(i).desc() for i in range(parser.num_errors)]
        assert parser.num_errors == 0


def test_no_machine_runs_the_plans_of_both_targets(compiler: Compiler, demo: tuple[Bundle, Recipe]) -> None:
    from vlmsearch.tensorrt.engine.runtime import log

    runtime = tensorrt_rtx.Runtime(log())
    verdicts = []
    for target in TARGETS:
        compiler.target = target
        (plan,) = compile_forms(compiler, *demo, "text", "fp32")
        verdicts.append(runtime.get_engine_validity(plan.plan)[0])
    assert tensorrt_rtx.EngineValidity.INVALID in verdicts
    assert runtime.get_engine_validity(b"no plan at all") == (tensorrt_rtx.EngineValidity.INVALID, MALFORMED)


def test_the_stand_in_has_the_members_of_this_interface() -> None:
    real = {name: members_of(getattr(tensorrt_rtx, name)) for name in CLASSES}
    assert class_differences(real, "11") == ["IExecutionContext.device_memory is property, and here None"]


def test_the_compiler_is_no_tensorrt_for_anybody_else() -> None:
    provided = importlib.metadata.packages_distributions()
    wheels = {name for names in provided.values() for name in names if name.startswith("tensorrt_rtx")}
    assert wheels == {"tensorrt_rtx_cu13", "tensorrt_rtx_cu13_bindings", "tensorrt_rtx_cu13_libs"}
    assert not wheels & set(provided.get("tensorrt", ()))
    assert not {name.replace("_", "-") for name in wheels} & set(doctor._TENSORRT_WHEELS)
