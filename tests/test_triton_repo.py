"""Model repositories: what is generated, what is refused, and what the files are."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from tests.test_cli import run
from vlmsearch.build.recipe import Shapes
from vlmsearch.build.triton import library_modules, make_configs, write_repository
from vlmsearch.build.triton_check import Profile, check_repository
from vlmsearch.build.triton_config import tower_config
from vlmsearch.build.triton_options import Queue, RepoOptions, check_options
from vlmsearch.build.triton_releases import RELEASES, find_release
from vlmsearch.bundles import Bundle, TextInput, data_folder, find_bundles
from vlmsearch.errors import ConfigError
from vlmsearch.media import Preprocess
from vlmsearch.serving.protocol import Deployment, error_of, status_of
from vlmsearch.types import Space

GOLDEN = Path(__file__).parent / "golden" / "triton"

CLIP = Bundle(
    folder=Path("clip"),
    name="clip-vit-base-patch32",
    source="openai/clip-vit-base-patch32",
    revision="3d74acf",
    licence="MIT",
    fingerprint="clip-vit-base-patch32:0123456789ab",
    space=Space("clip", 512, frozenset(("image", "text"))),
    preprocess=Preprocess(224),
    text=TextInput(77, (49406,), (49407,), 49407),
    files={},
    floors={"image": 0.21, "text": 0.5},
    measured={},
    quantisation={},
    forced=(),
)
MINILM = Bundle(
    folder=Path("minilm"),
    name="all-minilm-l6-v2",
    source="sentence-transformers/all-MiniLM-L6-v2",
    revision="abc",
    licence="Apache-2.0",
    fingerprint="all-minilm-l6-v2:ba9876543210",
    space=Space("minilm", 384, frozenset(("text",))),
    preprocess=None,
    text=TextInput(256, (101,), (102,), 0),
    files={},
    floors={"text": 0.2},
    measured={},
    quantisation={},
    forced=(),
)
BOTH = [CLIP, MINILM]
PLATFORMS = {
    "python": RepoOptions(),
    "onnxruntime": RepoOptions(platform="onnxruntime", accelerate="FP16", precision="fp32", release="25.03"),
    "tensorrt": RepoOptions(
        platform="tensorrt",
        release="26.07",
        gpus=(0, 1),
        instances=2,
        max_batch_size=128,
        queue=Queue(preferred=(32, 64), delay_us=300, priorities=2, timeout_ms=30_000),
        max_inflight=64,
        response_cache=True,
        versions="specific:1,2",
    ),
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_configurations_are_as_they_were(platform: str) -> None:
    """Set VLMSEARCH_GOLDEN=write to write what is generated now."""
    configs = make_configs(BOTH, PLATFORMS[platform])
    assert list(configs) == ["clip_image", "clip_text", "minilm", "image_preprocess", "text_tokenize", "vlm"]
    folder = GOLDEN / platform
    for name, config in configs.items():
        path = folder / f"{name}.pbtxt"
        text = text_format.MessageToString(config)
        if os.environ.get("VLMSEARCH_GOLDEN") == "write":
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_file_parses_into_what_was_checked(platform: str) -> None:
    configs = make_configs(BOTH, PLATFORMS[platform])
    parsed = [
        text_format.Parse((GOLDEN / platform / f"{name}.pbtxt").read_text(), pb.ModelConfig()) for name in configs
    ]
    assert parsed == list(configs.values())
    check_repository(parsed, release=find_release(PLATFORMS[platform].release))


def test_a_single_text_model_makes_a_repository() -> None:
    configs = make_configs([MINILM], RepoOptions())
    assert list(configs) == ["minilm", "text_tokenize", "vlm"]
    assert [tensor.name for tensor in configs["vlm"].output] == ["MINILM", "MINILM_TOKENS"]


def test_plans_limit_the_batch() -> None:
    shapes = Shapes(image_batch=(1, 8, 16))
    options = RepoOptions(platform="tensorrt", max_batch_size=64, queue=Queue(preferred=(8, 32)))
    config = tower_config(CLIP, "image", shapes, options)
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [8]
    assert {spec.batch_size for spec in config.optimization.cuda.graph_spec} == {1, 8, 16}
    assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU


Change = Callable[[dict[str, pb.ModelConfig]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "type of an edge": (
        lambda c: setattr(c["clip_image"].input[0], "data_type", pb.TYPE_FP32),
        r"image_preprocess gives UINT8 \[224, 224, 3\], and clip_image's input pixels is FP32",
    ),
    "dims of an edge": (lambda c: c["clip_image"].input[0].dims.__setitem__(0, 336), r"is UINT8 \[336, 224, 3\]"),
    "dims of an output": (lambda c: c["minilm"].output[0].dims.__setitem__(0, 768), "the output MINILM is FP32"),
    "batch of a step": (
        lambda c: setattr(c["clip_text"], "max_batch_size", 8),
        "takes batches of 64, and its step clip_text only 8",
    ),
    "no batching in a step": (lambda c: setattr(c["clip_text"], "max_batch_size", 0), "clip_text's input input_ids"),
    "missing step": (lambda c: c.pop("minilm"), "step minilm is no model of the repository"),
    "missing input": (
        lambda c: c["vlm"].ensemble_scheduling.step[0].input_map.pop("input_ids"),
        "clip_text is not given its input input_ids",
    ),
    "unknown input": (
        lambda c: c["vlm"].ensemble_scheduling.step[0].input_map.update(other="TEXT"),
        "clip_text has no input other",
    ),
    "unknown output": (
        lambda c: c["vlm"].ensemble_scheduling.step[0].output_map.update(other="X"),
        "clip_text has no output other",
    ),
    "nobody makes it": (
        lambda c: c["vlm"].ensemble_scheduling.step[0].input_map.update(input_ids="X"),
        "given X, which nothing makes",
    ),
    "made twice": (
        lambda c: c["vlm"].ensemble_scheduling.step[1].output_map.update(embedding="CLIP_TEXT"),
        "CLIP_TEXT is made by clip_text and by minilm",
    ),
    "no such output": (
        lambda c: c["vlm"].output.add(name="EXTRA", data_type=1, dims=[1]),
        "no step makes its output EXTRA",
    ),
    "unused input": (
        lambda c: c["vlm"].input.add(name="EXTRA", data_type=1, dims=[1]),
        "no step takes its input EXTRA",
    ),
    "optional to required": (
        lambda c: setattr(c["text_tokenize"].input[0], "optional", False),
        "IMAGE may be missing, and text_tokenize cannot do without",
    ),
    "circle": (
        lambda c: c["vlm"].ensemble_scheduling.step[-1].input_map.update(PIECE="CLIP_TEXT"),
        "these steps wait for each other: clip_text, minilm, text_tokenize|wait for each other",
    ),
    "preferred size": (
        lambda c: c["minilm"].dynamic_batching.preferred_batch_size.append(65),
        "preferred batch size 65 is not from 1 to 64",
    ),
    "priority": (
        lambda c: setattr(c["minilm"].dynamic_batching, "default_priority_level", 2),
        "default priority 2 is not one of 0",
    ),
    "warm-up type": (
        lambda c: setattr(c["minilm"].model_warmup[0].inputs["input_ids"], "data_type", pb.TYPE_INT64),
        r"warm-up 'batch of 1': input_ids is INT64",
    ),
    "warm-up size": (lambda c: setattr(c["minilm"].model_warmup[1], "batch_size", 99), "is larger than 64"),
    "warm-up input": (lambda c: c["minilm"].model_warmup[0].inputs.pop("input_ids"), "lacks input_ids"),
    "graphs without TensorRT": (
        lambda c: setattr(c["minilm"].optimization.cuda, "graphs", True),
        "CUDA graphs are for TensorRT plans",
    ),
    "instances of an ensemble": (lambda c: c["vlm"].instance_group.add(count=1), "an ensemble has no instances"),
    "no instance": (lambda c: setattr(c["minilm"].instance_group[0], "count", 0), "has no instance"),
    "a GPU for the CPU": (lambda c: c["minilm"].instance_group[0].gpus.append(0), "it needs a GPU"),
    "too new": (
        lambda c: setattr(c["vlm"].ensemble_scheduling, "max_inflight_requests", 8),
        r"vlm: Triton 24.10 \(2.51.0\) has no max_inflight_requests, which came with 25.11",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_would_not_work_is_found(case: str) -> None:
    configs = {
        name: pb.ModelConfig.FromString(c.SerializeToString()) for name, c in make_configs(BOTH, RepoOptions()).items()
    }
    change, message = BROKEN[case]
    change(configs)
    with pytest.raises(ConfigError, match=message):
        check_repository(list(configs.values()), release=find_release("24.10"))


def test_batches_beyond_a_profile_are_found() -> None:
    configs = make_configs(BOTH, RepoOptions(platform="tensorrt"))
    profiles = {"clip_image": Profile((1, 8, 32)), "minilm": Profile((1, 8, 64), (1, 8, 16))}
    with pytest.raises(ConfigError) as caught:
        check_repository(list(configs.values()), release=find_release("26.07"), profiles=profiles)
    assert "clip_image: batches are of 1 to 64, and its plan takes 1 to 32" in str(caught.value)
    assert "minilm: a CUDA graph is for length 32, and its plan takes 1 to 16" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RepoOptions(release="23.01"), "no Triton release '23.01' is known here; there are 24.04"),
        (
            RepoOptions(release="26.07", platform="onnxruntime", accelerate="FP16"),
            "TensorRT 11, which has no precision_mode FP16",
        ),
        (RepoOptions(max_inflight=4), "max_inflight_requests, which came with 25.11"),
        (RepoOptions(max_batch_size=0), "--max-batch-size is at least 1"),
        (RepoOptions(queue=Queue(preferred=(65,))), "--preferred-batch-size is from 1"),
        (RepoOptions(queue=Queue(limit=-1)), "queue settings are 0 or more"),
        (RepoOptions(platform="tensorrt", device="cpu"), "platform tensorrt runs on a GPU"),
        (RepoOptions(accelerate="FP32"), "--accelerate is TensorRT inside ONNX Runtime"),
        (RepoOptions(platform="onnxruntime", accelerate="INT8"), "--precision qdq"),
        (RepoOptions(gpus=(1,)), "--gpus needs --device gpu"),
        (RepoOptions(versions="newest"), "--versions is latest:N, all or specific:N,M, not 'newest'"),
        (RepoOptions(versions="latest:0"), "--versions is"),
        (RepoOptions(instances=0), "--instances is at least 1"),
    ],
)
def test_choices_that_cannot_be_are_refused(options: RepoOptions, message: str) -> None:
    def make() -> None:
        check_options(options)
        make_configs(BOTH, options)

    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("release", RELEASES)
def test_the_defaults_work_with_every_release(release: str) -> None:
    for platform in ("python", "onnxruntime", "tensorrt"):
        make_configs(BOTH, RepoOptions(platform=platform, release=release))


def test_a_repository_has_all_that_triton_needs(tmp_path: Path) -> None:
    made = write_repository("demo", tmp_path / "R", RepoOptions(version=3))
    assert made.missing == ()
    for name in made.models:
        config = text_format.Parse((made.folder / name / "config.pbtxt").read_text(), pb.ModelConfig())
        assert config.name == name
        assert (made.folder / name / "3").is_dir()
        for sample in config.model_warmup:
            for given in sample.inputs.values():
                assert not given.input_data_file or (made.folder / name / "warmup" / given.input_data_file).is_file()
    clip, minilm = find_bundles("demo")
    assert (made.folder / "clip_image" / "3" / "model.onnx").read_bytes() == clip.model("image", "int8")
    assert (made.folder / "minilm" / "3" / "model.onnx").read_bytes() == minilm.model("text", "int8")
    described = text_format.Parse((made.folder / "vlm" / "config.pbtxt").read_text(), pb.ModelConfig())
    deployment = Deployment.from_json(described.parameters["vlmsearch"].string_value)
    assert deployment.fingerprint == f"{clip.fingerprint}+{minilm.fingerprint}"
    assert deployment.preprocess == clip.preprocess


def test_models_carry_the_library_that_they_import(tmp_path: Path) -> None:
    """And nothing of it that brings in what a server does not have."""
    folder = write_repository("demo", tmp_path / "R", RepoOptions()).folder
    for name in ("image_preprocess", "text_tokenize", "clip_image"):
        version = folder / name / "1"
        carried = {str(path.relative_to(version)) for path in version.glob("vlmsearch/**/*.py")}
        source = {"clip_image": "tower"}.get(name, name)
        needed = library_modules(data_folder("model_repository") / source / "1" / "model.py")
        assert needed <= carried
        for module in needed:
            text = (version / module).read_text()
            assert text == (Path(__file__).parents[1] / module).read_text()
            assert "chromadb" not in text
            assert "tritonclient" not in text


def test_a_repository_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    out = tmp_path / "R"
    write_repository("demo", out, RepoOptions(version=7))
    write_repository("demo-minilm", out, RepoOptions())
    assert sorted(path.name for path in out.iterdir()) == ["minilm", "requirements.txt", "text_tokenize", "vlm"]
    shutil.rmtree(out / "vlm")
    with pytest.raises(ConfigError, match="is there and is no repository of vlmsearch"):
        write_repository("demo", out, RepoOptions())
    with pytest.raises(ConfigError, match="cannot work together: demo-clip, demo-clip"):
        write_repository("demo-clip,demo-clip", tmp_path / "S", RepoOptions())
    assert not (tmp_path / "S").exists()


def test_plans_are_taken_or_named(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "minilm.plan").write_bytes(b"a plan")
    out = tmp_path / "R"
    made = write_repository("demo", out, RepoOptions(platform="tensorrt"), plans=tmp_path / "plans")
    assert (out / "minilm" / "1" / "model.plan").read_bytes() == b"a plan"
    assert made.missing == (out / "clip_image" / "1" / "model.plan", out / "clip_text" / "1" / "model.plan")


def test_the_command_writes_and_refuses(tmp_path: Path) -> None:
    done = run(
        "triton",
        "repo",
        "--models",
        "demo",
        "--platform",
        "tensorrt",
        "--triton",
        "26.07",
        "--out",
        "R",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["missing"] == [
        f"R/{name}/1/model.plan" for name in ("clip_image", "clip_text", "minilm")
    ]
    for flags, message in (
        (
            ["--triton", "26.07", "--platform", "onnxruntime", "--accelerate", "FP16", "--precision", "fp32"],
            "TensorRT 11",
        ),
        (["--triton", "1.0"], "no Triton release '1.0'"),
        (["--gpus", "x"], "--gpus is numbers"),
        (["--precision", "qdq"], "has no precision 'qdq'"),
    ):
        done = run("triton", "repo", "--models", "demo", "--out", "S", *flags, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "S").exists()


def test_what_is_served_and_why_an_item_is_not_survive_the_way() -> None:
    described = make_configs(BOTH, RepoOptions())["vlm"].parameters["vlmsearch"].string_value
    deployment = Deployment.from_json(described)
    assert deployment.to_json() == described
    assert deployment.spaces == (CLIP.space, MINILM.space)
    assert deployment.floors == {("clip", "image"): 0.21, ("clip", "text"): 0.5, ("minilm", "text"): 0.2}
    assert deployment.rooms == {"clip": 75, "minilm": 254}
    with pytest.raises(ConfigError, match="are of format 9"):
        Deployment.from_json('{"format": 9}')
    with pytest.raises(ConfigError, match="cannot be read"):
        Deployment.from_json("[]")
    error = error_of("truncated: cut: short", 4)
    assert (error.code, str(error), error.item) == ("truncated", "cut: short", 4)
    assert status_of(error) == "truncated: cut: short"
