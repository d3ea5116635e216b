"""Which cuBLAS TensorRT is linked with: asked of libraries that a compiler made, loaded into another process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCE = """
int %s(int part, int *value) {
    static const int numbers[] = {%s};
    *value = numbers[part];
    return %d;
}
"""
ASK = """
import ctypes, sys
from tests.support.tensorrt_standin import standing_in
with standing_in(sys.argv[1]):
    from vlmsearch.tensorrt.engine.cublas import cublas
    before = cublas()
    held = [ctypes.CDLL(path) for path in sys.argv[2:]]
    print(f"{before}|{cublas()}")
"""
Compiled = Callable[..., Path]


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def library(name: str, function: str, version: tuple[int, int, int] = (12, 9, 1), status: int = 0) -> Path:
        source, target = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(SOURCE % (function, ", ".join(map(str, version)), status))
        subprocess.run([compiler, "-shared", f"-Wl,-soname,{name}", "-o", target, source], check=True)
        return target

    return library


def ask(version: str, *libraries: Path) -> str:
    command = [sys.executable, "-c", ASK, version, *map(str, libraries)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


@pytest.mark.parametrize(("tensorrt", "found"), [("8.6", "12.9.1"), ("10", ""), ("11", "")])
def test_the_one_that_is_loaded_is_told_where_tensorrt_asks_for_it(
    compiled: Compiled, tensorrt: str, found: str
) -> None:
    parts = compiled("libcublas.so.12", "cublasGetProperty"), compiled("libcublasLt.so.12", "cublasLtGetProperty")
    assert ask(tensorrt, *parts) == f"|{found}"


def test_the_one_for_cuda_11_is_found_too(compiled: Compiled) -> None:
    parts = [
        compiled("libcublas.so.11", "cublasGetProperty", (11, 11, 3)),
        compiled("libcublasLt.so.11", "cublasLtGetProperty", (11, 11, 3)),
    ]
    assert ask("8.6", *parts) == "|11.11.3"


def test_what_does_not_answer_or_is_no_pair_is_none(compiled: Compiled) -> None:
    main = compiled("libcublas.so.12", "cublasGetProperty")
    assert ask("8.6", main) == "|", "half of it"
    assert ask("8.6", main, compiled("libcublasLt.so.12", "cublasLtGetProperty", (12, 8, 4))) == "|", "another"
    assert ask("8.6", main, compiled("libcublasLt.so.12", "cublasLtGetProperty", status=1)) == "|", "an empty library"
    assert ask("8.6", main, compiled("libcublasLt.so.12", "somethingElse")) == "|", "an older library"
