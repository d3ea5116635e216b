"""Models of the Hugging Face hub: what a repository holds, and its files on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from vlmsearch._util.text import drawing_allowed
from vlmsearch.building.weights import is_checkpoint, only_pickled
from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError, VlmsearchError, one_line

SETTINGS = (
    "*_Pooling/config.json",
    "README.md",
    "added_tokens.json",
    "config.json",
    "config_sentence_transformers.json",
    "merges.txt",
    "modules.json",
    "open_clip_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""All that is small: what a model is, and how its inputs are made."""
_SAFE = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
_OPEN_CLIP = (
    "open_clip_model.safetensors",
    "open_clip_model-*-of-*.safetensors",
    "open_clip_model.safetensors.index.json",
)
_PICKLED = ("pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json")
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub at one commit, and the names of its files."""

    source: str
    revision: str
    files: frozenset[str]

    @property
    def weights(self) -> tuple[str, ...]:
        """Return the patterns of the files that hold its weights, safetensors before PyTorch's own; empty for none."""
        kinds = (_SAFE, _OPEN_CLIP, _PICKLED)
        return next((kind for kind in kinds if any(name in self.files for name in (kind[0], kind[2]))), ())

    def check_weights(self, *, pickled: bool = False) -> None:
        """Raise ConfigError where there are no weights, or none but pickled ones and those are not wanted."""
        if not self.weights:
            raise ConfigError(f"{self.source} has no weights that can be read: there is no model.safetensors")
        if self.weights == _PICKLED and not pickled:
            raise ConfigError(only_pickled(self.source))


def look_up(source: str, revision: str, advice: str) -> HubModel:
    """Find what a repository holds at a branch, tag or commit, and which commit that is.

    Where the hub cannot be reached, the copy on this machine is taken.

    Args:
        source: ``ORG/NAME``.
        revision: A branch, tag or commit.
        advice: What to do where neither can be had, for the message.

    Raises:
        ModelUnavailableError: The hub cannot be reached or has no such revision, and there is no copy here.
        MissingDependencyError: huggingface-hub is not installed.
    """
    hub = _library()
    try:
        info = hub.HfApi().model_info(source, revision=revision, timeout=_TIMEOUT_SECONDS)
    except Exception as exc:
        kept = kept_folder(source, revision)
        if kept is None:
            raise _unavailable(source, revision, exc, advice) from exc
        return HubModel(source, kept.name, frozenset(_names(kept)))
    return HubModel(source, str(info.sha), frozenset(file.rfilename for file in info.siblings))


def fetch(model: HubModel, patterns: Sequence[str], advice: str) -> Path:
    """Return the folder with the files of a model that match, downloaded where they are not on this machine yet.

    Progress is shown by the hub's own library. ModelUnavailableError as `look_up` raises it.
    """
    hub = _library()
    try:
        with drawing_allowed():
            return Path(hub.snapshot_download(model.source, revision=model.revision, allow_patterns=list(patterns)))
    except VlmsearchError:
        raise
    except Exception as exc:
        raise _unavailable(model.source, model.revision, exc, advice) from exc


def kept_folder(source: str, revision: str) -> Path | None:
    """Return what this machine has of a model at a revision, in the hub's own cache; None for nothing."""
    try:
        folder = Path(_library().snapshot_download(source, revision=revision, local_files_only=True))
    except (OSError, ValueError):
        return None
    return folder if is_checkpoint(folder) else None


def model_card(folder: Path) -> dict[str, object]:
    """Return what the front matter of a repository's README says: its licence, its languages.

    Empty where it says nothing.
    """
    if not (folder / "README.md").is_file():
        return {}
    from yaml import YAMLError

    try:
        card = _library().metadata_load(folder / "README.md")
    except (RecursionError, ValueError, YAMLError):
        return {}
    return card if isinstance(card, dict) else {}


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _unavailable(source: str, revision: str, exc: Exception, advice: str) -> ModelUnavailableError:
    place = f"{source} at {revision[:12]}" if revision != "main" else source
    return ModelUnavailableError(f"{place} cannot be downloaded ({one_line(exc, 120)}). {advice}")


def _library() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as exc:
        raise MissingDependencyError("downloading needs huggingface-hub: pip install 'vlmsearch[build]'") from exc
    return huggingface_hub
