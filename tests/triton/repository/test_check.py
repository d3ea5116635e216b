"""What is wrong with a repository is found before it is written."""

from collections.abc import Callable

import pytest
from tritonclient.grpc import model_config_pb2 as pb

from tests.support.triton_bundles import BOTH
from vlmsearch.errors import ConfigError
from vlmsearch.triton.repository.check import PlanProfile, check_repository
from vlmsearch.triton.repository.options import Queue, RepoOptions, check_options
from vlmsearch.triton.repository.releases import RELEASES, find_release
from vlmsearch.triton.repository.writer import make_configs

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
    "missing step": (lambda c: c.pop("minilm"), "step minilm is not a model of the repository"),
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
    profiles = {"clip_image": PlanProfile((1, 8, 32)), "minilm": PlanProfile((1, 8, 64), (1, 8, 16))}
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
        (RepoOptions(max_batch_size=0), "`max_batch_size` is at least 1"),
        (RepoOptions(queue=Queue(preferred=(65,))), "`preferred` is from 1 to `max_batch_size`"),
        (RepoOptions(queue=Queue(limit=-1)), "`limit` is at least 0, not -1"),
        (RepoOptions(queue=Queue(limit=2**32)), "`limit` is at most 4294967295"),
        (RepoOptions(queue=Queue(delay_us=2**64)), "`delay_us` is at most"),
        (RepoOptions(queue=Queue(timeout_ms=2**64 // 1000 + 1)), "`timeout_ms` is at most"),
        (RepoOptions(queue=Queue(priorities=2**64)), "`priorities` is at most"),
        (RepoOptions(max_inflight=-1), "`max_inflight` is at least 0, not -1"),
        (RepoOptions(max_inflight=2**32, release="26.07"), "`max_inflight` is at most"),
        (RepoOptions(max_batch_size=2**31), "`max_batch_size` is at most 2147483647"),
        (RepoOptions(instances=2**31), "`instances` is at most"),
        (RepoOptions(device="gpu", gpus=(2**31,)), "`gpus` is at most"),
        (RepoOptions(version=0), "`version` is at least 1, not 0"),
        (RepoOptions(versions="latest:4294967296"), "`versions` is latest:N"),
        (RepoOptions(versions=f"specific:1,{2**63}"), "`versions` is latest:N"),
        (RepoOptions(versions="specific:2"), "specific:2 serves nothing: it lacks `version` 1"),
        (RepoOptions(versions="specific:1,2", version=3), "lacks `version` 3"),
        (RepoOptions(platform="tensorrt", device="cpu"), "platform tensorrt runs on a GPU"),
        (RepoOptions(accelerate="FP32"), "`accelerate` is TensorRT inside ONNX Runtime"),
        (RepoOptions(platform="onnxruntime", accelerate="INT8"), "`precision=qdq`"),
        (RepoOptions(gpus=(1,)), "`gpus` needs `device=gpu`"),
        (RepoOptions(versions="newest"), "`versions` is latest:N, all or specific:N,M, not 'newest'"),
        (RepoOptions(versions="latest:0"), "`versions` is"),
        (RepoOptions(instances=0), "`instances` is at least 1"),
    ],
)
def test_choices_that_cannot_be_are_refused(options: RepoOptions, message: str) -> None:
    def make() -> None:
        check_options(options)
        make_configs(BOTH, options)

    with pytest.raises(ConfigError, match=message):
        make()


def test_the_largest_numbers_are_taken() -> None:
    queue = Queue(delay_us=2**64 - 1, limit=2**32 - 1, timeout_ms=(2**64 - 1) // 1000, priorities=2**64 - 1)
    options = RepoOptions(
        release="26.07",
        max_batch_size=2**31 - 1,
        instances=2**31 - 1,
        device="gpu",
        gpus=(2**31 - 1,),
        max_inflight=2**32 - 1,
        queue=queue,
        versions=f"specific:{2**63 - 1}",
        version=2**63 - 1,
    )
    check_options(options)
    make_configs(BOTH, options)


@pytest.mark.parametrize("release", RELEASES)
def test_the_defaults_work_with_every_release(release: str) -> None:
    for platform in ("python", "onnxruntime", "tensorrt"):
        make_configs(BOTH, RepoOptions(platform=platform, release=release))
