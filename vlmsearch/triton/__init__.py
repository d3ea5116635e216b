"""Serving with Triton: what runs inside its models, and the server itself."""

from pathlib import Path

DASHBOARD = Path(__file__).parent / "grafana.json"
"""A Grafana dashboard for Triton's metrics."""
