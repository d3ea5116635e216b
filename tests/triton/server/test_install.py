"""Installing the wheel's Triton: what comes over the network is what was tested, and the library is the one in use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import vlmsearch
from tests.support.paths import ROOT
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.triton.server.install import ensure_installed, install, installed, requirements, server_folder
from vlmsearch.triton.server.library import library_version, write_wheel


@pytest.fixture(autouse=True)
def another_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and an index that has a Triton of the same name and version as the one that was tested."""
    links = tmp_path / "links"
    links.mkdir()
    described = {
        "METADATA": "Metadata-Version: 2.1\nName: nvidia-pytriton\nVersion: 0.7.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(links / "nvidia_pytriton-0.7.0-py3-none-any.whl", "w") as wheel:
        for name, content in described.items():
            wheel.writestr(f"nvidia_pytriton-0.7.0.dist-info/{name}", content)
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(links), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
def test_another_triton_than_was_tested_is_not_installed() -> None:
    with pytest.raises(ModelUnavailableError, match=r"Expected sha256 [0-9a-f]{64}.* Got "):
        install(report=print)
    assert installed() is None
    assert not server_folder().exists()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the library, which stands for the one in use, as an editable checkout does."""
    copied = tmp_path / "checkout" / "vlmsearch"
    shutil.copytree(Path(vlmsearch.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    monkeypatch.setattr(vlmsearch, "__file__", str(copied / "__init__.py"))
    return copied


def test_the_wheel_is_the_library_and_nothing_else(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    assert wheel.name == f"vlmsearch-{library_version()}-py3-none-any.whl"
    tracked = subprocess.run(["git", "ls-files", "vlmsearch"], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(wheel) as opened:
        packed = {name: opened.read(name) for name in opened.namelist() if ".dist-info/" not in name}
        assert "Requires-Dist" not in opened.read(f"vlmsearch-{library_version()}.dist-info/METADATA").decode()
    assert packed == {name: (ROOT / name).read_bytes() for name in tracked.stdout.split()}
    again = tmp_path / "again"
    again.mkdir()
    assert write_wheel(again).read_bytes() == wheel.read_bytes()


def test_every_change_of_the_library_is_another_version(package: Path) -> None:
    before = library_version()
    assert before.startswith(f"{vlmsearch.__version__}+h")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "types.pyc").write_bytes(b"compiled")
    (package / ".types.py.swp").write_bytes(b"an editor's")
    assert library_version() == before
    (package / "types.py").write_text((package / "types.py").read_text() + "# changed\n")
    assert library_version() != before


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python will do for a new environment, so that making one is an error at once."""
    monkeypatch.setattr("vlmsearch.triton.server.install._PYTHONS", ())


def write_mark(**changes: object) -> None:
    """What `install` leaves beside an environment, here with an older library."""
    mark = {"format": 1, "python": "3.11", "libraries": "/lib", "requirements": requirements(), "library": "0.0.1"}
    server_folder().mkdir(parents=True, exist_ok=True)
    (server_folder() / "server.json").write_text(json.dumps(mark | changes))


def library_in_server() -> Path:
    """The library that a model of the server imports."""
    code = "from importlib.util import find_spec; print(find_spec('vlmsearch').origin)"
    command = [str(server_folder() / "env" / "bin" / "python"), "-c", code]
    return Path(subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout.strip()).parent


@pytest.mark.slow
def test_a_library_that_changed_is_installed_alone_and_offline(package: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(server_folder() / "env")], check=True)
    (site,) = server_folder().glob("env/lib/python3*/site-packages")
    pip = find_spec("pip")
    assert pip
    assert pip.origin
    (site / "pip").symlink_to(Path(pip.origin).parent)
    write_mark()
    for change in ("first", "second"):
        with (package / "errors.py").open("a") as file:
            file.write(f"CHANGE = {change!r}\n")
        assert installed() is None
        steps: list[str] = []
        found = ensure_installed(report=steps.append)
        assert steps == [f"installing vlmsearch {library_version()}"]
        assert installed() == found
        assert library_in_server().is_relative_to(server_folder())
        assert (library_in_server() / "errors.py").read_text().endswith(f"CHANGE = {change!r}\n")
    assert ensure_installed(report=steps.append) == found
    assert len(steps) == 1


@pytest.mark.parametrize("changes", [{"format": 0}, {"requirements": ["onnxruntime==1.0"]}])
def test_where_more_is_another_all_is_installed_anew(changes: dict[str, object], no_python: None) -> None:
    write_mark(library=library_version())
    assert installed()
    write_mark(library=library_version(), **changes)
    assert installed() is None
    with pytest.raises(ConfigError, match="name one with `python`"):
        ensure_installed(report=print)


def test_where_the_environment_is_broken_all_is_installed_anew(no_python: None) -> None:
    write_mark()
    with pytest.raises(ConfigError, match="name one with `python`"):
        ensure_installed(report=print)
    assert not (server_folder() / "server.json").exists()


def test_a_server_that_is_up_to_date_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    write_mark(library=library_version())
    before = sorted(tmp_path.rglob("*"))
    assert ensure_installed(report=print) == installed()
    assert sorted(tmp_path.rglob("*")) == before
