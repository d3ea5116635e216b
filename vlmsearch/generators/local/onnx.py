"""Language models on ONNX Runtime, in process."""

from __future__ import annotations

from vlmsearch.generators.local.generator import LocalGenerator
from vlmsearch.generators.local.graph import BundleGenerator, OnnxModel
from vlmsearch.generators.local.vision import OnnxVisionGenerator
from vlmsearch.models.generator import open_generator_bundle, sees_pictures
from vlmsearch.models.session import check_threads


class OnnxGenerator(BundleGenerator):
    """A language model on ONNX Runtime: ``onnx:demo-gpt2``, ``onnx:demo-vlm``, or ``onnx:/folder`` with a bundle.

    ``threads`` is how many cores one step is spread over. A bundle that sees pictures, such as ``demo-vlm``, opens as a
    `vlmsearch.generators.local.vision.OnnxVisionGenerator`.
    """

    def __new__(cls, location: str, *, threads: int = 1) -> LocalGenerator:  # type: ignore[misc]
        """Return the generator for the kind of bundle."""
        if sees_pictures(location):
            return OnnxVisionGenerator(location, threads=threads)
        return super().__new__(cls)

    def __init__(self, location: str, *, threads: int = 1) -> None:
        check_threads(threads)
        bundle = open_generator_bundle(location)
        super().__init__(bundle, OnnxModel(bundle, threads))
