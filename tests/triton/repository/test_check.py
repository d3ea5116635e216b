"""Choices about a repository that cannot be, and those that make one that works."""

import pytest

from tests.support.triton_bundles import BOTH
from tests.support.triton_check import faults
from vlmsearch.errors import ConfigError
from vlmsearch.triton.repository.options import Queue, RepoOptions, check_options
from vlmsearch.triton.repository.releases import RELEASES
from vlmsearch.triton.repository.writer import make_configs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RepoOptions(release="23.01"), "no Triton release '23.01' is known here; there are 24.04"),
        (RepoOptions(max_batch_size=0), "`max_batch_size` is at least 1"),
        (RepoOptions(queue=Queue(preferred=(65,))), "`preferred` is from 1 to `max_batch_size`"),
        (RepoOptions(queue=Queue(limit=-1)), "`limit` is at least 0, not -1"),
        (RepoOptions(queue=Queue(limit=2**32)), "`limit` is at most 2147483647"),
        (RepoOptions(queue=Queue(delay_us=2**64)), "`delay_us` is at most"),
        (RepoOptions(queue=Queue(timeout_ms=2**31)), "`timeout_ms` is at most"),
        (RepoOptions(max_batch_size=2**31), "`max_batch_size` is at most 2147483647"),
        (RepoOptions(instances=2**31), "`instances` is at most"),
        (RepoOptions(device="gpu", gpus=(2**31,)), "`gpus` is at most"),
        (RepoOptions(platform="tensorrt", device="cpu"), "platform tensorrt runs on a GPU"),
        (RepoOptions(gpus=(1,)), "`gpus` needs `device=gpu`"),
        (RepoOptions(instances=0), "`instances` is at least 1"),
    ],
)
def test_choices_that_cannot_be_are_refused(options: RepoOptions, message: str) -> None:
    def make() -> None:
        check_options(options)
        make_configs(BOTH, options)

    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("release", RELEASES)
def test_the_defaults_work_with_every_release(release: str) -> None:
    for platform in ("python", "onnxruntime", "tensorrt"):
        assert not faults(list(make_configs(BOTH, RepoOptions(platform=platform, release=release)).values()))
