"""How well a model finds drawn scenes that it has never seen."""

from __future__ import annotations

import tempfile

import numpy as np

from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.pipeline import Pipeline
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.rerank import FIRST, rerank
from vlmsearch.types import Document, Vectors

EVALUATION_SEED = 10_000_000
"""The first seed of the scenes to find; training uses smaller ones."""
_PARAPHRASE = 7
DEPTHS = (1, 10)


def scene_recall(encoder: Encoder, count: int = 1000) -> dict[str, float]:
    """Recall@1 and @10 over ``count`` scenes, each looked for once among all of them.

    With an image tower its picture is looked for by its caption; without one, its caption by a paraphrase.
    """
    scenes = [make_scene(EVALUATION_SEED + i) for i in range(count)]
    captions = [scene.caption() for scene in scenes]
    space = next((space for space in encoder.spaces if "image" in space.modalities), None)
    if space:
        vectors = encoder.encode_images([scene.draw() for scene in scenes])[space.name]
        asked = encoder.encode_texts(captions, role="query")[space.name]
        what = "text to image"
    else:
        if not encoder.spaces:
            raise ConfigError("this encoder has no space to search in")
        name = encoder.spaces[0].name
        paraphrases = [scene.captions(1, _PARAPHRASE, style="full")[0] for scene in scenes]
        asked = encoder.encode_texts(paraphrases, role="query")[name]
        vectors, what = encoder.encode_texts(captions)[name], "paraphrase to text"
    return {f"{what} recall@{depth}": share for depth, share in recall(asked, vectors).items()}


def recall(asked: Vectors, vectors: Vectors) -> dict[int, float]:
    """Return for each depth how often a row's own vector is among the nearest.

    Row i of ``asked`` belongs to row i of ``vectors``.
    """
    scores = asked @ vectors.T
    ranks = (scores > np.diagonal(scores)[:, None]).sum(axis=1)
    return {depth: round(float((ranks < depth).mean()), 4) for depth in DEPTHS}


def reranked_recall(reranker: Reranker, count: int = 1000, first: int = FIRST) -> dict[str, float]:
    """Return how often re-ranking puts the caption of a query's scene first.

    It is measured on queries of ``count`` scenes, beside how often a caption that fits comes first.

    The queries leave things out, so that one may fit several scenes. The captions are found by demo-minilm and by
    words, and the ``first`` of them are read again.
    """
    scenes = [make_scene(EVALUATION_SEED + i) for i in range(count)]
    documents = [Document(str(i), text=scene.caption()) for i, scene in enumerate(scenes)]
    queries = [scene.captions(1, _PARAPHRASE, style="partial")[0] for scene in scenes]
    own: dict[str, list[bool]] = {"without": [], "re-ranked": []}
    fits: dict[str, list[bool]] = {"without": [], "re-ranked": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        Pipeline.open(encoder="onnx:demo-minilm", store=f"sqlite:{folder}/index") as pipeline,
    ):
        pipeline.add(documents)
        for number, query in enumerate(queries):
            matches = pipeline.search(query, limit=first, min_score=0.0)
            asked = parse_query(query)
            again = rerank(query, [(m.document.id, m.score, m.document) for m in matches], reranker, first=first)
            for name, best in (("without", matches[0].document.id), ("re-ranked", again[0].id)):
                own[name].append(best == str(number))
                fits[name].append(asked.fits(scenes[int(best)]))
    figures = {f"partial recall@1 {name}": float(np.mean(hits)) for name, hits in own.items()}
    figures |= {f"partial precision@1 {name}": float(np.mean(hits)) for name, hits in fits.items()}
    return {name: round(share, 4) for name, share in figures.items()}
