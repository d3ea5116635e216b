"""A model on a GPU: TensorRT engines beside ONNX Runtime, and the decoding of JPEGs.

Each contender gets the same batches in the host's memory, uint8 pixels or int32 token ids. It returns float32 vectors
there, like any encoder. The vectors are compared with those of ONNX Runtime in float32 on the CPU.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.extras import install_command, installed_versions
from vlmsearch._util.gpu import find_driver
from vlmsearch._util.machine import available_cores
from vlmsearch.building.inputs import Feed, Feeds, padded_feeds, row_cosines, run, text_feeds
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import ModelUnavailableError, VlmsearchError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import Bundle, Precision, Tower
from vlmsearch.models.inputs import Ids, Pixels, open_tokenizer, to_pixels
from vlmsearch.registry import load
from vlmsearch.types import Vectors

if TYPE_CHECKING:
    from vlmsearch.tensorrt.engine.plans import EnginePrecision

Runtime = Literal["tensorrt", "onnx"]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
BATCHES = (1, 32, 256)
_SAMPLES = 64
"""Images or texts whose vectors are compared."""
_TOKENS = 32
"""The greatest length of the texts, as queries and captions have it."""
_WARM_UP, _MIN_CALLS = 3, 5
_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "tensorrt", "torch", "nvidia-nvimgcodec-cu12")


@dataclass(frozen=True)
class GpuSetting:
    """The GPU's number, the engines, the batch sizes, and the seconds for each figure."""

    device: int = 0
    precisions: Sequence[EnginePrecision] = ("fp16", "int8")
    runtimes: Sequence[Runtime] = RUNTIMES
    batches: Sequence[int] = BATCHES
    seconds: float = 1.0


@dataclass(frozen=True)
class GpuTiming:
    """Calls one after the other, of ``items`` each: the median and the 99th percentile in milliseconds.

    The cosines (mean and least) are those to the vectors of ONNX Runtime in float32; None where no vectors are made.
    """

    task: str
    contender: str
    items: int
    median_ms: float
    p99_ms: float
    mean_cosine: float | None = None
    min_cosine: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it, with items a second."""
        figures = {name: round(v, 6) if isinstance(v, float) else v for name, v in dataclasses.asdict(self).items()}
        return {**figures, "items_per_second": round(self.items_per_second, 1)}

    @property
    def items_per_second(self) -> float:
        """Items a second, in the median call."""
        return 1000 * self.items / self.median_ms


@dataclass(frozen=True)
class LeftOut:
    """A contender that cannot run here, and why."""

    contender: str
    reason: str


class Towers(Protocol):
    """A runner of the towers of a bundle."""

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Return the vectors of one batch of pixels."""
        ...

    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Return the vectors of one batch of token ids."""
        ...

    def close(self) -> None:
        """Free the memory of the model."""
        ...


@dataclass(frozen=True)
class _Samples:
    """Rows of one tower's inputs, and their vectors in float32."""

    rows: Feed
    reference: Vectors


def describe_gpu(device: int) -> dict[str, object]:
    """Return the GPU's name, the driver's CUDA and the versions of the packages that use them.

    ModelUnavailableError where there is no driver or no such GPU.
    """
    driver = find_driver()
    if driver.fault:
        raise ModelUnavailableError(f"nothing can be measured on a GPU: {driver.fault}")
    if not 0 <= device < len(driver.devices):
        raise ModelUnavailableError(f"there is no GPU {device}: there are {len(driver.devices)}, numbered from 0")
    cuda = ".".join(map(str, driver.cuda))
    return {"gpu": driver.devices[device].name, "cuda": cuda, "packages": installed_versions(_PACKAGES)}


def measure_gpu(
    bundle: Bundle,
    jpegs: Sequence[bytes],
    texts: Sequence[str],
    setting: GpuSetting,
    say: Callable[[str], None],
    others: Mapping[str, Callable[[], Towers]] = MappingProxyType({}),
) -> Iterator[GpuTiming | LeftOut]:
    """Time every contender at every batch size, then JPEGs from bytes to vectors.

    Engines are built where need be.

    Args:
        bundle: The model.
        jpegs: Images, for a model with an image tower.
        texts: Texts, for a model with a text tower.
        setting: What to measure.
        say: Takes a line about the next step.
        others: More contenders: functions that open them, by name.

    Yields:
        Timings, and the contenders that are left out.
    """
    say("float32 vectors to compare with, on the CPU")
    samples: dict[Tower, _Samples] = {}
    if bundle.preprocess is not None:
        pixels = np.stack([to_pixels(jpeg, bundle.preprocess) for jpeg in jpegs[:_SAMPLES]])
        samples["image"] = _samples(bundle, "image", {"pixels": pixels})
    if "text" in bundle.towers:
        samples["text"] = _samples(bundle, "text", _ids(bundle, texts[:_SAMPLES]))
    more = ((name, opened, setting.batches) for name, opened in others.items())
    for name, opened, batches in (*_contenders(bundle, setting), *more):
        say(name)
        try:
            with closing(opened()) as towers:
                for tower, sample in samples.items():
                    for batch in batches:
                        yield _time_batch(name, towers, bundle, tower, sample, batch, setting.seconds)
                if isinstance(towers, BundleEncoder) and "image" in samples:
                    yield _time_jpegs(name, towers, bundle, samples["image"], jpegs, setting.seconds)
        except (VlmsearchError, ImportError) as exc:
            yield LeftOut(name, str(exc))
    if bundle.preprocess is not None:
        say("decoding JPEGs")
        yield from _decoding(bundle.preprocess, jpegs, setting)


def _ids(bundle: Bundle, texts: Sequence[str]) -> Feed:
    form = dataclasses.replace(bundle.text, max_tokens=min(_TOKENS, bundle.text.max_tokens))
    feeds = text_feeds(texts, form, open_tokenizer(bundle), len(texts))
    return padded_feeds(feeds, bundle.text).batches[0]


def _samples(bundle: Bundle, tower: Tower, rows: Feed) -> _Samples:
    order = np.arange(len(next(iter(rows.values()))))
    return _Samples(rows, run(bundle.model(tower, "fp32"), Feeds((rows,), order))[0])


def _contenders(bundle: Bundle, setting: GpuSetting) -> Iterator[tuple[str, Callable[[], Towers], Sequence[int]]]:
    """Yield who is measured, how it is opened, and in which batches."""
    if "tensorrt" in setting.runtimes:
        for precision in setting.precisions:
            yield f"tensorrt {precision}", partial(_tensorrt, bundle, setting, precision, decode="cpu"), setting.batches
        if bundle.preprocess is not None:
            first = setting.precisions[0]
            yield f"tensorrt {first}, decode=gpu", partial(_tensorrt, bundle, setting, first, decode="gpu"), ()
    if "onnx" in setting.runtimes:
        for kind in ("fp16", "fp32"):
            if kind in bundle.precisions:
                yield f"onnx {kind}", partial(_onnx, bundle, setting, kind), setting.batches


def _tensorrt(bundle: Bundle, setting: GpuSetting, precision: EnginePrecision, *, decode: str) -> BundleEncoder:
    options = {"device": setting.device, "precision": precision, "decode": decode}
    return _open("tensorrt", bundle, setting, options)


def _onnx(bundle: Bundle, setting: GpuSetting, precision: Precision) -> BundleEncoder:
    return _open("onnx", bundle, setting, {"device": f"cuda:{setting.device}", "precision": precision})


def _open(scheme: str, bundle: Bundle, setting: GpuSetting, options: Mapping[str, object]) -> BundleEncoder:
    encoder: Any = load("encoder", scheme)
    opened: BundleEncoder = encoder(f"{bundle.folder}/", batch_size=max(setting.batches), **options)
    return opened


def _time_batch(
    name: str, towers: Towers, bundle: Bundle, tower: Tower, samples: _Samples, batch: int, seconds: float
) -> GpuTiming:
    """Return one batch size of one tower: the samples, over and over until the batch is full."""
    places = np.arange(batch) % len(samples.reference)
    rows = {key: np.ascontiguousarray(array[places]) for key, array in samples.rows.items()}
    call: Callable[[], Vectors]
    if tower == "image":
        call = partial(towers.run_images, bundle, rows["pixels"])  # type: ignore[arg-type]
    else:
        call = partial(towers.run_texts, bundle, rows["input_ids"], rows["attention_mask"])  # type: ignore[arg-type]
    cosines = row_cosines(call(), samples.reference[places])
    return GpuTiming(f"{tower}s", name, batch, *_time(call, seconds), *_mean_and_min(cosines))


def _time_jpegs(
    name: str, encoder: BundleEncoder, bundle: Bundle, samples: _Samples, jpegs: Sequence[bytes], seconds: float
) -> GpuTiming:
    """From the bytes of all JPEGs to vectors."""
    vectors = encoder.encode_images(jpegs)[bundle.space.name]
    cosines = row_cosines(vectors[: len(samples.reference)], samples.reference)
    times = _time(partial(encoder.encode_images, jpegs), seconds)
    return GpuTiming("JPEG to vectors", name, len(jpegs), *times, *_mean_and_min(cosines))


def _time(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Milliseconds of a call, median and 99th percentile."""
    for _ in range(_WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _MIN_CALLS or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times), float(np.percentile(times, 99))


def _decoding(preprocess: Preprocess, jpegs: Sequence[bytes], setting: GpuSetting) -> Iterator[GpuTiming | LeftOut]:
    """Time the way from the bytes of all JPEGs to pixels, on CPU and GPU."""
    task, cores = "JPEG to pixels", available_cores()
    decode = partial(to_pixels, preprocess=preprocess)
    with ThreadPoolExecutor(cores) as pool:
        times = _time(lambda: list(pool.map(decode, jpegs)), setting.seconds)
        yield GpuTiming(task, f"Pillow on {cores} threads", len(jpegs), *times)
        try:
            from vlmsearch.tensorrt.engine.images import GpuImages

            with GpuImages(preprocess, pool=pool, device=setting.device, batch=max(setting.batches)) as images:
                times = _time(lambda: deque(images.batches(jpegs, {}), maxlen=0), setting.seconds)
                share = images.counts["gpu"] / sum(images.counts.values())
            yield GpuTiming(task, f"nvImageCodec, {share:.0%} on the GPU", len(jpegs), *times)
        except ModuleNotFoundError as exc:
            yield LeftOut("nvImageCodec", f"it needs {exc.name}: {install_command('nvimgcodec')}")
        except (VlmsearchError, ImportError) as exc:
            yield LeftOut("nvImageCodec", str(exc))


def _mean_and_min(cosines: NDArray[np.float32]) -> tuple[float, float]:
    return float(cosines.mean()), float(cosines.min())
