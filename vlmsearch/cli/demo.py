"""``vlmsearch demo``."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from vlmsearch._util.console import make_console
from vlmsearch.cli.ask import print_answer
from vlmsearch.cli.common import command, json_option, option, print_json, print_matches, short_path
from vlmsearch.cli.contact_sheet import Section, write_sheet
from vlmsearch.cli.progress import print_report, progress
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.media.images import open_image
from vlmsearch.pipeline import Pipeline
from vlmsearch.wire import to_json

GALLERY_SEED = 20_000_000
"""First seed of scenes that no training or evaluation used."""
_LIMIT = 6
_QUESTION = "How many white crescents are there?"
"""A question about a picture without a caption."""


@command()
@option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), show_default=True,
        metavar="DIR", help="The folder for the gallery, the index and the page.")  # fmt: skip
@option("--scenes", type=click.IntRange(10, 100_000), default=240, show_default=True, help="Number of scenes to draw.")
@json_option
def demo(out: Path, scenes: int, as_json: bool) -> None:
    """Draw a gallery, index it, search it, and ask about a picture. Works offline.

    Every second scene is indexed with its caption, the others without.
    """
    try:
        table = draw_gallery(out, scenes, quiet=as_json)
    except OSError as exc:
        raise ConfigError(f"cannot draw into {out}: {exc.strerror or exc}: {str(exc.filename or out)!r}") from exc
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{out / 'index'}", generator="onnx:demo-vlm") as pipeline:
        with progress(scenes, quiet=as_json) as advance:
            report = pipeline.index([table], prune=True, on_progress=advance)
        if not as_json:
            print_report(report)
        sections = run_queries(pipeline, out)
        answer = pipeline.ask(_QUESTION)
    page = out / "results.html"
    write_sheet(page, sections)
    if as_json:
        results = [{"query": s.title, "matches": [to_json(match) for match in s.matches]} for s in sections]
        print_json(
            {
                "added": report.added,
                "unchanged": report.unchanged,
                "queries": results,
                "page": str(page.resolve()),
                "answer": to_json(answer),
            }
        )
        return
    console = make_console()
    for section in sections:
        console.print(f"\n{section.title}", style="bold", soft_wrap=True)
        print_matches(section.matches[:3])
    console.print(f"\n{_QUESTION}", style="bold", soft_wrap=True)
    print_answer(answer)
    click.echo(f"\nAll results, with pictures: {short_path(str(page.resolve()))}")
    click.echo(f"To search in a browser, at http://127.0.0.1:8080: {_serve(out)}")


def _serve(out: Path) -> str:
    """Return the command that serves the gallery, as a shell takes it."""
    is_hidden = Path(sys.argv[0]).name == "vlmsearch" and not shutil.which("vlmsearch")  # in an environment
    program = sys.argv[0] if is_hidden else "vlmsearch"
    return shlex.join([program, "serve", "--store", f"sqlite:{out / 'index'}", "--generator", "onnx:demo-vlm"])


def draw_gallery(out: Path, count: int, *, quiet: bool) -> Path:
    """Draw ``count`` scenes as PNG files, and write the table of the gallery.

    Undamaged files that exist stay.
    """
    folder = out / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    if not quiet:
        click.echo(f"drawing {count} scenes into {short_path(str(folder.resolve()))}")
    for number in range(count):
        scene = make_scene(GALLERY_SEED + number)
        path = folder / f"scene-{number:04}.png"
        if not _is_whole(path):
            scene.draw(256).save(path)
        rows.append(_row(scene, number, path))
    table = out / "gallery.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return table


def _is_whole(path: Path) -> bool:
    """Check whether an image exists and is complete."""
    try:
        open_image(path)
    except InvalidInputError:
        return False
    return True


def _row(scene: Scene, number: int, path: Path) -> dict[str, object]:
    objects = sum(group.count for group in scene.groups)
    row: dict[str, object] = {
        "id": path.stem,
        "image": f"gallery/{path.name}",
        "background": scene.background,
        "objects": objects,
    }
    return row if number % 2 else row | {"text": scene.caption()}


def run_queries(pipeline: Pipeline, out: Path) -> list[Section]:
    """Search with a few queries of each kind."""
    picture = out / "gallery" / "scene-0003.png"
    queries: list[tuple[str, dict[str, Any]]] = [
        *((text, {"text": text}) for text in ("a red star", "two green circles", "a heart on the beach")),
        (
            "something yellow, where the background is a night sky",
            {"text": "something yellow", "where": {"background": "night sky"}},
        ),
        (f"like {picture.name}", {"image": picture}),
        (f"like {picture.name}, but blue", {"text": "blue", "image": picture}),
    ]
    return [Section(title, pipeline.search(**query, limit=_LIMIT), query.get("image")) for title, query in queries]
