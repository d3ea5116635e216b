"""What a query leaves out, on drawn scenes, where the truth is known."""

import random
from collections.abc import Iterator

import pytest

from vlmsearch import Document, Pipeline
from vlmsearch.demo.queries import SceneQuery, parse_query
from vlmsearch.demo.scenes import COLOURS, SHAPES, Scene, make_scene
from vlmsearch.demo.vocabulary import BACKGROUNDS

SEED, COUNT = 31_000_000, 600
SCENES = {str(i): make_scene(SEED + i) for i in range(COUNT)}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Scenes that no model was trained on, every second one with a caption."""
    store = f"sqlite:{tmp_path_factory.mktemp('exclusion') / 'index'}"
    with Pipeline.open(encoder="onnx:demo", store=store) as opened:
        opened.add(
            Document(id, image=scene.draw(160), text=scene.caption() if int(id) % 2 else None)
            for id, scene in SCENES.items()
        )
        yield opened


def queries(kind: str) -> list[tuple[str, str]]:
    """Up to twenty pairs of what is asked for and what is left out: ten scenes have the one alone, three have both."""
    names = {"shape": list(SHAPES), "colour": list(COLOURS), "background": [said[0] for said in BACKGROUNDS.values()]}
    forms = {"shape": "a {}", "colour": "something {}", "background": "{}"}
    first, second = kind.split(" without ")
    rng, found = random.Random(kind), list[tuple[str, str]]()
    for _ in range(300):
        asked, excluded = (forms[part].format(rng.choice(names[part])) for part in (first, second))
        truth, other = parse_query(asked), parse_query(excluded)
        both = sum(truth.fits(scene) and other.fits(scene) for scene in SCENES.values())
        if asked != excluded and both >= 3 and sum(map(truth.fits, SCENES.values())) >= both + 10:
            found.append((asked, excluded))
    return found[:20]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["shape without colour", "shape without shape", "shape without background", "background without shape"]
)
def test_the_first_ten_have_what_is_asked_for_and_not_what_is_left_out(pipeline: Pipeline, kind: str) -> None:
    def is_right(scene: Scene, truth: SceneQuery, other: SceneQuery) -> bool:
        return truth.fits(scene) and not other.fits(scene)

    pairs = queries(kind)
    right = {"plain": 0, "without": 0}
    shown = dict.fromkeys(right, 0)
    for asked, excluded in pairs:
        truth, other = parse_query(asked), parse_query(excluded)
        for name, matches in (
            ("plain", pipeline.search(asked)),
            ("without", pipeline.search(asked, without=excluded)),
        ):
            shown[name] += len(matches)
            right[name] += sum(is_right(SCENES[match.document.id], truth, other) for match in matches)
    assert len(pairs) >= 10
    assert shown["without"] >= 9 * len(pairs)
    assert right["without"] >= 0.95 * shown["without"]
    assert right["plain"] <= 0.97 * shown["plain"]
