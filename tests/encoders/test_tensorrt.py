"""`tensorrt:` over the stand-in: the encoder contract, the plans it uses, and what it does without them."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest
from click.testing import CliRunner
from vlmsearch_mocks.contracts import EncoderContract

from tests.support.checkpoints import make_recipe
from tests.support.codec_standin import Decoder, pretend_gpu
from tests.support.siglip import make_siglip
from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.gpu import STATE, PretendGpu
from tests.support.tensorrt_standin.quick import quicken
from tests.support.tensorrt_standin.versions import VERSIONS, Version
from vlmsearch._util.extras import install_command
from vlmsearch.building.bundle import build_bundle
from vlmsearch.cli.build import build
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import (
    BackendError,
    ConfigError,
    InvalidBatchError,
    MissingDependencyError,
    ModelUnavailableError,
    QualityError,
)
from vlmsearch.models.recipe import read_recipe
from vlmsearch.registry import open_encoder
from vlmsearch.tensorrt.engine.plans import all_choices, plans_folder
from vlmsearch.types import Vectors

if TYPE_CHECKING:
    from vlmsearch.encoders.tensorrt import TensorRTEncoder

TEXTS = ["a red star", "two large striped circles above a small heart", "", "a ring and a star " * 30, "x"]
PICTURES = [make_scene(i).draw(120) for i in range(5)]
TOWERS = 3


@contextmanager
def machine(version: Version) -> Iterator[PretendGpu]:
    """A pretend GPU with quick builds."""
    with standing_in(version) as state:
        quicken()
        yield state


class _Contract(EncoderContract):
    version: Version

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _machine(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, machine(cls.version):
            patch.setenv("VLMSEARCH_CACHE", str(tmp_path_factory.mktemp("cache")))
            yield

    def make_encoder(self) -> Encoder:
        return open_encoder("tensorrt:demo?precision=fp32")


class TestOnTensorRT8(_Contract):
    version: Version = "8.6"


class TestOnTensorRT11(_Contract):
    version: Version = "11"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))


@pytest.fixture(params=VERSIONS)
def every_gpu(request: pytest.FixtureRequest) -> Iterator[PretendGpu]:
    with machine(request.param) as state:
        yield state


@pytest.fixture
def gpu() -> Iterator[PretendGpu]:
    with machine("8.6") as state:
        yield state


def make(**options: Any) -> TensorRTEncoder:
    encoder = importlib.import_module("vlmsearch.encoders.tensorrt").TensorRTEncoder
    made: TensorRTEncoder = encoder("demo", **{"precision": "fp32", **options})
    return made


def vectors(encoder: Encoder) -> dict[str, Vectors]:
    images = {f"{name}/image": rows for name, rows in encoder.encode_images(PICTURES).items()}
    return encoder.encode_texts(TEXTS) | images


def check(encoder: Encoder, *, near: float = 1e-5) -> None:
    """The vectors are those of ONNX Runtime."""
    with OnnxEncoder("demo", precision="fp32") as reference:
        assert encoder.fingerprint == reference.fingerprint
        assert encoder.spaces == reference.spaces
        expected, found = vectors(reference), vectors(encoder)
    assert expected.keys() == found.keys()
    for name, rows in expected.items():
        np.testing.assert_allclose(found[name], rows, atol=near)


def test_it_makes_the_vectors_of_onnx(every_gpu: PretendGpu) -> None:
    with make() as encoder:
        check(encoder)
        check(encoder)  # as graphs now
        assert len(encoder.engines) == TOWERS
        assert encoder.memory == sum(engine.memory for engine in encoder.engines.values()) > 0
    assert every_gpu.used == 0
    assert not every_gpu.allocations
    assert not every_gpu.objects


def test_engines_are_built_once_and_kept(every_gpu: PretendGpu) -> None:
    make().close()
    assert every_gpu.built == TOWERS
    with make() as encoder:
        check(encoder)
    assert every_gpu.built == TOWERS


def test_engines_of_an_optimization_level_are_found_by_it(gpu: PretendGpu, tmp_path: Path) -> None:
    how = ["--engine", "tensorrt", "--precision", "fp32", "--level", "2", "--report", str(tmp_path)]
    done = CliRunner().invoke(build, ["demo-clip", *how])
    assert done.exit_code == 0, done.output
    built = gpu.built
    with open_encoder("tensorrt:demo-clip?precision=fp32&level=2") as encoder:
        encoder.encode_texts(TEXTS)
    assert gpu.built == built
    open_encoder("tensorrt:demo-clip?precision=fp32").close()
    assert gpu.built > built
    with pytest.raises(ConfigError, match="level is from 0 to 5, not 6"):
        make(level=6)


def test_encoders_that_open_together_build_once(gpu: PretendGpu) -> None:
    with ThreadPoolExecutor(3) as pool:
        encoders = list(pool.map(lambda _: make(), range(3)))
    assert gpu.built == TOWERS
    for encoder in encoders:
        encoder.close()
    assert gpu.used == 0


@pytest.mark.slow
def test_another_tensorrt_or_gpu_gets_engines_of_its_own() -> None:
    for version in VERSIONS:
        with machine(version) as gpu:
            make().close()
            assert gpu.built == TOWERS
            gpu.name = "NVIDIA Other"
            make().close()
            assert gpu.built == 2 * TOWERS
    assert len(list(plans_folder().glob("*.plan"))) == 6 * TOWERS


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: data[:-1] + b"?", lambda data: b""])
def test_a_damaged_plan_is_built_again(gpu: PretendGpu, damage: Callable[[bytes], bytes]) -> None:
    make().close()
    for path in plans_folder().glob("*.plan"):
        path.write_bytes(damage(path.read_bytes()))
    with make() as encoder:
        check(encoder)
    assert gpu.built == 2 * TOWERS
    make().close()
    assert gpu.built == 2 * TOWERS


def test_a_plan_that_cannot_be_read_now_is_kept(gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    make().close()
    read = Path.read_bytes

    def busy(path: Path) -> bytes:
        if path.suffix == ".plan":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", busy)
        with pytest.raises(ModelUnavailableError, match=r"read: Too many open files$"):
            make()
    make().close()
    assert gpu.built == TOWERS


def test_a_build_that_fails_is_an_error(gpu: PretendGpu) -> None:
    gpu.refuse_build = True
    with pytest.raises(BackendError, match="Could not find any implementation"):
        make()
    gpu.refuse_build = False
    gpu.noise["fp32"] = 0.5
    with pytest.raises(QualityError):
        make()
    assert gpu.used == 0


def test_without_a_gpu_it_says_what_is_missing(gpu: PretendGpu) -> None:
    with pytest.raises(ConfigError, match="no GPU 3: there are 1"):
        make(device=3)
    with pytest.raises(ConfigError, match="`contexts` is from 1 to"):
        make(contexts=0)
    gpu.devices = 0
    with pytest.raises(ModelUnavailableError, match=r"no NVIDIA GPU.*onnx: runs without"):
        make()
    gpu.driver = 0
    with pytest.raises(ModelUnavailableError, match="driver is not installed"):
        make()


def test_decoding_on_the_gpu_needs_its_package(gpu: PretendGpu) -> None:
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("nvimgcodec"))):
        make(decode="gpu")
    assert gpu.used == 0


def test_many_jpegs_are_decoded_on_the_gpu() -> None:
    pictures = [make_scene(i).draw(100 + i) for i in range(20)]
    with pretend_gpu("8.6"):
        quicken()
        Decoder.decoded = 0
        with make(batch_size=8) as encoder, make(decode="cpu") as other:
            given: list[Any] = [jpeg(picture) for picture in pictures]
            given[3] = pictures[3]  # this one is no JPEG
            found, expected = encoder.encode_images(given)["clip"], other.encode_images(given)["clip"]
            assert Decoder.decoded == len(given) - 1
            assert (found * expected).sum(axis=1).min() > 0.999
            encoder.encode_images(given[:4])
            assert Decoder.decoded == len(given) - 1, "few are decoded sooner on the CPU"
            assert encoder.prepare_image(given[0]) == given[0]
            assert isinstance(encoder.prepare_image(given[3]), PIL.Image.Image)
            with pytest.raises(InvalidBatchError) as caught:
                encoder.encode_images([b"no image", *given[:5], b"neither", *given[5:], b"nor this"])
            assert list(caught.value.items) == [0, 6, len(given) + 2]
            assert caught.value.vectors is not None
            np.testing.assert_array_equal(caught.value.vectors["clip"], found)
        assert STATE.used == 0


def test_a_decoder_that_does_not_start_is_said() -> None:
    def broken(**options: object) -> None:
        raise RuntimeError("no libnvjpeg")

    with pretend_gpu("8.6"):
        quicken()
        vars(importlib.import_module("nvidia.nvimgcodec"))["Decoder"] = broken
        with pytest.warns(UserWarning, match="decoded on the CPU: nvImageCodec does not start: no libnvjpeg"):
            encoder = make()
        check(encoder)
        encoder.close()
        with pytest.raises(BackendError, match="does not start"):
            make(decode="gpu")
        assert STATE.used == 0


def installed(patch: pytest.MonkeyPatch, folder: Path, package: str, source: str = "") -> None:
    """Put a package into ``nvidia``, which belongs to no wheel: each of CUDA's adds its own."""
    home = folder / package
    home.mkdir()
    (home / "__init__.py").write_text(source)
    shared = ModuleType("nvidia")
    shared.__path__ = [str(folder)]
    patch.setitem(sys.modules, "nvidia", shared)


def test_a_decoder_that_cannot_be_loaded_is_said(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "raise ImportError('libnvjpeg.so.12: cannot open shared object file')"
    installed(monkeypatch, tmp_path, "nvimgcodec", source)
    with pytest.warns(UserWarning, match=r"decoded on the CPU: nvImageCodec cannot be loaded: libnvjpeg.so.12"):
        make().close()
    with pytest.raises(BackendError, match=r"nvImageCodec cannot be loaded: libnvjpeg.so.12"):
        make(decode="gpu")
    assert gpu.used == 0


def test_no_decoder_beside_other_wheels_of_cuda_is_one_that_is_not_installed(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, tmp_path, "cuda_runtime")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().close()
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("nvimgcodec"))):
        make(decode="gpu")
    assert gpu.used == 0


def jpeg(picture: PIL.Image.Image) -> bytes:
    out = BytesIO()
    picture.save(out, "JPEG", quality=95)
    return out.getvalue()


def test_options_come_from_the_url(gpu: PretendGpu) -> None:
    gpu.devices = 2
    url = "tensorrt:demo?precision=fp32&device=1&contexts=1&batch_size=4&decode=cpu"
    with open_encoder(url) as encoder:
        check(encoder)
        engine = next(iter(encoder.engines.values()))  # type: ignore[attr-defined]
        assert engine.max_batch == 4
        assert engine.gpu.index == 1
    with pytest.raises(ConfigError, match="precision of encoder tensorrt: is one of int8, fp16, fp32, auto"):
        open_encoder("tensorrt:demo?precision=int4")


def test_a_profile_gives_the_engine_that_was_built_with_it(gpu: PretendGpu, tmp_path: Path) -> None:
    with open_encoder("tensorrt:demo-minilm?precision=fp32") as encoder:
        whole = encoder.encode_texts(["a star"])
        (engine,) = encoder.engines.values()  # type: ignore[attr-defined]
        memory = engine.memory
    options = ["--engine", "tensorrt", "--precision", "fp32", "--profile", "1,4,16", "--report", str(tmp_path)]
    done = CliRunner().invoke(build, ["demo-minilm", *options])
    assert done.exit_code == 0, done.output
    built = gpu.built
    with open_encoder("tensorrt:demo-minilm?precision=fp32&profile=1,4,16") as encoder:
        (engine,) = encoder.engines.values()  # type: ignore[attr-defined]
        assert engine.max_batch == 16
        assert engine.memory < memory
        np.testing.assert_allclose(encoder.encode_texts(["a star"])["minilm"], whole["minilm"], atol=1e-5)
    assert gpu.built == built == 2
    for wrong in ("8,4", ""):
        with pytest.raises(ConfigError, match=f"'{wrong}' is not the least, usual and greatest batch, as 1,32,256"):
            open_encoder(f"tensorrt:demo-minilm?profile={wrong}")
    with pytest.raises(ConfigError, match="batch_size is at least 8 with profile=8,16,32, not 4"):
        open_encoder("tensorrt:demo-minilm?profile=8,16,32&batch_size=4")


def test_texts_of_all_lengths_run_in_few_shapes(gpu: PretendGpu) -> None:
    with make(contexts=1) as encoder:
        for _ in range(3):
            for words in range(1, 24):
                encoder.encode_texts(["star " * words])
        engine = encoder.engines["demo-minilm", "text"]
        assert 1 <= engine.graphs <= 4


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_texts_of_one_length_have_engines_for_that_length(tmp_path: Path) -> None:
    """SigLIP pads every text to one length and takes images whole."""
    recipe = make_recipe(tmp_path, make_siglip(tmp_path / "checkpoint", positions=16), space="siglip")
    bundle = build_bundle(read_recipe(recipe), out=tmp_path / "tiny-siglip", precisions=["fp32"])
    for version in VERSIONS:
        with machine(version):
            kind = importlib.import_module("vlmsearch.encoders.tensorrt").TensorRTEncoder
            with kind(f"{bundle.folder}/", precision="fp32") as encoder, OnnxEncoder(f"{bundle.folder}/") as reference:
                expected, found = vectors(reference), vectors(encoder)
        for name, rows in expected.items():
            np.testing.assert_allclose(found[name], rows, atol=1e-5)
    built = [ranges for _, plan in all_choices() for profile in plan.key.profiles for ranges in profile]
    lengths = {
        shape for each in built if each.input == "input_ids" for shape in (each.min[1], each.opt[1], each.max[1])
    }
    assert lengths == {16}
