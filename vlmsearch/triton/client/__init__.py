"""Talking to a Triton server."""
