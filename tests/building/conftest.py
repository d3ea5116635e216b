"""The samples that every build of these tests draws and mixes: the same ones, so that they are made once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import pytest

from vlmsearch.building import compare, relevance, verify
from vlmsearch.demo.scenes import Scene

_draw = lru_cache(maxsize=700)(Scene.draw)
_photographs = cache(compare._photographs)
_queries = cache(relevance.scene_queries)
_texts = cache(verify.tokenizer_cases)


@pytest.fixture(scope="module", autouse=True)
def samples() -> Iterator[None]:
    """Give every build the samples of the first one."""

    def queries(scenes: Sequence[Scene]) -> object:
        return _queries(tuple(scenes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scene, "draw", _draw)
        patch.setattr(compare, "_photographs", lambda pictures: _photographs(tuple(pictures)))
        patch.setattr(relevance, "scene_queries", queries)
        for module in (compare, verify):
            patch.setattr(module, "tokenizer_cases", _texts)
        yield
