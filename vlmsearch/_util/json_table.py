"""A JSON file from outside, read strictly: the first thing wrong with it is one line that says what belongs there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vlmsearch._util.plain import finite_number
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, ModelUnavailableError

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names that are one part of a path, and no other part than themselves."""
ANY_TEXT = re.compile(r"[^\ud800-\udfff]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
_SHOWN = 60


class JsonTable:
    """One table of a file that describes a model. Each method raises ConfigError where the value is another.

    Args:
        data: The content of the table.
        path: The file, for messages.
        place: Where in the file, such as ``text: ``.
    """

    def __init__(self, data: object, path: Path, place: str = "") -> None:
        self._path, self._place = path, place
        if not isinstance(data, dict):
            raise self._wrong("it", "is a table", data)
        self._data: dict[str, object] = data

    @classmethod
    def read(cls, path: Path, *, format: int) -> JsonTable:
        """Read a file whose key ``format`` is this number; ModelUnavailableError where it is none or damaged."""
        try:
            data = parse_json(path.read_text(encoding="utf-8"), with_nan=True)
        except OSError as exc:
            raise ModelUnavailableError(f"{path.parent} is not a bundle: {path.name}: {exc.strerror}") from exc
        except ValueError as exc:
            raise ModelUnavailableError(f"{path} is damaged: {exc}; build it again") from exc
        if not isinstance(data, dict) or data.get("format") != format:
            raise ConfigError(f"{path} is not of format {format}; build it again with this version")
        return cls(data, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def value(self, key: str) -> object:
        """Return the value of a key, whatever it is."""
        if key not in self._data:
            raise ConfigError(f"{self._path} is damaged: {self._place}{key} is missing; build it again")
        return self._data[key]

    def string(self, key: str, form: re.Pattern[str] | None = None) -> str:
        """Return a string of a form, or one without control characters."""
        value = self.value(key)
        if not isinstance(value, str) or not (form.fullmatch(value) if form else value.isprintable()):
            raise self._wrong(key, f"has the form {form.pattern}" if form else "is a printable string", value)
        return value

    def whole(self, key: str, minimum: int, maximum: int) -> int:
        """Return a whole number from ``minimum`` to ``maximum``."""
        return self._whole(key, self.value(key), minimum, maximum)

    def wholes(self, key: str, minimum: int, maximum: int) -> tuple[int, ...]:
        """Return a list of such numbers."""
        return tuple(self._whole(key, value, minimum, maximum) for value in self._list(key))

    def number(self, key: str, minimum: float, maximum: float) -> float:
        """Return a number from ``minimum`` to ``maximum``."""
        value = self.value(key)
        number = finite_number(value)
        if number is None:
            raise self._wrong(key, "is a number", value)
        if not minimum <= number <= maximum:
            raise self._wrong(key, f"is from {minimum:g} to {maximum:g}", value)
        return number

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "is true or false", value)
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "is a list of strings", values)
        return tuple(map(str, values))

    def table(self, key: str, names: re.Pattern[str] | None = None) -> JsonTable:
        """Return a table, whose keys all have the form ``names``."""
        table = JsonTable(self.value(key), self._path, f"{self._place}{key}: ")
        for name in table if names else ():
            if names and not names.fullmatch(name):
                raise self._wrong(key, f"has names of the form {names.pattern}", name)
        return table

    def plain(self) -> dict[str, object]:
        """Return all of it as it is."""
        return self._data

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        """Return one of the strings that are known."""
        value = self.value(key)
        if value not in known:
            raise self._wrong(key, f"is one of {', '.join(known)}", value)
        return str(value)

    def wrong(self, message: str) -> ConfigError:
        """Return the error for values that do not go together."""
        return ConfigError(f"{self._path} is damaged: {self._place}{message}; build it again")

    def _list(self, key: str) -> list[object]:
        value = self.value(key)
        if not isinstance(value, list):
            raise self._wrong(key, "is a list", value)
        return value

    def _whole(self, key: str, value: object, minimum: int, maximum: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self._wrong(key, f"is a whole number from {minimum:,} to {maximum:,}", value)
        return value

    def _wrong(self, key: str, expected: str, value: object) -> ConfigError:
        try:
            given = repr(value)
        except ValueError:  # a number of more digits than Python writes
            given = "that"
        return self.wrong(f"{key} {expected}, not {given[:_SHOWN]}")
