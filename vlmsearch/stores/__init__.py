"""Stores: where documents and vectors live."""
