"""Procedurally drawn demonstration scenes with captions, used to train and to show the small bundled models."""
