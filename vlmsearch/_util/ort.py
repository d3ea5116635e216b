"""ONNX Runtime, without its telemetry: the one module that imports it for all others."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read while ONNX Runtime is loaded

import onnxruntime as ort

__all__ = ["ort"]
