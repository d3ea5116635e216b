"""Where the tests find what lies beside them."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
ENGINES = ROOT / "engines"
SHARED = ROOT.parent / "shared" / "data"
"""Real data, where there is some; what needs it is skipped elsewhere."""
