"""An index that a later release made is refused, and stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks.contracts.records import SPACES

from tests.support.every_store import store_url
from vlmsearch import ConfigError
from vlmsearch.registry import load, open_store


@pytest.mark.parametrize("kind", ["chroma server", "mongodb", "mongodb+chroma", "postgresql"])
def test_an_index_of_a_later_format_is_refused(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store_url(kind, tmp_path, request)
    later: Any = load("store", url.partition(":")[0])
    with monkeypatch.context() as patch:
        patch.setattr(later, "format", later.format + 1)
        with open_store(url) as store:
            store.bind("model:1", SPACES)
    with (
        open_store(url) as store,
        pytest.raises(ConfigError, match="is of a format that this version of vlmsearch cannot read: upgrade, "),
    ):
        store.manifest()
    with monkeypatch.context() as patch:
        patch.setattr(later, "format", later.format + 1)
        with open_store(url) as store:
            manifest = store.manifest()
    assert manifest is not None
    assert manifest.fingerprint == "model:1"
