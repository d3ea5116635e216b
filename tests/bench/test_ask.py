"""`vlmsearch bench ask`: what is measured, by the number of pictures."""

import json

from tests.support.cli import ok


def test_answers_are_timed_by_the_number_of_pictures() -> None:
    given = ("bench", "ask", "--generator", "mock:?pictures=3", "--questions", "2", "--pictures", "0,2", "--json")
    result = json.loads(ok(*given))
    none, two = result["figures"]
    assert (none["pictures"], none["seen"], none["prompt_tokens"]) == (0, 0, None)
    assert (two["pictures"], two["seen"]) == (2, 2)
    assert two["prompt_tokens"] > 2 * 256
    assert 0 < two["first_ms"] <= two["whole_ms"]
    table = ok("bench", "ask", "--generator", "mock:?pictures=3", "--questions", "1", "--pictures", "1")
    assert "first word ms" in table or "\t1.0\t" in table


def test_numbers_of_pictures_are_checked() -> None:
    from tests.support.cli import run

    done = run("bench", "ask", "--pictures", "two")
    assert (done.returncode, "whole numbers from 0" in done.stderr) == (2, True)
