"""Encoders: texts and images to vectors."""
