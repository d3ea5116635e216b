"""Judges of how well a document answers a query, by reading both."""
