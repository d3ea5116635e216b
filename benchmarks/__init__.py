"""Measure vlmsearch beside its peers, and what its design rests on: scripts that the wheel does not have.

Run one from the checkout with `python -m benchmarks.NAME --help`; docs/benchmarks.md has the commands of all figures.
"""
