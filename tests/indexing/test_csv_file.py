"""An index as a CSV file, which is a table to index again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.cli import assert_one_line, ok, run
from vlmsearch import ConfigError, Document, Pipeline
from vlmsearch.indexing.csv_file import export_csv
from vlmsearch.registry import open_store


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add(
            [
                Document("a", text='a "dog",\nin the snow', metadata={"year": 2024, "seen": True}),
                Document("b", text="ein Bär \U0001f43b", metadata={"share": 0.1, "year": "old", "ärger": "ja"}),
                Document("c", text="a cat"),
            ]
        )
    return tmp_path


def test_every_key_is_a_column(folder: Path) -> None:
    done = run("export", "index.csv", "--store", "sqlite:index", cwd=folder)
    assert done.stdout.startswith("3 documents in ")
    assert "A CSV file has no vectors" in done.stderr
    assert rows(folder / "index.csv") == [
        {
            "id": "a",
            "text": 'a "dog",\nin the snow',
            "image": "",
            "year": "2024",
            "seen": "true",
            "share": "",
            "ärger": "",
        },
        {
            "id": "b",
            "text": "ein Bär \U0001f43b",
            "image": "",
            "year": "old",
            "seen": "",
            "share": "0.1",
            "ärger": "ja",
        },
        {"id": "c", "text": "a cat", "image": "", "year": "", "seen": "", "share": "", "ärger": ""},
    ]


def test_a_file_that_is_indexed_gives_the_same_documents(folder: Path) -> None:
    ok("export", "index.csv", "--store", "sqlite:index", cwd=folder)
    ok("index", "index.csv", "--store", "sqlite:again", "--encoder", "mock:", cwd=folder)
    with open_store(f"sqlite:{folder / 'index'}") as first, open_store(f"sqlite:{folder / 'again'}") as second:
        assert first.get(["a", "b", "c"]) == second.get(["a", "b", "c"])


def test_a_key_that_is_called_like_a_column_gets_another_name(tmp_path: Path) -> None:
    with MemoryStore() as store:
        from vlmsearch.registry import open_encoder

        Pipeline(open_encoder("mock:"), store).add(Document("a", text="a dog", metadata={"text": "x", "id": 3}))
        assert export_csv(store, tmp_path / "a.csv").documents == 1
    assert rows(tmp_path / "a.csv") == [
        {"id": "a", "text": "a dog", "image": "", "metadata.text": "x", "metadata.id": "3"}
    ]


def test_a_file_is_replaced_as_a_whole(folder: Path) -> None:
    (folder / "index.csv").write_text("before")

    def stop(_done: int) -> None:
        raise KeyboardInterrupt

    with open_store(f"sqlite:{folder / 'index'}") as store, pytest.raises(KeyboardInterrupt):
        export_csv(store, folder / "index.csv", on_progress=stop)
    assert (folder / "index.csv").read_text() == "before"
    assert [path.name for path in folder.glob(".*.writing")] == []


def test_what_cannot_be_written_or_imported_is_refused(folder: Path) -> None:
    with MemoryStore() as store, pytest.raises(ConfigError, match="is not an index yet"):
        export_csv(store, folder / "a.csv")
    with open_store(f"sqlite:{folder / 'index'}") as store:
        with pytest.raises(ConfigError, match=r"does not end in \.csv"):
            export_csv(store, folder / "a.txt")
        (folder / "folder.csv").mkdir()
        with pytest.raises(ConfigError, match="is a folder"):
            export_csv(store, folder / "folder.csv")
    assert_one_line(
        run("import", "x.csv", cwd=folder), "a CSV file has no vectors to import: run `vlmsearch index x.csv`"
    )
