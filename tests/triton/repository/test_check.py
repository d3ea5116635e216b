"""Choices about a repository that cannot be, and those that make one that works."""

import warnings

import pytest

from tests.support.triton_bundles import BOTH
from tests.support.triton_check import faults
from vlmsearch.errors import ConfigError
from vlmsearch.triton.repository.options import Queue, RepoOptions, check_options
from vlmsearch.triton.repository.releases import (
    DEFAULT_RELEASE,
    NEWEST_RELEASE,
    RELEASES,
    UnknownReleaseWarning,
    find_release,
)
from vlmsearch.triton.repository.writer import make_configs
from vlmsearch.triton.server.install import SERVER


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RepoOptions(release="23.01"), "no Triton release '23.01' is known here: there are 24.04 to 26.11, and newer"),
        (RepoOptions(release="26.13"), "no Triton release '26.13' is known here"),
        (RepoOptions(release="26.12-py3"), "no Triton release '26.12-py3' is known here"),
        (
            RepoOptions(platform="tensorrt"),
            r"give `tensorrt`, which `docker run --rm nvcr.io/nvidia/tritonserver:26.11-py3 printenv TRT_VERSION`",
        ),
        (RepoOptions(platform="tensorrt", tensorrt="11.4"), "`tensorrt` is a whole version, such as .*, not '11.4'"),
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


def test_every_month_has_the_version_of_its_server() -> None:
    months = [f"{year}.{month:02}" for year in range(24, 27) for month in range(1, 13)]
    assert list(RELEASES) == [month for month in months if "24.04" <= month <= "26.11"]
    servers = {name: release.server for name, release in RELEASES.items()}
    assert (servers["25.07"], servers["25.08"], servers[NEWEST_RELEASE]) == ("2.59.1", "2.60.0", "2.75.0")
    assert servers[DEFAULT_RELEASE] == SERVER
    assert str(find_release("25.08")) == "25.08 (2.60.0)"


def test_a_newer_release_is_taken_with_a_warning() -> None:
    with pytest.warns(UnknownReleaseWarning, match=r"Triton 27.01 is newer than 26.11, .* used as that one is"):
        release = find_release("27.01")
    assert (str(release), release.image) == ("27.01", "nvcr.io/nvidia/tritonserver:27.01-py3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_release("26.11").server == "2.75.0"
