"""Checkpoints of transformers by name: the copy on this machine, else the Hugging Face hub's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from vlmsearch.errors import ModelUnavailableError

_TIMEOUT_SECONDS = 10.0
_FAILURES = (OSError, ValueError, RuntimeError)


def load_checkpoint(load: Callable[..., Any], location: str, folder: Path | None, **options: object) -> Any:
    """What ``load``, a ``from_pretrained`` of transformers, makes of ``folder``, or else of the name ``location``.

    A copy that is on this machine is taken as it is; ``revision`` asks for another. ModelUnavailableError where there
    is none and the hub has none or cannot be reached, within seconds: transformers by itself would try for a minute.
    """
    if folder is None:
        try:
            return load(location, local_files_only=True, **options)
        except _FAILURES:
            _ask_hub(location, options.get("revision"))
    try:
        return load(str(folder or location), **options)
    except _FAILURES as exc:
        raise _unavailable(location, exc) from exc


def _ask_hub(location: str, revision: object) -> None:
    """ModelUnavailableError unless the hub has it."""
    try:
        HfApi().model_info(location, revision=str(revision) if revision else None, timeout=_TIMEOUT_SECONDS)
    except Exception as exc:
        raise _unavailable(location, exc) from exc


def _unavailable(location: str, exc: Exception) -> ModelUnavailableError:
    """The error for a model that transformers cannot load."""
    reason = " ".join(str(exc).split())[:200]
    if Path(location).expanduser().is_dir():
        return ModelUnavailableError(f"transformers cannot load {location}: {reason}")
    return ModelUnavailableError(
        f"{location} is not on this machine and cannot be fetched from the Hugging Face hub: {reason}. "
        "transformers:demo-gpt2 works offline, and so does a folder with a checkpoint"
    )
