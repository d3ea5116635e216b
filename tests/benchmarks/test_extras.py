"""What the extras take on the disk."""

import sys
from pathlib import Path

from benchmarks.extras import known_extras, package_sizes


def test_the_packages_of_an_environment_have_their_sizes() -> None:
    sizes = package_sizes(Path(sys.prefix))
    assert sizes["numpy"] > sizes["click"] > 0


def test_the_extras_of_users_are_measured() -> None:
    extras = known_extras()
    assert {"media", "pdf", "all"} < set(extras)
    assert not {"docs", "test"} & set(extras)
