"""Model repositories: what is generated, what is refused, and what the files are."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from tests.support.cli import run
from tests.support.paths import GOLDEN
from tests.support.triton_bundles import BOTH, CLIP, MINILM
from tests.support.triton_check import faults
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import find_bundles
from vlmsearch.models.recipe import Shapes
from vlmsearch.triton.client.protocol import Deployment, error_of, ids_tensor, mask_tensor, status_of
from vlmsearch.triton.repository.config import tower_config
from vlmsearch.triton.repository.options import Queue, RepoOptions
from vlmsearch.triton.repository.writer import make_configs, write_repository
from vlmsearch.triton.server.library import library_version

REPOSITORIES = GOLDEN / "triton"

PLATFORMS = {
    "python": RepoOptions(),
    "onnxruntime": RepoOptions(platform="onnxruntime", precision="fp32"),
    "tensorrt": RepoOptions(
        platform="tensorrt",
        release="26.07",
        gpus=(0, 1),
        instances=2,
        max_batch_size=128,
        queue=Queue(preferred=(32, 64), delay_us=300, timeout_ms=30_000),
        response_cache=True,
    ),
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_configurations_are_as_they_were_and_parse_into_what_was_checked(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set VLMSEARCH_GOLDEN=write to write what is generated now."""
    monkeypatch.setenv("VLMSEARCH_CACHE", "/cache")
    configs = make_configs(BOTH, PLATFORMS[platform])
    assert list(configs) == ["clip_image", "clip_text", "minilm", "image_preprocess", "text_tokenize", "vlm"]
    folder = REPOSITORIES / platform
    for name, config in configs.items():
        path = folder / f"{name}.pbtxt"
        text = text_format.MessageToString(config)
        if os.environ.get("VLMSEARCH_GOLDEN") == "write":
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text
        assert text_format.Parse(text, pb.ModelConfig()) == config
    assert not faults(list(configs.values()))


def test_texts_of_one_length_are_served_as_such() -> None:
    form = replace(CLIP.text, max_tokens=64, fill=64)
    configs = make_configs([replace(CLIP, text=form)], PLATFORMS["onnxruntime"])
    assert [list(tensor.dims) for tensor in configs["clip_text"].input] == [[64], [64]]
    outputs = {tensor.name: list(tensor.dims) for tensor in configs["text_tokenize"].output}
    assert outputs[ids_tensor("clip")] == outputs[mask_tensor("clip")] == [64]


def test_a_single_text_model_makes_a_repository() -> None:
    configs = make_configs([MINILM], RepoOptions())
    assert list(configs) == ["minilm", "text_tokenize", "vlm"]
    assert [tensor.name for tensor in configs["vlm"].output] == ["MINILM", "MINILM_TOKENS"]


def test_a_tower_that_decodes_on_the_gpu_has_three_instances_unless_told() -> None:
    def instances(options: RepoOptions) -> dict[str, int]:
        return {
            name: config.instance_group[0].count
            for name, config in make_configs(BOTH, options).items()
            if name in towers
        }

    towers = ("clip_image", "clip_text", "minilm")
    decoding = RepoOptions(runtime="tensorrt", decode="gpu")
    assert instances(decoding) == {"clip_image": 3, "clip_text": 1, "minilm": 1}
    assert instances(replace(decoding, instances=2)) == dict.fromkeys(towers, 2)
    assert instances(replace(decoding, decode="cpu")) == dict.fromkeys(towers, 1)


def test_only_what_runs_on_a_gpu_has_its_number() -> None:
    configs = make_configs(BOTH, RepoOptions(decode="gpu", gpus=(1,)))
    gpus = {name: list(config.instance_group[0].gpus) for name, config in configs.items() if config.instance_group}
    assert gpus == {"clip_image": [], "clip_text": [], "minilm": [], "text_tokenize": [], "image_preprocess": [1]}
    assert configs["clip_image"].instance_group[0].kind == pb.ModelInstanceGroup.KIND_CPU


def test_plans_limit_the_batch() -> None:
    shapes = Shapes(image_batch=(1, 8, 16))
    options = RepoOptions(platform="tensorrt", max_batch_size=64, queue=Queue(preferred=(8, 32)))
    config = tower_config(CLIP, "image", shapes, options)
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [8]
    assert {spec.batch_size for spec in config.optimization.cuda.graph_spec} == {1, 8, 16}
    assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU


def test_a_repository_has_all_that_triton_needs(tmp_path: Path) -> None:
    made = write_repository("demo", tmp_path / "R", RepoOptions())
    assert made.missing == ()
    for name in made.models:
        config = text_format.Parse((made.folder / name / "config.pbtxt").read_text(), pb.ModelConfig())
        assert config.name == name
        assert (made.folder / name / "1").is_dir()
        for sample in config.model_warmup:
            for given in sample.inputs.values():
                assert not given.input_data_file or (made.folder / name / "warmup" / given.input_data_file).is_file()
    clip, minilm = find_bundles("demo")
    assert (made.folder / "clip_image" / "1" / "model.onnx").read_bytes() == clip.model("image", "int8")
    assert (made.folder / "minilm" / "1" / "model.onnx").read_bytes() == minilm.model("text", "int8")
    described = text_format.Parse((made.folder / "vlm" / "config.pbtxt").read_text(), pb.ModelConfig())
    deployment = Deployment.from_json(described.parameters["vlmsearch"].string_value)
    assert deployment.fingerprint == f"{clip.fingerprint}+{minilm.fingerprint}"
    assert deployment.preprocess == clip.preprocess


def test_models_hold_none_of_the_library(repository: Path) -> None:
    found = {str(path.relative_to(repository)): path.read_text() for path in repository.rglob("*.py")}
    assert {name: text.splitlines()[-3] for name, text in found.items()} == {
        f"{name}/1/model.py": f"from vlmsearch.triton.backend.models import {model} as TritonPythonModel"
        for name, model in (
            ("clip_image", "TowerModel"),
            ("clip_text", "TowerModel"),
            ("image_preprocess", "ImageModel"),
            ("minilm", "TowerModel"),
            ("text_tokenize", "TextModel"),
        )
    }


@pytest.mark.slow
def test_requirements_bring_the_library_wherever_pip_is_run(repository: Path, tmp_path: Path) -> None:
    """As a container does it, offline: all but the library is there already in the versions that are named."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--upgrade"]
    pip += ["-r", str(repository / "requirements.txt")]
    done = subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("Would install")] == [
        f"Would install vlmsearch-{library_version()}"
    ]


def test_models_import_only_what_a_server_has() -> None:
    """Neither the packages of stores and of the command line, nor those of other models."""
    lacking = ("chromadb", "click", "pymongo", "rich", "tensorrt", "tomli", "torch", "transformers", "tritonclient")
    code = (
        f"import sys; sys.modules |= dict.fromkeys({lacking}); sys.modules['triton_python_backend_utils'] = sys;"
        "import vlmsearch.triton.backend.models, vlmsearch.triton.backend.towers"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_repository_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    out = tmp_path / "R"
    write_repository("demo", out, RepoOptions())
    write_repository("demo-minilm", out, RepoOptions())
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["minilm", "requirements.txt", "text_tokenize", "vlm", f"vlmsearch-{library_version()}-py3-none-any.whl"]
    )
    shutil.rmtree(out / "vlm")
    with pytest.raises(ConfigError, match="is there and is not a repository of vlmsearch"):
        write_repository("demo", out, RepoOptions())
    with pytest.raises(ConfigError, match="cannot work together: demo-clip, demo-clip"):
        write_repository("demo-clip,demo-clip", tmp_path / "S", RepoOptions())
    assert not (tmp_path / "S").exists()


def test_plans_are_taken_or_named(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "minilm.plan").write_bytes(b"a plan")
    out = tmp_path / "R"
    made = write_repository("demo", out, RepoOptions(platform="tensorrt", release="25.06"), plans=tmp_path / "plans")
    assert (out / "minilm" / "1" / "model.plan").read_bytes() == b"a plan"
    assert made.missing == (out / "clip_image" / "1" / "model.plan", out / "clip_text" / "1" / "model.plan")


def test_the_command_writes_and_refuses(tmp_path: Path) -> None:
    flags = ["--platform", "tensorrt", "--triton", "26.07", "--tensorrt", "11.1.0.106", "--out", "R", "--json"]
    done = run("triton", "repo", "--models", "demo", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["missing"] == [
        f"R/{name}/1/model.plan" for name in ("clip_image", "clip_text", "minilm")
    ]
    for flags, message in (
        (["--triton", "1.0"], "no Triton release '1.0'"),
        (["--platform", "tensorrt"], "give --tensorrt, which `docker run --rm nvcr.io/nvidia/tritonserver:26.11-py3 "),
        (["--gpus", "x"], "--gpus is numbers"),
        (["--gpus", "²"], "--gpus is numbers with a comma between them, not '²'"),
        (["--queue-limit", "-1"], "--queue-limit is at least 0, not -1"),
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
    assert deployment.relevance == {
        ("clip", "image"): CLIP.relevance["image"],
        ("clip", "text"): CLIP.relevance["text"],
        ("minilm", "text"): MINILM.relevance["text"],
    }
    assert deployment.rooms == {
        "clip": {"query": 75, "document": 75},
        "minilm": {"query": 254, "document": 254},
    }
    with pytest.raises(ConfigError, match="are of format 9"):
        Deployment.from_json('{"format": 9}')
    with pytest.raises(ConfigError, match="cannot be read"):
        Deployment.from_json("[]")
    error = error_of("truncated: cut: short")
    assert (error.code, str(error)) == ("truncated", "cut: short")
    assert status_of(error) == "truncated: cut: short"
