"""First use of ``onnx:default``, measured: models with random weights in the real sizes, from a hub on this machine.

``python -m tests.support.first_use VLMSEARCH PHOTOS`` runs the program ``VLMSEARCH``, such as that of an environment
without torch, on a folder of photographs. It prints the seconds, those of all cores together, and the peak of memory.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.hub import Hub
from tests.support.siglip import make_siglip
from tests.support.text_models import make_text_model
from vlmsearch.models.bundle import PROFILES
from vlmsearch.models.recipe import find_recipe


def serve(folder: Path) -> Hub:
    """A hub with the two models of the default."""
    images, texts = (find_recipe(name) for name in PROFILES["default"])
    make_siglip(
        folder / "images", size=256, patch=32, width=768, heads=12, layers=12, inner=3072, positions=64, weaker=4.0,
        words=256_000,
    )  # fmt: skip
    make_text_model(
        folder / "texts", "bert", real=True, limit=512, hidden_size=384, num_hidden_layers=12, num_attention_heads=12,
        intermediate_size=1536, vocab_size=250_037,
    )  # fmt: skip
    hub = Hub({images.source: folder / "images", texts.source: folder / "texts"})
    hub.commits = {recipe.source: recipe.revision for recipe in (images, texts)}
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    return hub


def main(program: str, photos: str) -> None:
    """Measure ``vlmsearch index``."""
    with tempfile.TemporaryDirectory() as folder:
        hub = serve(Path(folder))
        settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": f"{folder}/hf", "VLMSEARCH_CACHE": f"{folder}/cache"}
        begun = time.monotonic()
        subprocess.run(
            [program, "index", photos, "--store", f"sqlite:{folder}/index"], env=os.environ | settings, check=True
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of cores, ", end="")
        print(f"{used.ru_maxrss / 2**20:.2f} GiB at most")


if __name__ == "__main__":
    main(*sys.argv[1:])
