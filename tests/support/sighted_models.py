"""Models with the tensors of TensorRT-LLM's llmapi model, for repositories of the tests."""

from pathlib import Path

SOURCE = Path(__file__).parent / "sighted_model"
MODELS = {
    "streaming": ("true", "true"),
    "unary": ("false", "true"),
    "ignoring": ("false", "false"),
    "blind": ("false", "false"),
}
"""Whether a model is decoupled, and whether it reads the input for pictures, which the last one has not."""


def write_sighted(repository: Path) -> None:
    """Write the models of ``MODELS`` into a repository."""
    config, code = ((SOURCE / name).read_text() for name in ("config.pbtxt", "model.py"))
    for name, (decoupled, multimodal) in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").write_text(code)
        text = config.replace("NAME", name).replace("DECOUPLED", decoupled).replace("MULTIMODAL", multimodal)
        lines = [line for line in text.splitlines() if name != "blind" or "image_url" not in line]
        (repository / name / "config.pbtxt").write_text("\n".join(lines))
