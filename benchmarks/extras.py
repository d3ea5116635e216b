"""The disk space that vlmsearch takes with each of its extras, and the packages that take most of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution, distributions
from pathlib import Path

import click

from benchmarks.common import print_figures
from vlmsearch.errors import BackendError, one_line

ROOT = Path(__file__).parents[1]
OMITTED = ("docs", "test")
"""The extras of those who work on vlmsearch itself."""
_SHOWN_PACKAGES = 4


@click.command()
@click.argument("extras", nargs=-1, metavar="[EXTRA]...")
def main(extras: tuple[str, ...]) -> None:
    """Install this checkout alone and with each EXTRA, every one unless some are named, and print what that takes."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place, "base")
        venv.create(base)
        _install(base, str(ROOT))
        base_sizes = package_sizes(base)
        rows = [_row("(none)", base_sizes, {})]
        for extra in extras or known_extras():
            environment = Path(place, "extra")
            shutil.copytree(base, environment, symlinks=True)
            try:
                _install(environment, f"vlmsearch[{extra}]")  # the copy has it: pip adds what the extra needs
                rows.append(_row(extra, package_sizes(environment), base_sizes))
            except BackendError as exc:
                click.echo(f"{extra} is left out: {one_line(exc)}", err=True)
            shutil.rmtree(environment)
    print_figures("MB of installed packages", ["extra", "in all", "more", "heaviest of what is added"], rows)


def known_extras() -> list[str]:
    """Return the extras of users in the order of the alphabet."""
    names = distribution("vlmsearch").metadata.get_all("Provides-Extra") or []
    return sorted(set(names).difference(OMITTED))


def package_sizes(environment: Path) -> dict[str, int]:
    """Return the bytes of each package of a virtual environment, with what Python compiled of it."""
    (folder,) = environment.glob("lib/python*/site-packages")
    return {
        package.name: sum(path.stat().st_size for file in package.files or () if (path := folder / file).is_file())
        for package in distributions(path=[str(folder)])
    }


def _install(environment: Path, requirement: str) -> None:
    python = str(environment / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BackendError(f"pip cannot install {requirement}: {done.stderr.strip()[-400:]}")


def _row(extra: str, sizes: Mapping[str, int], base_sizes: Mapping[str, int]) -> Sequence[str]:
    added = {name: size for name, size in sizes.items() if name not in base_sizes}
    heaviest = sorted(added, key=lambda name: -added[name])[:_SHOWN_PACKAGES]
    total, base_total = sum(sizes.values()), sum(base_sizes.values())
    words = ", ".join(f"{name} {added[name] / 1e6:,.0f}" for name in heaviest)
    return [extra, f"{total / 1e6:,.0f}", f"{(total - base_total) / 1e6:,.0f}" if base_sizes else "", words]


if __name__ == "__main__":
    main()
