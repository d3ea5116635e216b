"""ONNX files to TensorRT plans that were measured before anybody uses them."""
