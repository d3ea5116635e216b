"""Chroma, embedded or on a server."""
