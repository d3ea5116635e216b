"""A net of old faults: each is put back into the package, to see which tests catch it.

Each fault is one that a commit mended. ``net.toml`` keeps it as a text that the package has now and the text with the
fault, not as a patch. The text is looked for in all files of ``vlmsearch`` and ``mocks``, and must occur once. So a
fault survives changes beside it, and a module that is moved or renamed. Where its own lines change, it is reported as
lost: write it anew for the code of today, with ``git show COMMIT`` beside it. Tests are named by file or folder, and
any failing test of them catches the fault. Where a file of tests is moved, name the new one.

``python -m tests.support.net [COMMIT ...]`` runs the tests of HEAD in a worktree of their own, and prints a table. A
test that also fails without a fault catches nothing. The exit status is 1 if a fault is lost or caught by no test.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT
from vlmsearch._util.tables import as_dataclass, read_table

_CACHE = "v/cache/lastfailed"
_SHOWN = 3
_SECONDS = 900


@dataclass(frozen=True)
class Fault:
    """A fault that a commit mended: ``now`` is a text of the package, and ``fault`` stands there instead."""

    commit: str
    subject: str
    tests: tuple[str, ...]
    now: str
    fault: str


@dataclass
class Catch:
    """The tests that fail with a fault; ``lost`` says why it could not be tried."""

    fault: Fault
    tests: list[str] = field(default_factory=list)
    lost: str = ""


def read_faults(commits: Sequence[str] = ()) -> list[Fault]:
    """Return the faults of these commits, by default of all."""
    entries = read_table(Path(__file__).with_name("net.toml"))["fault"]
    assert isinstance(entries, list)
    faults = [as_dataclass(Fault, entry, f"fault {number}") for number, entry in enumerate(entries, 1)]
    return [fault for fault in faults if not commits or fault.commit in commits]


def catch_faults(faults: Sequence[Fault]) -> list[Catch]:
    """Put each fault into a worktree of HEAD, and return the tests that fail there, and do not fail without it."""
    with tempfile.TemporaryDirectory() as folder, _worktree(Path(folder, "tree")) as tree:
        catches = []
        for fault in faults:
            catches.append(_catch(tree, fault))
            print(fault.commit, catches[-1].lost or f"{len(catches[-1].tests)} fail", file=sys.stderr, flush=True)
        names = sorted({test for catch in catches for test in catch.tests})
        broken = set(_failing(tree, _files(names), names)) if names else set()
    for catch in catches:
        catch.tests = [test for test in catch.tests if test not in broken]
    return catches


def table(catches: Iterable[Catch]) -> str:
    """Return the table in Markdown."""
    rows = ["| commit | subject | tests run | tests that fail |", "|---|---|---|---|"]
    for catch in catches:
        shown = [f"`{test.partition('::')[2]}`" for test in catch.tests[:_SHOWN]]
        rest = [f"and {len(catch.tests) - _SHOWN} more"] if len(catch.tests) > _SHOWN else []
        outcome = catch.lost or ", ".join(shown + rest) or "**none**"
        rows.append(f"| {catch.fault.commit} | {catch.fault.subject} | {', '.join(catch.fault.tests)} | {outcome} |")
    return "\n".join(rows)


@contextmanager
def _worktree(tree: Path) -> Iterator[Path]:
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run((*git, "add", "--quiet", "--detach", str(tree), "HEAD"), check=True)
    try:
        yield tree
    finally:
        subprocess.run((*git, "remove", "--force", str(tree)), check=True)


def _catch(tree: Path, fault: Fault) -> Catch:
    gone = [test for test in fault.tests if not (tree / test).exists()]
    if gone:
        return Catch(fault, lost=f"**lost**: there is no {', '.join(gone)}")
    files = [file for room in ("vlmsearch", "mocks") for file in (tree / room).rglob("*.py")]
    places = [(file, text) for file in files if fault.now in (text := file.read_text(encoding="utf-8"))]
    count = sum(text.count(fault.now) for _, text in places)
    if count != 1:
        return Catch(fault, lost=f"**lost**: its text occurs {count} times")
    file, text = places[0]
    file.write_text(text.replace(fault.now, fault.fault), encoding="utf-8")
    try:
        return Catch(fault, _failing(tree, fault.tests))
    except subprocess.SubprocessError as exc:
        return Catch(fault, lost=f"**lost**: {exc}")
    finally:
        file.write_text(text, encoding="utf-8")


def _failing(tree: Path, tests: Sequence[str], only: Sequence[str] = ()) -> list[str]:
    """Return the tests that fail; of ``only`` where they are named."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": os.pathsep.join((str(tree), str(tree / "mocks"))), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as cache:
        failed = Path(cache, _CACHE)
        if only:
            failed.parent.mkdir(parents=True)
            failed.write_text(json.dumps(dict.fromkeys(only, True)), encoding="utf-8")
        options = ("--last-failed",) if only else ()
        command = (sys.executable, "-m", "pytest", "-q", "--tb=no", "-o", f"cache_dir={cache}", *options, *tests)
        done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, timeout=_SECONDS)
        if done.returncode not in (0, 1):
            print(done.stdout, file=sys.stderr)
            raise subprocess.CalledProcessError(done.returncode, command)
        return sorted(json.loads(failed.read_text(encoding="utf-8"))) if failed.exists() else []


def _files(names: Iterable[str]) -> list[str]:
    return sorted({name.partition("::")[0] for name in names})


def main() -> None:
    """Print the table, and end with status 1 if a fault is caught by no test."""
    catches = catch_faults(read_faults(sys.argv[1:]))
    print(table(catches))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{len(catches)} faults, {used.ru_utime + used.ru_stime:.0f} seconds of CPU")
    sys.exit(any(not catch.tests for catch in catches))


if __name__ == "__main__":
    main()
