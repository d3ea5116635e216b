"""Charts as SVG, by hand: axes with ticks, lines, points, bars, a legend, and a text alternative.

A chart has no background and its ink is ``currentColor``, so that it fits a light and a dark page. `standalone` makes a
file of it, which has both. No chart takes a script, a style sheet or anything from another place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlmsearch._util.markup import escape

COLOURS = ("#2f7fd6", "#c2610c", "#1a8f5c", "#9b5de5")
"""Colours with a contrast of 3.7 with white and with dark pages.

WCAG 2.2 (1.4.11) asks for 3.
"""
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Dashes of lines, so that colour is not all that tells them apart."""
WIDTH = 640
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 28, 58, 48
_LEGEND_STEP = 7.0
"""Width of a character in the legend, at most."""
_FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
_STYLE = (
    ":root{color:#1d1c1a;background:#fff}@media (prefers-color-scheme:dark){:root{color:#efece6;background:#161513}}"
)

Point = tuple[float, float]
"""Place in the area of a chart, from 0 to 1: from the left, and from the bottom."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: Name of what it measures.
        ticks: Places from 0 to 1 with their labels.
    """

    label: str
    ticks: Sequence[tuple[float, str]]


@dataclass
class Chart:
    """A chart that is drawn part by part.

    Attributes:
        title: Heading, also for those who listen.
        description: What the chart shows, in sentences, for those who listen.
        x: Axis at the bottom.
        y: Axis on the left.
        height: Height in pixels; the width is 640.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    height: int = 300
    _parts: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)

    def place(self, point: Point) -> Point:
        """Return the pixels of a place in the area."""
        x, y = point
        return _LEFT + x * (WIDTH - _LEFT - _RIGHT), self.height - _BOTTOM - y * (self.height - _TOP - _BOTTOM)

    def line(self, name: str, points: Sequence[Point | None], *, number: int) -> None:
        """Draw a line through points; it has a gap where there is None.

        Args:
            name: Name in the legend.
            points: Places of the points.
            number: Number of its colour and dash.
        """
        steps, is_drawing = [], False
        for point in points:
            if point is not None:
                steps.append("{}{:.2f} {:.2f}".format("L" if is_drawing else "M", *self.place(point)))
            is_drawing = point is not None
        ink = f'stroke="{COLOURS[number]}" stroke-width="2"' + (
            f' stroke-dasharray="{DASHES[number]}"' if DASHES[number] else ""
        )
        path = f'<path d="{" ".join(steps)}" fill="none" {ink}><title>{escape(name)}</title></path>'
        self._parts += [path] if steps else []
        self._legend.append((name, f'<line x1="0" y1="-4" x2="24" y2="-4" {ink}/>'))

    def bars(self, name: str, bars: Sequence[tuple[float, float, float, str]], *, number: int) -> None:
        """Draw bars.

        Args:
            name: Name in the legend.
            bars: Left and right edge, height, and a title for each.
            number: Number of the colour.
        """
        for left, right, height, title in bars:
            (x, y), (end, base) = self.place((left, height)), self.place((right, 0))
            y = min(y, base - 1)  # a bar that is there is seen
            self._parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(end - x - 1, 1):.2f}" height="{base - y:.2f}" '
                f'fill="{COLOURS[number]}"><title>{escape(title)}</title></rect>'
            )
        self._legend.append((name, f'<rect x="6" y="-10" width="12" height="12" fill="{COLOURS[number]}"/>'))

    def points(self, name: str, points: Sequence[tuple[Point, float, float, str]], *, number: int) -> None:
        """Draw points with the interval of each.

        Args:
            name: Name in the legend.
            points: Place, lower and upper end of the interval, and a title for each.
            number: Number of the colour.
        """
        for point, low, high, title in points:
            (x, y), (_, bottom), (_, top) = (self.place((point[0], value)) for value in (point[1], low, high))
            self._parts.append(
                f'<g stroke="{COLOURS[number]}" stroke-width="2"><title>{escape(title)}</title>'
                f'<line x1="{x:.2f}" y1="{bottom:.2f}" x2="{x:.2f}" y2="{top:.2f}"/>'
                f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{COLOURS[number]}"/></g>'
            )
        self._legend.append((name, f'<circle cx="12" cy="-4" r="4" fill="{COLOURS[number]}"/>'))

    def mark(self, x: float, name: str) -> None:
        """Mark a value of the lower axis with a line across the area and a name."""
        (left, bottom), (_, top) = self.place((x, 0)), self.place((x, 1))
        is_far = x > 0.5  # the name is where there is room
        self._parts.append(
            f'<line x1="{left:.2f}" y1="{bottom:.2f}" x2="{left:.2f}" y2="{top:.2f}" '
            'stroke="currentColor" stroke-width="1.5" stroke-dasharray="3 3"/>'
            f'<text x="{left + (-5 if is_far else 5):.2f}" y="{top - 4:.2f}" '
            f'text-anchor="{"end" if is_far else "start"}">{escape(name)}</text>'
        )

    def row(self, name: str, cells: Sequence[tuple[float, str]]) -> None:
        """Write a row of texts above the area, with its name on the left. Each is over a value of the lower axis."""
        _, top = self.place((0, 1))
        self._parts.append(
            f'<text x="{_LEFT - 8}" y="{top - 6}" text-anchor="end" font-size="10">{escape(name)}</text>'
        )
        for at, text in cells:
            x, _ = self.place((at, 1))
            self._parts.append(
                f'<text x="{x:.2f}" y="{top - 6}" text-anchor="middle" font-size="10">{escape(text)}</text>'
            )

    def diagonal(self, name: str) -> None:
        """Draw a thin line from the lower left to the upper right corner."""
        ends = 'x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"'.format(*self.place((0, 0)), *self.place((1, 1)))
        ink = 'stroke="currentColor" stroke-dasharray="4 4"'
        self._parts.append(f"<line {ends} {ink}/>")
        self._legend.append((name, f'<line x1="0" y1="-4" x2="24" y2="-4" {ink}/>'))

    def svg(self) -> str:
        """Return the chart as an element of SVG for a page."""
        parts = [*self._axes(), *self._parts, *self._named()]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" style="max-width:100%;height:auto" {_FONT}><title>{escape(self.title)}</title>'
            f"<desc>{escape(self.description)}</desc>{''.join(parts)}</svg>"
        )

    def _axes(self) -> list[str]:
        (left, bottom), (right, top) = self.place((0, 0)), self.place((1, 1))
        parts = [f'<text x="{_LEFT}" y="16" font-size="14" font-weight="600">{escape(self.title)}</text>']
        for at, name in self.y.ticks:
            _, y = self.place((0, at))
            parts.append(
                f'<line x1="{left}" y1="{y:.2f}" x2="{right}" y2="{y:.2f}" stroke="currentColor" opacity="0.2"/>'
                f'<text x="{left - 8}" y="{y + 4:.2f}" text-anchor="end">{escape(name)}</text>'
            )
        for at, name in self.x.ticks:
            x, _ = self.place((at, 0))
            parts.append(
                f'<line x1="{x:.2f}" y1="{bottom}" x2="{x:.2f}" y2="{bottom + 5}" stroke="currentColor"/>'
                f'<text x="{x:.2f}" y="{bottom + 18}" text-anchor="middle">{escape(name)}</text>'
            )
        middle = (top + bottom) / 2
        parts.append(
            f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="currentColor"/>'
            f'<text x="{(left + right) / 2}" y="{self.height - 8}" text-anchor="middle">{escape(self.x.label)}</text>'
            f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(self.y.label)}</text>'
        )
        return parts

    def _named(self) -> list[str]:
        x, parts = float(_LEFT), []
        for name, sample in self._legend:
            parts.append(f'<g transform="translate({x:.0f} 36)">{sample}<text x="30">{escape(name)}</text></g>')
            x += 46 + _LEGEND_STEP * len(name)
        return parts


def standalone(charts: Sequence[Chart], title: str) -> str:
    """Return charts below each other as a file, light or dark as the reader has it.

    Args:
        charts: Charts, at least one.
        title: Title of the file.

    Returns:
        An SVG document.
    """
    parts, top = [], 16
    for chart in charts:
        parts.append(f'<svg y="{top}" {chart.svg().removeprefix("<svg ")}')
        top += chart.height + 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )
