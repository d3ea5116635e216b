"""Curves, as an SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from vlmsearch.errors import ConfigError

_WIDTH, _HEIGHT = 430, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 42, 44
_COLOURS = ("#2563eb", "#d97706", "#dc2626", "#059669")
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.g{stroke:#ddd}.l{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}}</style>"
)


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of all panels: its title, and the marked values, from the least to the highest."""

    title: str
    marks: Sequence[float]
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Panel:
    """One diagram: its title and unit, and curves by name; each is of points (x, y)."""

    title: str
    unit: str
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]]


def write_plot(path: Path, axis: Axis, panels: Sequence[Panel], caption: str) -> None:
    """Write `plot` to a file; ConfigError where it cannot be written."""
    try:
        path.write_text(plot(axis, panels, caption), encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror}") from exc


def plot(axis: Axis, panels: Sequence[Panel], caption: str) -> str:
    """Return an SVG of the panels side by side."""
    width, height = _WIDTH * len(panels), _HEIGHT + 24
    drawn = "".join(
        f'<g transform="translate({number * _WIDTH},0)">{_panel(axis, panel)}</g>'
        for number, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">{_STYLE}{drawn}'
        f'<text x="{_LEFT}" y="{height - 6}">{escape(caption)}</text></svg>\n'
    )


def _panel(axis: Axis, panel: Panel) -> str:
    top = _nice(max((value for _, points in panel.curves for _, value in points), default=1.0))
    scaled = math.log2 if axis.is_logarithmic else float
    low, high = scaled(min(axis.marks)), scaled(max(axis.marks))

    def x(value: float) -> float:
        return _LEFT + (scaled(value) - low) / ((high - low) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_text(_LEFT, 18, f"{panel.title} ({panel.unit})", "t")]
    for step in range(5):
        value = top * step / 4
        parts.append(f'<path class="g" d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:g}", anchor="end"))
    parts += [_text(x(value), _HEIGHT - _BOTTOM + 18, f"{value:g}", anchor="middle") for value in axis.marks]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, axis.title, anchor="middle"))
    for number, (name, points) in enumerate(panel.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline class="l" stroke="{colour}" points="{line}"/>')
        parts += [
            f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"><title>{escape(name)}: {value:.4g} '
            f"{escape(panel.unit)} at {at:.4g}</title></circle>"
            for at, value in points
        ]
        parts.append(f'<path stroke="{colour}" class="l" d="M{_LEFT + 90 * number} 30h14"/>')
        parts.append(_text(_LEFT + 90 * number + 18, 34, name))
    return "".join(parts)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _nice(value: float) -> float:
    """Return the next of 1, 2, 4, 6 and 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(step for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
