"""Plots as files: an SVG, or a page that takes nothing from another place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlmsearch._util.files import replace_file
from vlmsearch._util.markup import escape
from vlmsearch._util.svg import Chart, standalone
from vlmsearch.errors import ConfigError
from vlmsearch.notebook.plots import evaluation_charts, scores_chart
from vlmsearch.notebook.values import to_html
from vlmsearch.search.curves import Evaluation
from vlmsearch.search.scores import IndexScores

_STYLE = (
    ":root{color-scheme:light dark;color:#1d1c1a;background:#fff}"
    "@media (prefers-color-scheme:dark){:root{color:#efece6;background:#161513}}"
    "body{margin:2rem;font-family:system-ui,sans-serif}"
)
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def write_evaluation(path: Path, report: Mapping[str, Any]) -> None:
    """Write the plots of an evaluation; in HTML also its measures.

    Args:
        path: File in .svg or .html.
        report: What ``vlmsearch eval --json`` prints.

    Raises:
        ConfigError: The report has no curves, or the file cannot be written.
    """
    charts = evaluation_charts(report)
    if not charts:
        raise ConfigError("there are no curves to plot: the server is of an earlier version")
    _write(path, f"Evaluation of {report.get('store', 'an index')}", charts, Evaluation(report))


def write_scores(path: Path, scores: IndexScores) -> None:
    """Write the histogram of the scores of an index.

    Args:
        path: File in .svg or .html.
        scores: Scores.

    Raises:
        ConfigError: The file cannot be written.
    """
    _write(path, scores.title, [scores_chart(scores)], scores)


def _write(path: Path, title: str, charts: list[Chart], value: Evaluation | IndexScores) -> None:
    if path.suffix.lower() == ".svg":
        text = standalone(charts, title)
    else:
        text = _PAGE.format(policy=_POLICY, title=escape(title), style=_STYLE, body=to_html(value))
    try:
        replace_file(path, text.encode())
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror}") from exc
