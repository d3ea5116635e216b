"""How near INT8 for TensorRT is to float32: the bundle's file beside those of NVIDIA's Model Optimizer.

Model Optimizer pins its own ONNX and ONNX Runtime, so that it runs in another environment. Both quantise from the same
images. ONNX Runtime computes all files on the CPU, and the vectors are those of images that neither has seen.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import click
import numpy as np

from benchmarks.common import print_figures
from vlmsearch.bench.encode import find_bundle
from vlmsearch.building.data import gather
from vlmsearch.building.inputs import image_feeds, run
from vlmsearch.building.quantize import Drift, drift
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import model_file
from vlmsearch.models.inputs import Pixels
from vlmsearch.models.recipe import Recipe, built_by

VERSION = "0.47.0"
METHODS = ("max", "entropy")


@click.command()
@click.argument("model")
@click.option("--python", required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help=f"The Python of an environment with `pip install 'nvidia-modelopt[onnx]=={VERSION}'`.")  # fmt: skip
def main(model: str, python: str) -> None:
    """Compare the image tower of MODEL in INT8 with Model Optimizer's file."""
    bundle = find_bundle(model)
    if bundle.preprocess is None or model_file("image", "qdq") not in bundle.files:
        raise ConfigError(
            f"{bundle.name} has no image tower in qdq: `vlmsearch build NAME --precision fp32,qdq` makes one of a "
            f"model with images, such as demo-clip"
        )
    recipe = built_by(bundle) or Recipe(bundle.name, bundle.licence, bundle.space.name)
    seen, held_out = (image_feeds(part.pictures, bundle.preprocess) for part in gather(recipe, (), images=True))
    reference, _ = run(bundle.model("image", "fp32"), held_out)
    drifts = {"vlmsearch": drift(reference, run(bundle.model("image", "qdq"), held_out)[0])}
    pixels = np.concatenate([batch["pixels"] for batch in seen.batches])
    with tempfile.TemporaryDirectory() as folder:
        for method in METHODS:
            file = optimize(python, bundle.model("image", "fp32"), pixels, method, Path(folder))
            drifts[f"Model Optimizer, {method}"] = drift(reference, run(file, held_out)[0])
    title = f"{bundle.name}: INT8 of {len(pixels)} images, compared with float32 on {len(reference)} others"
    print_figures(title, ("who", "mean cosine", "least cosine", "overlap@10"), [_row(*pair) for pair in drifts.items()])


def optimize(python: str, model: bytes, pixels: Pixels, method: str, folder: Path) -> bytes:
    """Return a float32 file in INT8, as Model Optimizer quantises it."""
    source, data, target = folder / "model.onnx", folder / "pixels.npy", folder / f"{method}.onnx"
    source.write_bytes(model)
    np.save(data, pixels)
    done = subprocess.run(  # noqa: S603 - the command is the developer's
        [
            python, "-m", "modelopt.onnx.quantization", "--onnx_path", str(source), "--quantize_mode", "int8",
            "--calibration_method", method, "--calibration_data_path", str(data), "--calibration_eps", "cpu",
            "--calibration_shapes", f"pixels:{'x'.join(map(str, pixels[:16].shape))}",
            "--high_precision_dtype", "fp32", "--output_path", str(target), "--log_level", "ERROR",
        ],
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode:
        told = "".join(done.stderr.strip().splitlines()[-1:])
        raise ConfigError(f"{python} did not quantise ({told}): install nvidia-modelopt[onnx]=={VERSION} there")
    return target.read_bytes()


def _row(who: str, measured: Drift) -> tuple[str, ...]:
    return who, f"{measured.mean_cosine:.5f}", f"{measured.min_cosine:.5f}", f"{measured.overlap:.3f}"


if __name__ == "__main__":
    main()
