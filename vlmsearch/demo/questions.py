"""Questions about drawn scenes, with the answers that their captions give.

``Gallery(range(1000)).ask(seed)`` draws sources as `Pipeline.ask` would retrieve them, a question about them and the
one right answer, with its citations. The same seed gives the same question on every platform.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from vlmsearch.demo.question_kinds import KINDS, UNANSWERED, pick
from vlmsearch.demo.scenes import Scene, make_scene

__all__ = ["UNANSWERED", "Gallery", "Question"]

_MOST_SOURCES = 8


@dataclass(frozen=True)
class Question:
    """A question about numbered sources and its answer; ``citations`` are the numbers in the answer, ascending."""

    kind: str
    sources: tuple[str, ...]
    question: str
    answer: str
    citations: tuple[int, ...]


class Gallery:
    """Scenes to ask about, by their seeds."""

    def __init__(self, seeds: range) -> None:
        self._scenes = [make_scene(seed) for seed in seeds]
        self._by: dict[str, list[int]] = {}
        for index, scene in enumerate(self._scenes):
            for key in {scene.background, *(g.shape for g in scene.groups), *(g.colour for g in scene.groups)}:
                self._by.setdefault(key, []).append(index)

    def ask(self, seed: int) -> Question:
        """The question that belongs to ``seed``."""
        rng = random.Random(seed)
        first = pick(rng, self._scenes)
        keys = [first.background, first.groups[0].shape, first.groups[0].colour]
        scenes: list[Scene | None] = [first]
        share, images = pick(rng, (0.0, 0.4, 0.8)), pick(rng, (0.0, 0.0, 0.2, 0.5))
        for _ in range(int(rng.random() * _MOST_SOURCES)):
            alike = self._by[pick(rng, keys)] if rng.random() < share else None
            scenes.append(self._scenes[pick(rng, alike)] if alike else pick(rng, self._scenes))
        for index in range(len(scenes)):
            if rng.random() < images:
                scenes[index] = None
        swap = int(rng.random() * len(scenes))
        scenes[0], scenes[swap] = scenes[swap], scenes[0]
        sources = tuple(_source(rng, scene) for scene in scenes)
        kind, make = pick(rng, KINDS)
        question, answer, citations = make(rng, scenes)
        return Question(kind, sources, question, answer, tuple(citations))


def _source(rng: random.Random, scene: Scene | None) -> str:
    if scene is None:
        number = int(rng.random() * 10_000)
        name = pick(rng, (f"scene-{number:04}", f"scene-{number:04}", f"scene-{number:04}", f"image{number}",
                           f"IMG_{number}", f"photo-{number}"))  # fmt: skip
        return f"the image {name}.{pick(rng, ('png', 'png', 'jpg'))}"
    if rng.random() < 0.75:
        return scene.caption()
    return scene.captions(1, int(rng.random() * 1000), style="full")[0]
