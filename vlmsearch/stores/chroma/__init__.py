"""Chroma, on a server."""
