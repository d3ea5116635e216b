"""Bundles without files, of the sizes of real models, for tests of what is generated from them."""

from pathlib import Path

from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import Bundle, TextInput
from vlmsearch.types import RelevanceFit, Space

CLIP = Bundle(
    folder=Path("clip"),
    name="clip-vit-base-patch32",
    source="openai/clip-vit-base-patch32",
    revision="3d74acf",
    licence="MIT",
    fingerprint="clip-vit-base-patch32:0123456789ab",
    space=Space("clip", 512, frozenset(("image", "text"))),
    dims=(),
    preprocess=Preprocess(224),
    text=TextInput(77, (49406,), (49407,), 49407),
    files={},
    relevance={
        "image": RelevanceFit(-5.0, 30.0, 0.0, 0.0, 0.5, 0.1, 0.05),
        "text": RelevanceFit(-9.0, 20.0, 0.0, 0.0, 0.6, 0.2, 0.1),
    },
    measured={},
    quantisation={},
    forced=(),
)
MINILM = Bundle(
    folder=Path("minilm"),
    name="all-minilm-l6-v2",
    source="sentence-transformers/all-MiniLM-L6-v2",
    revision="abc",
    licence="Apache-2.0",
    fingerprint="all-minilm-l6-v2:ba9876543210",
    space=Space("minilm", 384, frozenset(("text",))),
    dims=(),
    preprocess=None,
    text=TextInput(256, (101,), (102,), 0),
    files={},
    relevance={"text": RelevanceFit(-6.0, 20.0, -2.0, -13.0, 0.5, 0.03, 0.09)},
    measured={},
    quantisation={},
    forced=(),
)
BOTH = [CLIP, MINILM]
