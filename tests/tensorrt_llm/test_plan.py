"""Plans of TensorRT-LLM engines: exact for each release, and refused where they cannot work."""

import json
import os
import re
import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.support import llm_stand_in
from tests.support.cli import ok, run
from tests.support.paths import GOLDEN
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import data_folder, find_bundles, recipe_names
from vlmsearch.models.recipe import find_recipe
from vlmsearch.tensorrt_llm.plan import PROMPT, LlmPlan, plan_text
from vlmsearch.tensorrt_llm.recipe import Quantisation, find_llm_recipe, read_llm_recipe
from vlmsearch.tensorrt_llm.rules import make_plan
from vlmsearch.tensorrt_llm.versions import find_target, targets
from vlmsearch.triton.repository.releases import find_release

PLANS = GOLDEN / "llm"
RECIPES = ("gpt2-medium", "llama-2-7b-chat", "llama-3.1-8b-instruct-awq", "phi-3-mini-128k")
RELEASES = {"24.06": "0.10.0", "24.09": "0.13.0", "25.06": "0.20.0", "26.07": "1.2.1", "1.4.0rc1": "1.4.0rc1"}
BUILDING = list(RELEASES)[:-1]
VISION = ("qwen2.5-vl-7b-instruct", "qwen3-vl-2b-instruct", "llava-1.5-7b")
"""Their plans are in the golden files of the releases with an LLM API."""


@pytest.mark.parametrize(
    ("name", "release"),
    [*product(RECIPES, BUILDING), *product(VISION, ("25.06", "26.07", "1.4.0rc1"))],
)
def test_plans_are_as_they_were(name: str, release: str) -> None:
    """Set VLMSEARCH_GOLDEN=write to write what is planned now."""
    try:
        made = make_plan(name, release=release)
        assert made.target.tensorrt_llm == RELEASES[release]
        text, data = plan_text(made), json.dumps(made.to_json(), indent=2) + "\n"
    except ConfigError as exc:
        text, data = f"{exc}\n", ""
    for suffix, content in ((".txt", text), (".json", data)):
        path = PLANS / f"{name}-{release}{suffix}"
        if os.environ.get("VLMSEARCH_GOLDEN") == "write" and content:
            path.write_text(content)
        assert (path.read_text() if path.exists() else "") == content


def test_only_llama_31_before_its_support_is_refused() -> None:
    texts = {path.name: path.read_text() for name in RECIPES for path in PLANS.glob(f"{name}-*.txt")}
    refused = sorted(name for name, text in texts.items() if "step 1" not in text)
    assert refused == ["llama-3.1-8b-instruct-awq-24.06.txt"]
    assert "the nearest that has it is 24.09 (TensorRT-LLM 0.13.0)" in (PLANS / refused[0]).read_text()


def test_what_calibrates_says_with_what_and_where_it_comes_from(tmp_path: Path) -> None:
    def planned(*flags: str) -> tuple[str, str]:
        made = json.loads(ok("llm", "plan", *flags, "--json", cwd=tmp_path))
        return made["calibration_set"], ok("llm", "plan", *flags, cwd=tmp_path)

    name, text = planned("llama-3.1-8b-instruct-awq")
    assert name == "cnn_dailymail"
    assert "calibration    cnn_dailymail, which step 2 downloads from the hub, or texts of your own" in text
    assert "--batch_size 12 " in text
    name, text = planned("llama-3.1-8b-instruct-awq", "--own-calibration")
    assert (name, "downloads" in text) == ("", False)
    name, text = planned("llama-2-7b-chat")
    assert (name, "calibration" in text) == ("", False)
    name, text = planned(own(tmp_path, "llama-2-7b-chat", method='"int8_sq"'), "--release", "24.06")
    assert "calibration    ccdv/cnn_dailymail, which step 2 downloads from the hub\n" in text
    name, text = planned(own(tmp_path, "gpt2-medium", method='"int8_sq"'), "--own-calibration")
    assert "--calib_dataset /calibration\n" in text


def test_samples_of_a_recipe_are_read_together_where_it_says_so(tmp_path: Path) -> None:
    path = own(tmp_path, "llama-3.1-8b-instruct-awq", samples="64", batch="4")
    command = make_plan(path).checkpoint_command(make_plan(path).places)
    assert command[command.index("--calib_size") :][:4] == ["--calib_size", "64", "--batch_size", "4"]


def test_the_type_is_an_option(tmp_path: Path) -> None:
    flags = ["llama-2-7b-chat", "--dtype", "bfloat16"]
    commands = json.loads(ok("llm", "plan", *flags, "--json", cwd=tmp_path))["commands"]
    assert commands["checkpoint"][commands["checkpoint"].index("--dtype") + 1] == "bfloat16"
    for plugin in ("--gpt_attention_plugin", "--gemm_plugin"):
        assert commands["engine"][commands["engine"].index(plugin) + 1] == "bfloat16"
    assert run("llm", "plan", *flags[:2], "float8", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("release", BUILDING)
@pytest.mark.parametrize("method", ["none", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "fp8"])
def test_every_command_is_taken_by_its_version(release: str, method: str) -> None:
    """All recipes, parallelisms and quantisations that are not refused, at every release."""
    for name in RECIPES:
        recipe = find_llm_recipe(name)
        for tp, kv_cache in ((1, "same"), (2, "int8")):
            quantisation = Quantisation(method, kv_cache=kv_cache)  # type: ignore[arg-type]
            target, calibrated = find_target(release), method in ("int8_sq", "int4_awq", "fp8") or kv_cache == "int8"
            own_texts = calibrated and target.toolchain.calibration and recipe.architecture.family != "phi"
            made = LlmPlan(replace(recipe, quantisation=quantisation), target, tp, 1, calibration=own_texts)
            version = made.target.tensorrt_llm
            checkpoint, engine = made.checkpoint_command(made.places), made.engine_command(made.places)
            family = recipe.architecture.family
            if family == "phi" and version == "0.10.0":
                taken = llm_stand_in.convert_parser(family, version).parse_args(checkpoint[2:])
                assert taken.model_type == "Phi-3-mini-128k-instruct"
                continue  # nothing but the model's type is taken, and quantisation refused: see below
            if made.quantizes:
                assert checkpoint[1].endswith("/examples/quantization/quantize.py")
                taken = llm_stand_in.quantize_parser(version).parse_args(checkpoint[2:])
                assert taken.qformat == method
            else:
                folder = "examples/models/core" if release >= "25.06" else "examples"
                assert checkpoint[1].endswith(f"/{folder}/{family}/convert_checkpoint.py")
                if kv_cache == "int8" and family == "phi":
                    continue  # refused: see below
                taken = llm_stand_in.convert_parser(family, version).parse_args(checkpoint[2:])
                assert taken.use_weight_only == (method in ("int8_wo", "int4_wo"))
            assert (taken.tp_size, taken.dtype) == (tp, recipe.dtype)
            assert (getattr(taken, "calib_dataset", None) == "/calibration") == own_texts
            check = made.check_command(made.places)
            program = check.index("python3") + 1
            assert check[program].endswith("/examples/run.py")
            assert llm_stand_in.run_parser().parse_args(check[program + 1 :]).input_text == [PROMPT]
            built = llm_stand_in.build_parser(version).parse_args(engine[1:])
            limits = recipe.limits
            assert (built.max_batch_size, built.max_input_len) == (limits.batch, limits.input)
            longest = built.max_output_len + built.max_input_len if version == "0.10.0" else built.max_seq_len
            assert longest == limits.sequence


def test_the_stand_ins_are_strict() -> None:
    for version, wrong in (
        ("0.10.0", ["--max_seq_len", "8"]),
        ("0.13.0", ["--max_output_len", "8"]),
        ("0.10.0", ["--kv_cache_type", "paged"]),
        ("0.13.0", ["--tp_size", "2"]),
        ("0.10.0", ["--gemm_plugin", "auto"]),
        ("1.2.1", ["--strongly_typed"]),
    ):
        with pytest.raises(SystemExit):
            llm_stand_in.build_parser(version).parse_args(wrong)


@pytest.mark.parametrize("name", recipe_names("llm"))
def test_shipped_recipes_are_complete(name: str) -> None:
    recipe = find_llm_recipe(name)
    assert recipe.name == name
    assert recipe.licence
    if recipe.source:
        assert re.fullmatch(r"[0-9a-f]{40}", recipe.revision), "a branch may move: pin a commit"
    make_plan(name)  # for its own release


def test_the_four_recipes_are_there_and_kinds_do_not_mix(tmp_path: Path) -> None:
    assert set(RECIPES) <= set(recipe_names("llm"))
    assert not set(recipe_names("llm")) & set(recipe_names())
    with pytest.raises(ConfigError, match="gpt2-medium is a language model: `vlmsearch llm plan gpt2-medium`"):
        find_recipe("gpt2-medium")
    with pytest.raises(ConfigError, match="demo-clip is an encoder: `vlmsearch build demo-clip`"):
        find_llm_recipe("demo-clip")
    with pytest.raises(ConfigError, match="no model 'gpt2-medium'"):
        find_bundles("gpt2-medium")
    with pytest.raises(ConfigError, match="is the recipe of a language model"):
        find_recipe(f"{data_folder('engines')}/gpt2-medium/")
    with pytest.raises(ConfigError, match="is not a recipe of a language model"):
        find_llm_recipe(f"{data_folder('engines')}/demo-clip/")
    listed = run("models", cwd=tmp_path)
    assert "gpt2-medium" not in listed.stdout + listed.stderr


MINE, SEEING = (
    (data_folder("engines") / name / "recipe.toml").read_text() for name in ("gpt2-medium", "qwen3-vl-2b-instruct")
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('licence = "MIT"', 'licens = "MIT"', "unknown key 'licens'; did you mean 'licence'?"),
        ("kv_heads = 16", "kv_head = 16", "architecture: unknown key 'kv_head'; did you mean 'kv_heads'?"),
        ('dtype = "float16"', 'dtype = "float32"', "dtype is one of float16, bfloat16, not 'float32'"),
        ("heads = 16", "heads = 15", "hidden 1024 is not a multiple of heads 15"),
        ("sequence = 1024", "sequence = 2048", "sequence 2048 is longer than the model's context of 1024"),
        ("input = 768", "input = 1024", "input 1024 leaves no room in sequence 1024"),
        ("tokens = 8192", "tokens = 8", "tokens must be at least batch x beams"),
        ("batch = 64", "batch = 0", "batch must be at least 1"),
        ("batch = 64\ninput = 768", "batch = 1\ninput = 63", "tokens and batch x input must be at least 64, a block"),
        ("layers = 24\n", "", "architecture: layers must be given"),
        ('revision = "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"\n', "", "revision must be given"),
        ("[limits]", '[quantisation]\nmethod = "int3"\n[limits]', "method is one of none, int8_wo"),
        ('kind = "llm"', 'kind = "llms"', "is not a recipe of a language model"),
        ("[vision]", "[visions]", "unknown key 'visions'; did you mean 'vision'?"),
        ('family = "qwen3-vl"', 'family = "llama"', "vision and the parameters of architecture are for qwen2.5-vl"),
        ("[vision]", '[quantisation]\nmethod = "fp8"\n[vision]', "leave quantisation out"),
        ("patch = 16\n", "", "vision: patch must be given"),
    ],
)
def test_a_mistake_in_a_recipe_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    text = next(text for text in (MINE, SEEING) if old in text)
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read_llm_recipe(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_recipe_of_ones_own_is_planned(tmp_path: Path) -> None:
    text = MINE.replace('name = "gpt2-medium"', 'name = "mine"')
    (tmp_path / "mine.toml").write_text(text + '\n[quantisation]\nmethod = "int8_wo"\n')
    made = make_plan(str(tmp_path / "mine.toml"), release="25.06", tp=2, pp=2)
    assert made.ranks == 4
    assert made.products["engine"] == ("config.json", *(f"rank{rank}.engine" for rank in range(4)))
    assert made.checkpoint_command(made.places)[-2:] == ["--weight_only_precision", "int8"]
    assert made.engine_command(made.places)[-2:] == ["--workers", "4"]
    assert made.algorithm == "W8A16"


@pytest.mark.parametrize("place", ["my recipes/mine.toml", "my recipes"])
def test_a_recipe_of_ones_own_is_named_by_its_file_in_commands(tmp_path: Path, place: str) -> None:
    """It has the name of one of vlmsearch."""
    (tmp_path / "my recipes").mkdir()
    for name in ("mine.toml", "recipe.toml"):
        (tmp_path / "my recipes" / name).write_text(SEEING)
    shown = ok("llm", "plan", f"./{place}", cwd=tmp_path)
    command = next(line for line in shown.splitlines() if "vlmsearch llm serve" in line).partition("vlmsearch ")[2]
    file = place if place.endswith(".toml") else f"{place}/recipe.toml"
    assert command.startswith(f"llm serve './{file}' --docker")
    assert "trtllm-serve Qwen/Qwen3-VL-2B-Instruct" in ok(*shlex.split(command), "--dry-run", cwd=tmp_path)


def own(tmp_path: Path, name: str, **changes: str) -> str:
    """A recipe with some lines changed, as a file."""
    text = (data_folder("engines") / name / "recipe.toml").read_text()
    for key, value in changes.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
    if "method" in changes and "[quantisation]" not in text:
        text += "".join(
            ["\n[quantisation]\n", *(f"{k} = {v}\n" for k, v in changes.items() if k in ("method", "kv_cache"))]
        )
    elif "kv_cache" in changes and "kv_cache =" not in text:
        text = text.replace("[quantisation]\n", f"[quantisation]\nkv_cache = {changes['kv_cache']}\n")
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("name", "changes", "choices", "message"),
    [
        ("gpt2-medium", {}, {"release": "1.4.0rc1"}, "1.4.0rc1 builds no engines: the nearest that does is 26.07"),
        ("gpt2-medium", {}, {"tp": 3}, "16 heads and 16 key heads cannot be split in 3$"),
        ("gpt2-medium", {}, {"tp": 13}, "cannot be split in 13$"),
        ("gpt2-medium", {}, {"tp": 0}, "are at least 1, not 0 and 1"),
        ("gpt2-medium", {}, {"pp": 5, "release": "24.06"}, r"split in 5 before 24.09 \(TensorRT-LLM 0.13.0\)"),
        ("gpt2-medium", {}, {"pp": 25}, "24 layers cannot be split in 25$"),
        ("phi-3-mini-128k", {}, {"tp": 2}, "does not support tensor parallelism for it: tp is 1, not 2"),
        ("phi-3-mini-128k", {}, {"pp": 2}, "no pipeline parallelism: pp is 1, not 2"),
        (
            "phi-3-mini-128k",
            {"method": '"int4_awq"'},
            {},
            "not supported for phi: the nearest that can are none, int8_wo, int4_wo",
        ),
        ("phi-3-mini-128k", {"method": '"none"', "kv_cache": '"int8"'}, {}, "the nearest that can is method int8_sq"),
        (
            "llama-2-7b-chat",
            {"method": '"none"', "kv_cache": '"fp8"'},
            {},
            "nearest that can are method fp8 and int4_awq",
        ),
        ("llama-3.1-8b-instruct-awq", {"block_size": "96"}, {}, "not a multiple of block_size 96"),
        ("llama-3.1-8b-instruct-awq", {}, {"release": "24.06"}, "0.10.0 has no llama3 position scaling: .* 24.09 "),
        ("phi-3-mini-128k", {"method": '"int8_wo"'}, {"release": "24.06"}, "0.10.0 quantises no phi: .* is 24.09"),
        ("phi-3-mini-128k", {"method": '"int8_sq"'}, {"release": "24.06"}, "0.10.0 quantises no phi: .* is 24.09"),
        ("phi-3-mini-128k", {"method": '"fp8"'}, {"release": "24.06"}, "0.10.0 quantises no phi: .* is 24.09"),
        ("gpt2-medium", {"method": '"int4_awq"'}, {}, "int4_awq is not supported for gpt"),
        ("gpt2-medium", {}, {"calibration": True}, "without calibration: leave your own calibration texts out"),
        (
            "llama-2-7b-chat",
            {"method": '"fp8"'},
            {"release": "24.06", "calibration": True},
            "the nearest that can is 24.09",
        ),
        ("llama-4", {}, {}, "no language model 'llama-4'; did you mean"),
    ],
)
def test_what_cannot_work_is_refused_with_the_nearest_that_can(
    tmp_path: Path, name: str, changes: dict[str, str], choices: dict[str, object], message: str
) -> None:
    location = own(tmp_path, name, **changes) if changes else name
    with pytest.raises(ConfigError, match=message) as caught:
        make_plan(location, **choices)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("release", "changes", "tokens"),
    [
        ("24.06", {"batch": "4", "input": "256", "sequence": "512"}, 1024),  # batch x input
        ("24.09", {"batch": "4", "input": "256", "sequence": "512"}, 2048),  # batch x sequence
        ("24.09", {"batch": "1", "input": "64", "sequence": "80", "tokens": "64"}, 64),
    ],
)
def test_limits_that_trtllm_build_cuts_are_planned_as_it_cuts_them(
    tmp_path: Path, release: str, changes: dict[str, str], tokens: int
) -> None:
    made = make_plan(own(tmp_path, "gpt2-medium", **changes), release=release)
    version = made.target.tensorrt_llm
    built = llm_stand_in.build_parser(version).parse_args(made.engine_command(made.places)[1:])
    assert built.max_num_tokens == made.tokens == llm_stand_in.token_limit(version, built) == tokens


def test_without_quantisation_only_the_newer_transformers_is_prepared(tmp_path: Path) -> None:
    made = make_plan(own(tmp_path, "llama-3.1-8b-instruct-awq", method='"none"'), release="24.09")
    upgrade = [["pip", "install", "--upgrade", "transformers==4.44.2"]]
    assert [made.preparation(step, made.places) for step in ("checkpoint", "check")] == [upgrade, upgrade]


def test_as_many_parts_as_the_heads_allow_are_planned() -> None:
    made = make_plan("gpt2-medium", tp=16)
    assert made.ranks == 16
    assert made.engine_command(made.places)[-2:] == ["--workers", "16"]


def test_the_supported_releases_are_these() -> None:
    assert {target.release: target.tensorrt_llm for target in targets()} == RELEASES
    for target in targets()[:-1]:
        assert target.image == f"nvcr.io/nvidia/tritonserver:{target.release}-trtllm-python-py3"
        assert target.triton == find_release(target.release).server
        assert all((target.tensorrt, target.cuda, target.engines))
        assert target.python == ("3.12" if target.release >= "25.06" else "3.10")
        assert bool(target.llmapi) == (target.root == "/app") == (target.release >= "25.06")
    last = targets()[-1]
    assert last.image == "nvcr.io/nvidia/tensorrt-llm/release:1.4.0rc1"
    assert (last.engines, last.triton, "qwen3-vl" in last.llmapi) == (None, "", True)


@pytest.mark.parametrize(
    ("release", "nearest"),
    [
        ("24.05", "24.06"), ("24.10", "24.09"), ("25.01", "24.09"), ("25.02", "25.06"), ("26.06", "26.07"),
        ("26.08", "26.07"), ("0.14.0", "24.09"), ("1.3.0rc15", "1.4.0rc1"), ("latest", "1.4.0rc1"),
    ],
)  # fmt: skip
def test_another_release_is_refused_and_the_nearest_named(release: str, nearest: str) -> None:
    near = find_target(nearest)
    with pytest.raises(ConfigError) as caught:
        make_plan("gpt2-medium", release=release)
    assert str(caught.value) == (
        f"TensorRT-LLM of release {release!r} is not supported: the nearest is {nearest} "
        f"(TensorRT-LLM {near.tensorrt_llm}), there are 24.06, 24.09, 25.06, 26.07, 1.4.0rc1"
    )


def test_the_command_prints_a_plan_as_text_and_json(tmp_path: Path) -> None:
    done = run("llm", "plan", "gpt2-medium", "--release", "24.09", cwd=tmp_path)
    assert done.stdout == (PLANS / "gpt2-medium-24.09.txt").read_text()
    done = run("llm", "plan", "gpt2-medium", "--release", "24.09", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == json.loads((PLANS / "gpt2-medium-24.09.json").read_text())
    done = run("llm", "plan", "phi-3-mini-128k", "--tp", "4", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: phi-3-mini-128k for release 24.09: ")
    assert len(done.stderr.splitlines()) == 1
