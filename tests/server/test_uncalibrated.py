"""An index of what its model is not made for, behind a service: the client and its users learn of it."""

import warnings
from collections.abc import Iterator

import pytest

from tests.support.service import RunningService, serving
from vlmsearch import UncalibratedWarning, connect
from vlmsearch.building.data import sentences
from vlmsearch.server.settings import IndexSettings, ServerSettings

FIELD = "minilm/text"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(sentences()[:40]):
        (folder / f"{number}.txt").write_text(text)
    index = IndexSettings(f"sqlite:{folder}/index", "onnx:demo-minilm", allow=(str(folder),))
    with serving(ServerSettings({"texts": index}, uploads=str(folder / "uploads"))) as running:
        yield running


def test_a_client_warns_once_and_has_the_reasons(service: RunningService) -> None:
    folder = service.service.settings.indexes["texts"].allow[0]
    with connect(service.url, index="texts") as pipeline:
        with pytest.warns(UncalibratedWarning, match="demo-minilm is made for drawn scenes") as caught:
            report = pipeline.index(folder)
        assert [warning.filename for warning in caught].count(__file__) == 1
        assert report.added == 40
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matches = pipeline.search("the weather")
            pipeline.search_many(["a dog", "a cat"])
        info = pipeline.info()
    with connect(service.url, index="texts") as pipeline, pytest.warns(UncalibratedWarning):
        pipeline.search("the weather")
    local = service.service.indexes["texts"].pipeline.search("the weather")
    assert dict(matches.uncalibrated) == dict(local.uncalibrated) == info["uncalibrated"]
    assert list(matches.uncalibrated) == [FIELD]
