"""A model on disk, read only: bundles, recipes, inputs, and running ONNX files."""
