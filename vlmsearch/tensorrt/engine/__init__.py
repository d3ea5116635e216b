"""Engines on an NVIDIA GPU: memory and streams, plans on disk, and TensorRT's runtime."""
