"""The same small gallery over vlmsearch and over chromadb: lines of code, megabytes and minutes.

Each contender has a program and its tests in ``programs/``: pictures and notes with metadata are indexed, searched by
text and filter, added, deleted, and served over HTTP. Each gets an empty environment, from `pip install` on. The model
is that of the demonstration for both. chromadb gets it as an embedding function whose lines are not counted, for the
one that it has by default downloads a model and reads no pictures. ``--postgres URL`` has vlmsearch keep another index
in an empty database of PostgreSQL.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

import click

from benchmarks.common import print_figures
from vlmsearch.demo.scenes import make_scene
from vlmsearch.models.bundle import data_folder

PROGRAMS, ROOT = Path(__file__).parent / "programs", Path(__file__).parents[1]
COMMON = ("fastapi", "httpx", "pytest", "uvicorn")
PACKAGES = {"vlmsearch": (f"{ROOT}[postgresql]", *COMMON), "chromadb": ("chromadb", "pillow", *COMMON)}
NOTE = "a grey heron in the reeds"
_START_SECONDS = 120


@dataclass
class Workplace:
    """An empty environment and a folder with the data and the programs of a contender."""

    folder: Path
    name: str

    def run(self, *command: str, **environment: str) -> str:
        """Run a Python command, and return what it prints: ClickException where it fails."""
        done = subprocess.run(  # noqa: S603 - the programs beside this one
            [str(self.python), *command], cwd=self.folder, env=self._environment(environment), capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise click.ClickException(f"{' '.join(command)} of {self.name} failed: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.folder / "venv" / "bin" / "python"

    def prepare(self, documents: int) -> None:
        """Write the data, and copy the programs and the model of the demonstration."""
        (self.folder / "photos").mkdir(parents=True)
        rows: list[dict[str, object]] = []
        for number in range(documents):
            path = self.folder / "photos" / f"{number}.jpg"
            make_scene(number).draw(512).save(path, quality=90)
            text = NOTE if number == documents // 2 else make_scene(number).caption()
            year = 2000 + number % 25
            rows.append({"id": f"photo-{number}", "image": f"photos/{path.name}", "year": year})
            rows.append({"id": f"note-{number}", "text": text, "year": year})
        lines = (json.dumps(row) + "\n" for row in rows)
        (self.folder / "gallery.jsonl").write_text("".join(lines), encoding="utf-8")
        for program in PROGRAMS.glob(f"{self.name}_*.py"):
            shutil.copy(program, self.folder)
        if self.name == "chromadb":
            shutil.copytree(data_folder("engines") / "demo-clip" / "bundle", self.folder / "model")

    def install(self, packages: Sequence[str]) -> None:
        """Make the environment."""
        venv.create(self.folder / "venv", with_pip=True)
        self.run("-m", "pip", "install", "-q", *packages)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run the program as a service, and give its address when it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            str(self.python),
            "-m",
            "uvicorn",
            f"{self.name}_app:app",
            "--port",
            str(port),
            "--log-level",
            "error",
        ]
        with subprocess.Popen(command, cwd=self.folder, env=self._environment({})) as server:  # noqa: S603
            try:
                for _ in range(_START_SECONDS * 10):
                    try:
                        fetch(f"http://127.0.0.1:{port}/openapi.json")
                        break
                    except URLError:
                        time.sleep(0.1)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def fetch(url: str, method: str = "GET") -> object:
    """Send a request, and return the JSON of the answer."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:  # noqa: S310 - HTTP
        return json.loads(answer.read() or "null")


def measure(name: str, folder: Path, documents: int, postgres: str | None) -> dict[str, str]:
    """Do the whole task with one contender.

    Args:
        name: The contender.
        folder: An empty folder.
        documents: The number of photographs, and of notes.
        postgres: URL of an empty database, if there is one.

    Returns:
        Figures by their names.
    """
    place, wanted = Workplace(folder, name), f"note-{documents // 2}"
    place.prepare(documents)
    started = time.monotonic()
    place.install(PACKAGES[name])
    installed = time.monotonic()
    _check(place.run(f"{name}_app.py").strip(), wanted)
    first = time.monotonic()
    place.run("-m", "pytest", "-q", f"{name}_test.py")
    with place.serving() as address:
        query = f"{address}/search?text={NOTE.replace(' ', '%20')}&since=2000"
        _check(fetch(query)[0]["id"], wanted)  # type: ignore[index]
        fetch(f"{address}/documents/{wanted}", "DELETE")
        _check(f"'{wanted}'" in str(fetch(query)), False)
    if postgres and name == "vlmsearch":
        _check(place.run(f"{name}_app.py", GALLERY_STORE=postgres).strip(), wanted)
    ended = time.monotonic()
    program, tests = (_lines_of(PROGRAMS / f"{name}_{part}.py") for part in ("app", "test"))
    weight = sum(path.lstat().st_size for path in (folder / "venv" / "lib").rglob("*") if path.is_file())
    return {
        "lines of the program": str(program),
        "lines of its tests": str(tests),
        "MB installed": f"{weight / 2**20:.0f}",
        "minutes of pip install": f"{(installed - started) / 60:.1f}",
        "seconds from then to the first result": f"{first - installed:.1f}",
        "minutes in all": f"{(ended - started) / 60:.1f}",
        "an index in PostgreSQL": ("tried" if postgres else "not tried") if name == "vlmsearch" else "no",
    }


def _lines_of(path: Path) -> int:
    """Count the lines that are not blank."""
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


def _check(value: object, wanted: object) -> None:
    if value != wanted:
        raise click.ClickException(f"a contender answered {value!r} instead of {wanted!r}")


@click.command()
@click.option("--documents", default=300, show_default=True, type=click.IntRange(10), help="Photographs, and notes.")
@click.option("--postgres", metavar="URL", help="An empty database.")
@click.option("--only", type=click.Choice([*PACKAGES]), help="One contender alone.")
def main(documents: int, postgres: str | None, only: str | None) -> None:
    """Build the same gallery over vlmsearch and over chromadb."""
    names = [only] if only else [*PACKAGES]
    with tempfile.TemporaryDirectory() as folder:
        figures = {name: measure(name, Path(folder) / name, documents, postgres) for name in names}
    rows = [[what, *(figures[name][what] for name in names)] for what in figures[names[0]]]
    print_figures(f"a gallery of {documents} photographs and {documents} notes", ["what", *names], rows)


if __name__ == "__main__":
    main()
