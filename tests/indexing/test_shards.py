"""Parquet files and tars as sources."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.shards import png, write_parquet, write_tar
from vlmsearch import ConfigError, Document, Pipeline, Reject
from vlmsearch.indexing.items import Item, SourceDocument
from vlmsearch.indexing.sources import Paths
from vlmsearch.stores.base import reject_list_of


def read(*paths: Path) -> list[Item]:
    found = list(Paths(paths))
    assert len(Paths(paths)) == len(found)
    return found


def documents(*paths: Path) -> list[Document]:
    return [item.document for item in read(*paths) if isinstance(item, SourceDocument)]


def rejects(*paths: Path) -> list[Reject]:
    return [item for item in read(*paths) if isinstance(item, Reject)]


def test_a_row_of_parquet_is_a_document(tmp_path: Path) -> None:
    table = write_parquet(
        tmp_path / "rows.parquet",
        [
            {
                "id": "a",
                "text": "a dog",
                "image": None,
                "year": 2024,
                "score": 0.5,
                "new": True,
                "day": date(2024, 1, 31),
            },
            {"id": None, "text": "a cat", "image": "cat.jpg", "year": None, "score": None, "new": None, "day": None},
        ],
    )
    first, second = documents(table)
    assert first == Document("a", "a dog", None, {"year": 2024, "score": 0.5, "new": True, "day": "2024-01-31"})
    assert second == Document(str(tmp_path / "cat.jpg"), "a cat", tmp_path / "cat.jpg", {})
    assert {item.source for item in read(table) if isinstance(item, SourceDocument)} == {str(table)}


def test_an_image_in_parquet_is_bytes_or_what_hugging_face_writes(tmp_path: Path) -> None:
    one, two = png(1), png(2)
    plain = write_parquet(tmp_path / "plain.parquet", [{"id": "a", "image": one}])
    theirs = write_parquet(
        tmp_path / "theirs.parquet",
        [{"id": "b", "image": {"bytes": two, "path": None}}, {"id": "c", "image": {"bytes": None, "path": "c.png"}}],
    )
    assert [doc.image for doc in documents(plain, theirs)] == [one, two, tmp_path / "c.png"]


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a dog"]), pa.array([1]), pa.array([2])], names=["text", "year", "year"])
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"rows\.parquet: the table has two columns 'year'"):
        read(tmp_path / "rows.parquet")


def test_images_without_ids_are_told_apart_by_their_content(tmp_path: Path) -> None:
    table = write_parquet(tmp_path / "rows.parquet", [{"image": png(seed)} for seed in (1, 2, 1)])
    a, b, again = documents(table)
    assert a.id == again.id != b.id


def test_a_text_in_parquet_that_is_none_is_rejected_by_its_row(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": "a", "text": None}, {"id": "b", "text": [1.5, 2.5]}]
    (found,) = rejects(write_parquet(tmp_path / "rows.parquet", [{**row, "image": "a.png"} for row in rows]))
    assert (found.id, found.code) == (f"{tmp_path}/rows.parquet:2", "invalid")
    assert found.message == "rows.parquet, row 2: 'text' is a string, not [1.5, 2.5]"


@pytest.mark.parametrize("name", ["broken.parquet", "broken.tar"])
def test_a_damaged_shard_is_listed_and_the_others_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PAR1" * 1000)
    good = write_parquet(tmp_path / "good.parquet", [{"text": "a dog"}])
    (found,) = rejects(tmp_path / name, good)
    assert (found.id, found.code) == (str(tmp_path / name), "unreadable")
    assert "damaged" in found.message
    assert len(documents(tmp_path / name, good)) == 1


def test_parquet_without_a_column_to_index_is_refused(tmp_path: Path) -> None:
    table = write_parquet(tmp_path / "rows.parquet", [{"caption": "a dog", "url": "x"}])
    with pytest.raises(ConfigError, match="at least one of the columns id, text and image; it has caption, url"):
        read(table)


def test_a_sample_of_a_tar_is_a_document(tmp_path: Path) -> None:
    image = png(1)
    shard = write_tar(
        tmp_path / "shard-0.tar",
        {
            "000.png": image,
            "000.txt": "a red star",
            "000.json": {"width": 96, "url": "x", "exif": {"a": 1}, "status": None, "id": 7},
            "deep/001.json": {"caption": "a blue moon"},
            "deep/001.cls": "3",
            "002.left.png": image,
            "002.txt": "two",
            ".hidden": "x",
        },
    )
    first, second, third = documents(shard)
    fields = {"width": 96, "url": "x", "unread": "1 exif value", "unread_count": 1}
    assert first == Document(
        f"{shard}/000", "a red star", image, {**fields, "unread": "1 exif value", "unread_count": 1}
    )
    assert second == Document(f"{shard}/deep/001", "a blue moon", None, {"caption": "a blue moon"})
    assert third == Document(f"{shard}/002", "two", None, {})


def test_a_sample_that_cannot_be_read_is_rejected_and_the_next_is_read(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "s.tar", {"0.json": "no json", "1.json": "[1]", "2.txt": b"caf\xe9", "3.txt": "good"})
    assert [(found.id, found.code) for found in rejects(shard)] == [
        (f"{shard}:1", "invalid"),
        (f"{shard}:2", "invalid"),
        (f"{shard}:3", "unsupported"),
    ]
    assert [doc.text for doc in documents(shard)] == ["good"]


def test_a_tar_that_is_cut_short_gives_what_is_whole(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "s.tar", {f"{seed}.png": png(seed) for seed in range(20)})
    shard.write_bytes(shard.read_bytes()[:-40_000])
    assert 0 < len(documents(shard)) < 20
    assert [found.code for found in rejects(shard)] == ["unreadable"]


def test_a_compressed_tar_is_read(tmp_path: Path) -> None:
    assert [doc.text for doc in documents(write_tar(tmp_path / "s.tar", {"0.txt": "a dog"}, mode="w:gz"))] == ["a dog"]


def test_shards_are_indexed_and_skipped_and_pruned(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "s.tar", {"0.png": png(0), "1.png": png(1), "2.png": b"\x89PNG broken", "3.txt": "x"})
    table = write_parquet(tmp_path / "t.parquet", [{"id": "p", "image": png(3)}])
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    report = pipeline.index([shard, table])
    assert (report.added, [reject.id for reject in report.rejects]) == (4, [f"{shard}/2"])
    assert pipeline.index([shard, table]).unchanged == 4
    write_tar(shard, {"0.png": png(0), "1.png": png(7)})
    report = pipeline.index([shard, table], prune=True)
    assert (report.updated, report.unchanged, report.pruned) == (1, 2, 1)
    assert not reject_list_of(pipeline.store).rejects()
    shard.write_bytes(b"x" * 5000)
    assert pipeline.index([shard, table], prune=True).pruned == 0  # it could not be read: nothing counts as gone
