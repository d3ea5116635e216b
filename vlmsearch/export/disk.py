"""How a bundle comes onto the disk: whole, or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import FORMAT, Bundle
from vlmsearch.types import Modality

Json = dict[str, object]
_STALE_SECONDS = 24 * 3600
_UNWRITABLE = {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}


def write_description(
    folder: Path, bundle: Bundle, floors: Mapping[Modality, float], measured: Json,
    quantisation: Mapping[str, Json],
    forced: Sequence[str],
) -> None:  # fmt: skip
    """Write ``bundle.json`` for what lies in ``folder``."""
    image, text = bundle.preprocess, bundle.text
    names = sorted(path.name for path in folder.iterdir() if path.name != "bundle.json")
    data: Json = {
        "format": FORMAT,
        "name": bundle.name,
        "source": bundle.source,
        "revision": bundle.revision,
        "licence": bundle.licence,
        "fingerprint": bundle.fingerprint,
        "space": bundle.space.name,
        "dim": bundle.space.dim,
        "image": dataclasses.asdict(image) if image else None,
        "text": dataclasses.asdict(text),
        "files": {name: _entry(folder / name) for name in names},
        "floors": dict(floors),
        "quantisation": dict(quantisation),
        "forced": list(forced),
        "measured": measured,
    }
    text_form = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (folder / "bundle.json").write_text(text_form, encoding="utf-8")


def _entry(path: Path) -> Json:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "size": path.stat().st_size}


def check_target(target: Path) -> None:
    """ConfigError where something else than a bundle is there already, which a bundle would replace."""
    if (target / "bundle.json").is_file() or not target.exists():
        return
    names = [path.name for path in target.iterdir()] if target.is_dir() else [target.name]
    if any(not name.endswith(".onnx") and name != "tokenizer.json" for name in names):  # but for a damaged bundle
        raise ConfigError(f"{target} is there and is not a bundle: name another folder")


@contextmanager
def folder_in_the_making(target: Path) -> Iterator[Path]:
    """A new folder beside ``target``, gone afterwards; a full or read-only disk is one clear error."""
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f".{target.name}.*.building"):
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".building", dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise
        raise ModelUnavailableError(f"{target} cannot be written: {exc.strerror}; try another `out`") from exc


def publish(folder: Path, target: Path) -> None:
    """Put a finished folder in its place, and what was there aside."""
    folder.chmod(0o755)
    aside = folder.with_name(folder.name.replace(".building", ".old.building"))
    for _ in range(3):  # another build may put its own there in between
        if target.exists():
            os.replace(target, aside)
            shutil.rmtree(aside, ignore_errors=True)
        try:
            os.replace(folder, target)
        except OSError:
            if not target.exists():
                raise
        else:
            return
    raise ModelUnavailableError(f"{target} is being written by somebody else; try again")
