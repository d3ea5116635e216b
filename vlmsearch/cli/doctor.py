"""``vlmsearch doctor``."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import click
from rich.text import Text

from vlmsearch.bundles import PROFILES, built_bundles, cache_folder
from vlmsearch.cli.common import json_option, print_json
from vlmsearch.cli.findings import Finding
from vlmsearch.terminal import make_console

_CODECS = {
    "jpeg": "jpg", "png": "zlib", "gif": "", "webp": "webp", "tiff": "", "bmp": "", "ppm": "", "jpeg 2000": "jpg_2000",
    "avif": "avif",
}  # fmt: skip
"""Image formats, and what Pillow may have been built without."""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this installation; exits 1 where something that every use needs is broken."""
    findings = [finding for check in (_python, _packages, _models, _images, _gpu) for finding in check()]
    broken = [finding for finding in findings if finding.required and not finding.ok]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        console = make_console()
        for finding in findings:
            mark = Text("ok", "green") if finding.ok else Text("no", "red" if finding.required else "yellow")
            console.print(mark, f" {finding.check:<16} {finding.found}", soft_wrap=True)
            if finding.advice:
                console.print(f"    {finding.advice}", soft_wrap=True)
    if broken:
        sys.exit(1)


def _python() -> list[Finding]:
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    return [Finding("python", sys.version_info >= (3, 10), found)]


def _packages() -> list[Finding]:
    findings = []
    for name in ("vlmsearch", "numpy", "tokenizers", "chromadb", "pillow"):
        try:
            findings.append(Finding(name, True, version(name)))
        except PackageNotFoundError:
            findings.append(Finding(name, False, "not installed", f"pip install {name}"))
    return findings


def _models() -> list[Finding]:
    findings = [Finding("model cache", True, str(cache_folder()))]
    built = {bundle.name: bundle.fingerprint for bundle in built_bundles()}
    for profile, names in PROFILES.items():
        missing = [name for name in names if name not in built]
        found = " and ".join(built.get(name, f"{name} is not built") for name in names)
        advice = f"vlmsearch build {' '.join(missing)}" if missing else ""
        findings.append(Finding(f"onnx:{profile}", not missing, found, advice, required=profile == "demo"))
    findings.append(_try("encoding", _encode, "reinstall vlmsearch"))
    return findings


def _encode() -> str:
    import numpy as np

    from vlmsearch.encoders.onnx import OnnxEncoder

    with OnnxEncoder("demo") as encoder:
        vectors = encoder.encode_texts(["a red circle"])
        lengths = [float(np.linalg.norm(rows)) for rows in vectors.values()]
        if not np.allclose(lengths, 1, atol=1e-3):
            raise ValueError(f"vectors of length {lengths}, not 1")
        return f"onnx:demo runs on {', '.join(encoder.providers)}"


def _images() -> list[Finding]:
    from PIL import features

    formats = [name for name, codec in _CODECS.items() if not codec or features.check(codec)]
    findings = [Finding("images", {"jpeg", "png"} <= set(formats), ", ".join(formats))]
    try:
        findings.append(Finding("heic", True, f"pillow-heif {version('pillow-heif')}", required=False))
    except PackageNotFoundError:
        findings.append(Finding("heic", False, "not installed", "pip install 'vlmsearch[heic]'", required=False))
    return findings


def _gpu() -> list[Finding]:
    from vlmsearch.cli.doctor_gpu import gpu_findings

    return gpu_findings()


def _try(check: str, run: Callable[[], str], advice: str) -> Finding:
    """A finding of something that may fail in any way."""
    try:
        return Finding(check, True, run())
    except Exception as exc:  # noqa: BLE001 - a doctor reports whatever there is
        return Finding(check, False, f"{type(exc).__name__}: {exc}", advice)
