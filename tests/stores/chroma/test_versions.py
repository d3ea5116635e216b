"""The versions of chromadb that may be installed: those whose tables and vector files are known."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.chroma import IMAGE, MANY, SPACES, record
from tests.support.paths import ROOT
from vlmsearch.stores.chroma import log
from vlmsearch.stores.chroma.collections import VERSION_CHARS
from vlmsearch.stores.chroma.log import DATABASE
from vlmsearch.stores.chroma.store import ChromaStore

COLUMNS = {
    "collections": {"id", "name", "database_id"},
    "databases": {"id", "name", "tenant_id"},
    "embeddings": {"segment_id", "embedding_id"},
    "embeddings_queue": {"seq_id", "topic", "id", "vector"},
    "embeddings_queue_config": {"id", "config_json_str"},
    "max_seq_id": {"segment_id", "seq_id"},
    "segments": {"id", "scope", "collection"},
}
"""What is read and edited of each of Chroma's tables."""
NEEDS = ["posthog<6", "backoff", "monotonic", "distro", "six", "python-dateutil"]
"""What older versions of chromadb need and the newest does not."""


def bounds() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The oldest version that is allowed, and the first that is not."""
    found = re.search(r'"chromadb>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert found
    oldest, above = found.groups()
    return numbers(oldest), numbers(above)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_chromadb_is_bounded_on_both_sides() -> None:
    oldest, above = bounds()
    assert oldest <= numbers(version("chromadb")) < above
    assert above[0] == oldest[0]


def test_tables_and_vector_files_are_as_the_store_reads_and_edits_them(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path)) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(MANY)])
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        for table, needed in COLUMNS.items():
            there = {column for _, column, *_ in db.execute(f"PRAGMA table_info({table})")}
            assert needed <= there, table
        name = "vlmsearch.1.clip.image"
        ((collection, segment),) = log.collection_parts(tmp_path, name)
        assert db.execute("SELECT id FROM collections WHERE name = ?", [name]).fetchall() == [(collection,)]
        topics = db.execute("SELECT DISTINCT topic FROM embeddings_queue WHERE id LIKE '%id-7'").fetchall()
        assert any(topic.endswith(f"/{collection}") for (topic,) in topics)
        ((written,),) = db.execute("SELECT seq_id FROM max_seq_id WHERE segment_id = ?", [segment])
        ((logged,),) = db.execute("SELECT max(seq_id) FROM embeddings_queue")
        assert 0 < written <= logged
        (config,) = db.execute("SELECT config_json_str FROM embeddings_queue_config").fetchone()
        assert '"automatically_purge": false' in config
    assert 1000 <= log._points(tmp_path / segment) <= MANY
    logged_rows = [row for page in log.logged_vectors(tmp_path, name) for row in zip(*page)]
    assert len(logged_rows) == MANY
    assert {id[VERSION_CHARS:]: row.tobytes() for id, row in logged_rows} == {
        f"id-{i}": record(i).vectors[IMAGE].tobytes() for i in range(MANY)
    }


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_oldest_chromadb_passes_the_tests_of_the_store(tmp_path: Path) -> None:
    oldest = ".".join(map(str, bounds()[0]))
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "old")]
    subprocess.run([*install, f"chromadb=={oldest}", *NEEDS], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "old")}
    which = [sys.executable, "-c", "import chromadb; print(chromadb.__version__)"]
    assert subprocess.check_output(which, env=environment, text=True).strip() == oldest
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent)]
    done = subprocess.run(tests, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
