"""Bytes or a path to an upright RGB image, and every way that this can fail."""
