"""A folder in the place of a server: the error leads out, and nothing is lost on the way."""

import json
import re
import shlex
import tarfile
from pathlib import Path

import pytest

from tests.support.cli import run
from tests.support.servers import chroma_server
from vlmsearch import ConfigError, Document
from vlmsearch.registry import open_store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Reject, Stamp

WRITTEN = Path(__file__).parent / "data" / "folder.tar.xz"
"""A folder that version 0.1 wrote: three documents of `mock:` and a reject. A second write to it was killed."""
DOCUMENTS = [
    Document(
        "dog.jpg",
        text="a dog in the snow",
        image=Path("dog.png"),
        metadata={"year": 2024, "score": 0.5, "public": True, "place": "Zürich"},
    ),
    Document("notes.txt", text="a red car\nbeside the lake", metadata={"year": -3}),
    Document("dränge/ü \U0001f600", text="half a pair: \ud83d", metadata={"key.with dots": "x", "escaped": "\udc00"}),
]


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("chroma:./index", "index"),
        ("chroma:index", "index"),
        ("chroma:/data/my index", "'/data/my index'"),
        ("chroma:///data/index", "/data/index"),
        ("chroma:~/index", "/home/me/index"),
    ],
)
def test_a_folder_is_answered_with_the_commands_that_lead_out(
    url: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    with pytest.raises(ConfigError, match="chroma://host:8000/name") as caught:
        open_store(url)
    message = str(caught.value)
    assert "\n" not in message
    assert re.findall(r"`([^`]+)`", message) == [
        f"chroma run --path {folder}",
        "vlmsearch copy --from chroma://localhost:8000/vlmsearch --to sqlite:./index",
    ]


@pytest.mark.parametrize("option", ["./my vectors", "chroma:./my vectors"])
def test_a_folder_of_the_pair_is_answered_with_the_server_to_write(option: str) -> None:
    with pytest.raises(ConfigError, match=r"chroma=http://localhost:8000/vlmsearch in the place") as caught:
        open_store(f"mongodb+chroma://host/db?chroma={option}")
    assert "`chroma run --path 'my vectors'`" in str(caught.value)


def test_an_index_in_a_folder_is_copied_by_these_commands_and_nothing_is_lost(tmp_path: Path) -> None:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = (tmp_path / "folder").rename(tmp_path / "data")
    refused = run("info", "--store", f"chroma:{folder}")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    serve, copy = (shlex.split(command) for command in re.findall(r"`([^`]+)`", refused.stderr))
    assert serve == ["chroma", "run", "--path", str(folder)]
    with chroma_server(tmp_path) as address:
        old = f"chroma://{address}/vlmsearch"
        arguments = [old if word == "chroma://localhost:8000/vlmsearch" else word for word in copy[1:]]
        done = run(*arguments, cwd=tmp_path)
        assert done.stdout.startswith("3 copied"), done.stderr
        compared = run("diff", old, "sqlite:./index", "--tolerance", "0", cwd=tmp_path)
        assert (compared.returncode, compared.stdout) == (0, "3 documents are the same\n")
        assert "words       not ranked by this store\n" in run("info", "--store", old).stdout
        assert json.loads(run("info", "--store", old, "--json").stdout)["words"] is None
        with ChromaStore(f"//{address}/vlmsearch") as store:  # it can also stay on the server
            report = store.check(repair=True)
            assert (len(report.orphans), len(report.stale), report.missing) == (2, 2, ())
            assert store.check().clean
            assert store.get([document.id for document in DOCUMENTS]) == DOCUMENTS
    with SqliteStore(str(tmp_path / "index")) as kept:
        assert kept.get([document.id for document in DOCUMENTS]) == DOCUMENTS
        assert kept.rejects() == [
            Reject("broken.jpg", "unreadable", "it cannot be read", Stamp("1", "/photos/broken.jpg"))
        ]
    found = run("search", "a dog in the snow", "--store", "sqlite:./index", "--encoder", "mock:", cwd=tmp_path)
    assert found.stdout.startswith("1.0000\tdog.jpg\t"), found.stderr
