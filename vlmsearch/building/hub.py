"""Models of the Hugging Face hub: what a repository holds, and its files on this machine.

Files come by plain HTTP and lie in the cache as huggingface_hub keeps them, so that each of the two finds what the
other downloaded: ``models--ORG--NAME`` with ``blobs``, named by their digests, and ``snapshots`` of links to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import quote

from vlmsearch.building.download import Remote, download, get_json
from vlmsearch.building.quantize import Report, silent
from vlmsearch.building.weights import is_checkpoint, only_pickled
from vlmsearch.errors import ConfigError, ModelUnavailableError, one_line

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
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_CARD, _MAX_NAME, _MAX_SIZE = 2**16, 255, 2**50


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub at one commit, and its files with their sizes.

    A size is None where the hub does not say it.
    """

    source: str
    revision: str
    files: Mapping[str, int | None] = field(hash=False)

    @property
    def weights(self) -> tuple[str, ...]:
        """Return the patterns of the files that hold its weights.

        Safetensors come before PyTorch's own. Empty for none.
        """
        kinds = (_SAFE, _OPEN_CLIP, _PICKLED)
        return next((kind for kind in kinds if any(name in self.files for name in (kind[0], kind[2]))), ())

    def check_weights(self, *, pickled: bool = False) -> None:
        """Raise ConfigError where there are no weights.

        So it is where all are pickled and those are not wanted.
        """
        if not self.weights:
            raise ConfigError(f"{self.source} has no weights that can be read: there is no model.safetensors")
        if self.weights == _PICKLED and not pickled:
            raise ConfigError(only_pickled(self.source))

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """Return the names of the files that match."""
        return sorted(name for name in self.files if any(fnmatch(name, pattern) for pattern in patterns))

    def missing_bytes(self) -> int:
        """Return the bytes of weights that are not on this machine yet.

        Files whose size the hub does not say count as 0.
        """
        folder = _snapshot(self.source, self.revision)
        names = (name for name in self.matching(self.weights) if not (folder / name).is_file())
        return sum(self.files[name] or 0 for name in names)


def hub_cache() -> Path:
    """Return the folder that models of the hub are kept in: ``$HF_HUB_CACHE``, else ``$HF_HOME/hub``."""
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(chosen).expanduser() if chosen else _home() / "hub"


def _home() -> Path:
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or usual).expanduser()


def look_up(source: str, revision: str, advice: str) -> HubModel:
    """Find what a repository holds at a branch, tag or commit, and which commit that is.

    Where the hub cannot be reached, the copy on this machine is taken.

    Args:
        source: ``ORG/NAME``.
        revision: A branch, tag or commit.
        advice: What to do where neither can be had, for the message.

    Raises:
        ModelUnavailableError: The hub cannot be reached or has no such revision, and there is no copy here.
    """
    try:
        _check_online()
        url = f"{_endpoint()}/api/models/{source}/revision/{quote(revision, safe='')}?blobs=true"
        return _read_listing(source, get_json(url, _token()))
    except (OSError, ValueError) as exc:
        kept = kept_folder(source, revision)
        if kept is None:
            raise _unavailable(source, revision, exc, advice) from exc
        return HubModel(source, kept.name, dict.fromkeys(_names(kept)))


def _read_listing(source: str, listing: object) -> HubModel:
    """Return what the hub says of a repository; ValueError where it is no such answer."""
    given = listing if isinstance(listing, dict) else {}
    commit, siblings = given.get("sha"), given.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise ValueError("the hub's answer names no commit")
    files: dict[str, int | None] = {}
    for sibling in siblings:
        name, size = (sibling.get("rfilename"), sibling.get("size")) if isinstance(sibling, dict) else (None, None)
        if not isinstance(name, str) or not (size is None or (type(size) is int and 0 <= size < _MAX_SIZE)):
            raise ValueError("the hub's answer lists what is no file with a size")
        if len(name) <= _MAX_NAME and all(_PART.fullmatch(part) for part in name.split("/")):
            files[name] = size
    return HubModel(source, commit, files)


def fetch(model: HubModel, patterns: Sequence[str], advice: str, report: Report = silent) -> Path:
    """Return the folder with the files of a model that match.

    Missing ones are downloaded. A download that was cut goes on where it was. ModelUnavailableError as `look_up` raises
    it.
    """
    folder = _snapshot(model.source, model.revision)
    names = [name for name in model.matching(patterns) if not (folder / name).is_file()]
    total, done = sum(model.files[name] or 0 for name in names), 0
    for name in names:
        before = done

        def show(count: int, size: int) -> None:
            report(f"downloading {model.source}", before + count, max(total, before + size))  # noqa: B023 - used now

        url = f"{_endpoint()}/{model.source}/resolve/{model.revision}/{quote(name)}"
        try:
            _check_online()
            done += download(Remote(url, _token()), folder.parents[1] / "blobs", folder / name, show)
        except (OSError, ValueError) as exc:
            raise _unavailable(model.source, model.revision, exc, advice) from exc
    return folder


def kept_folder(source: str, revision: str) -> Path | None:
    """Return the folder of a model at a revision in the hub's own cache.

    None where this machine has nothing of it.
    """
    commit = revision
    if not _COMMIT.fullmatch(revision):
        named = _repository(source) / "refs" / revision
        try:
            commit = named.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    folder = _snapshot(source, commit)
    return folder if is_checkpoint(folder) else None


def keep_reference(model: HubModel, revision: str) -> None:
    """Note which commit a branch or tag is, so that it is known without the hub."""
    if not _COMMIT.fullmatch(revision) and _PART.fullmatch(revision):
        path = _repository(model.source) / "refs" / revision
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(model.revision, encoding="ascii")


def _repository(source: str) -> Path:
    return hub_cache() / f"models--{source.replace('/', '--')}"


def _snapshot(source: str, commit: str) -> Path:
    return _repository(source) / "snapshots" / commit


def model_card(folder: Path) -> dict[str, object]:
    """Return what the front matter of a repository's README says of its licence and its languages.

    That is a few lines of YAML between two lines of dashes. Values and lists of values are read, tables are not.
    """
    path = folder / "README.md"
    text = path.read_text(encoding="utf-8", errors="replace")[:_MAX_CARD] if path.is_file() else ""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return {}
    card: dict[str, object] = {}
    listed: list[str] | None = None
    for line in lines[1 : lines.index("---", 1)]:
        item = re.fullmatch(r"\s*-\s+(.*)", line)
        pair = re.fullmatch(r"(\w+):\s*(.*)", line)
        if item and listed is not None:
            listed.append(_scalar(item[1]))
        elif pair:
            value, listed = pair[2].strip(), None
            if not value:
                card[pair[1]] = listed = []
            elif re.fullmatch(r"\[[^\[\]{}]*\]", value):
                card[pair[1]] = [_scalar(part) for part in value[1:-1].split(",")]
            elif value[0] not in "[{":
                card[pair[1]] = _scalar(value)
    return card


def _scalar(text: str) -> str:
    return text.partition(" #")[0].strip().strip("\"'")


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _token() -> str:
    """Return the user's token: ``$HF_TOKEN``, or what ``hf auth login`` wrote; "" for none.

    ValueError, which does not repeat it, where it has characters that no token has.
    """
    given = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if not given:
        with suppress(OSError):
            given = Path(os.environ.get("HF_TOKEN_PATH") or _home() / "token").read_text("ascii", "replace")
    token = given.strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("HF_TOKEN, or the file of the token, holds characters that no token has")
    return token


def _check_online() -> None:
    """Raise OSError where the user wants no connection to the hub."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            raise OSError(f"{name} is set")


def _unavailable(source: str, revision: str, exc: Exception, advice: str) -> ModelUnavailableError:
    place = f"{source} at {revision[:12]}" if revision != "main" else source
    return ModelUnavailableError(f"{place} cannot be downloaded ({one_line(exc, 120)}). {advice}")
