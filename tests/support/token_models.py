"""Models with the tensors of TensorRT-LLM's engine, which read token ids and answer with them."""

from __future__ import annotations

import shutil
from pathlib import Path

SOURCE = Path(__file__).with_name("token_model")
MODELS = {  # whether it streams, and whether it leaves the prompt out whatever is asked for
    "tokens": (True, False),
    "tokens-unary": (False, False),
    "tokens-unary-without": (False, True),
}


def write_token_models(repository: Path) -> None:
    """Write the models into a repository."""
    text = (SOURCE / "config.pbtxt").read_text()
    for name, (decoupled, without) in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        filled = text.replace("NAME", name).replace("DECOUPLED", str(decoupled).lower())
        (repository / name / "config.pbtxt").write_text(filled.replace("WITHOUT", str(without).lower()))
        shutil.copy(SOURCE / "model.py", repository / name / "1" / "model.py")
