"""Arguments of TensorRT-LLM's ``LLM``, written with dots: ``kv_cache_config.enable_block_reuse`` is in a table."""

from __future__ import annotations

from collections.abc import Mapping

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError


def add_arguments(data: dict[str, object], values: Mapping[str, str]) -> dict[str, object]:
    """Return ``data`` with more arguments, in their tables; ConfigError where a table would be no table.

    >>> add_arguments({"model": "m"}, {"kv_cache_config.enable_block_reuse": "false"})
    {'model': 'm', 'kv_cache_config': {'enable_block_reuse': False}}
    """
    for key, value in values.items():
        *tables, name = key.split(".")
        entries: object = data
        for table in tables:
            entries = entries.setdefault(table, {}) if isinstance(entries, dict) else None
        if not isinstance(entries, dict):
            raise ConfigError(f"{key}: {'.'.join(tables)} is no table of arguments")
        entries[name] = _scalar(value)
    return data


def _scalar(value: str) -> object:
    """Return a value as JSON has it, or Python; any other is a text."""
    try:
        return parse_json({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return value
