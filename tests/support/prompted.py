"""The demonstration's text model as one that was trained with prompts and to be cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.paths import ENGINES
from vlmsearch.building.fetch import text_input
from vlmsearch.building.load import load_checkpoint
from vlmsearch.models.recipe import Prompts

QUERY, DOCUMENT = "two stars: ", "a meadow with "
DIMS = [32, 48]


def prompted_minilm(folder: Path) -> Path:
    """A bundle with the model of demo-minilm, of 96 numbers and 64 tokens, which has a name of its own."""
    shutil.copytree(ENGINES / "demo-minilm/bundle", folder)
    place = folder / "bundle.json"
    data = json.loads(place.read_text())
    form = text_input(load_checkpoint(ENGINES / "demo-minilm/checkpoint", Prompts(QUERY, DOCUMENT)))
    for role, prompt in (("query", form.query), ("document", form.document)):
        data["text"][role] = {"text": prompt.text, "ids": list(prompt.ids)}
    data |= {"name": "prompted", "fingerprint": "prompted:da3c33b513c2", "dims": DIMS}
    place.write_text(json.dumps(data))
    return folder
