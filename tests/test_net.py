"""What was mended stays so: each fault of `tests.support.net` is caught by a test."""

import pytest

from tests.support.net import catch_faults, read_faults, table


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_each_fault_of_the_net_is_caught() -> None:
    catches = catch_faults(read_faults())
    print(table(catches))
    assert [catch.fault.commit for catch in catches if not catch.tests] == []
