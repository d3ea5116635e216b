"""The table of the manual: what is read of a file, and what is said to be not read."""

from pathlib import Path

import pytest

from tests.support import media_matrix

MANUAL = Path(__file__).parents[3] / "docs" / "howto" / "media.md"


@pytest.mark.parametrize("suffix", media_matrix.FORMATS)
def test_nothing_in_a_file_is_lost_and_the_manual_says_so(tmp_path: Path, suffix: str) -> None:
    outcomes = media_matrix.outcomes(suffix, tmp_path)

    assert "lost" not in outcomes.values()
    assert media_matrix.in_manual(MANUAL.read_text())[suffix] == outcomes
