"""Checkpoints of transformers by name: the copy on this machine, else the hub's; and loading them, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers.utils import logging

from vlmsearch._util.text import drawing_allowed
from vlmsearch.errors import ModelUnavailableError, one_line
from vlmsearch.models.tokenizers import no_panics

_TIMEOUT_SECONDS = 10.0


def load_checkpoint(
    load: Callable[..., Any], location: str, folder: Path | None, *, revision: str | None, **options: object
) -> Any:
    """Return what ``load``, a ``from_pretrained`` of transformers, makes of ``folder``, else of ``location``.

    A copy that is on this machine is taken as it is; ``revision`` asks for another. ModelUnavailableError where there
    is none and the hub has none or cannot be reached, within seconds: transformers by itself would try for a minute.
    No program of a checkpoint is run, not even where the user would say yes to transformers, which asks on a terminal.
    """
    load = partial(load, trust_remote_code=False)
    if folder is not None:
        try:
            with no_panics(str(folder)):
                return load(str(folder), revision=revision, **options)
        except Exception as exc:
            raise ModelUnavailableError(f"transformers cannot load {folder}: {one_line(exc)}") from exc
    with suppress(Exception):
        return load(location, local_files_only=True, revision=revision, **options)
    try:
        HfApi().model_info(location, revision=revision, timeout=_TIMEOUT_SECONDS)
        with drawing_allowed():
            return load(location, revision=revision, **options)
    except Exception as exc:
        raise ModelUnavailableError(
            f"{location} is not on this machine and cannot be fetched from the Hugging Face hub: {one_line(exc)}. "
            "transformers:demo-gpt2 works offline, and so does a folder with a checkpoint"
        ) from exc


ONE_AT_A_TIME = threading.RLock()
"""Held while transformers loads: it replaces methods of its classes meanwhile, and two threads that do so leave them
replaced for good, after which models come without their weights."""


@contextmanager
def quiet() -> Iterator[None]:
    """Show neither progress bars of transformers nor its lists of tensors."""
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call,unused-ignore]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
