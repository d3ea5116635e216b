"""Parquet files and tars as sources."""

from __future__ import annotations

import tarfile
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

GERMAN = "Größe und Länge über die Straße: für Mädchen, Käse und Öl"


def read(*paths: Path) -> list[Item]:
    found = list(Paths(paths))
    assert len(Paths(paths)) == len(found)
    return found


def documents(*paths: Path) -> list[Document]:
    return [item.document for item in read(*paths) if isinstance(item, SourceDocument)]


def rejects(*paths: Path) -> list[Reject]:
    return [item for item in read(*paths) if isinstance(item, Reject)]


def test_a_label_in_json_that_a_file_replaces_is_unread(tmp_path: Path) -> None:
    files = {
        "1.txt": b"a",
        "1.cls": b"5",
        "1.json": b'{"cls": 9}',
        "2.txt": b"b",
        "2.cls": b"5",
        "2.json": b'{"cls": 5}',
    }
    first, second = documents(write_tar(tmp_path / "t.tar", files))
    assert first.metadata == {"cls": 5, "unread": "1 cls value", "unread_count": 1}
    assert second.metadata == {"cls": 5}


def test_what_comes_after_the_end_of_a_tar_is_said(tmp_path: Path) -> None:
    tars = [write_tar(tmp_path / f"{name}.tar", {f"{name}.txt": b"a dog"}) for name in "ab"]
    (tmp_path / "c.tar").write_bytes(b"".join(tar.read_bytes() for tar in tars))
    document, reject = Paths([tmp_path / "c.tar"])
    assert isinstance(document, SourceDocument)
    assert isinstance(reject, Reject)
    assert "more comes after its end" in reject.message


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
    fields = {"width": 96, "url": "x", "unread": "1 exif value, 1 id value", "unread_count": 2}
    assert first == Document(f"{shard}/000", "a red star", image, fields)
    assert second == Document(f"{shard}/deep/001", "a blue moon", None, {"caption": "a blue moon", "cls": 3})
    assert third == Document(f"{shard}/002", "two", image, {})


def test_a_sample_that_cannot_be_read_is_rejected_and_the_next_is_read(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "s.tar", {"0.json": "no json", "1.json": "[1]", "2.txt": bytes(99), "3.txt": "good"})
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


def fields_of(item: Document) -> tuple[str | None, object, dict[str, object]]:
    return item.text, item.image, {key: value for key, value in item.metadata.items() if key != "unread_count"}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_of_several_members_of_a_kind_that_with_one_ending_counts_or_the_first(mode: str, tmp_path: Path) -> None:
    left, right = png(1), png(2)
    shard = write_tar(
        tmp_path / "s.tar",
        {
            "0.left.png": left, "0.right.png": right, "0.txt": "stereo",
            "1.mask.png": right, "1.png": left, "1.caption.txt": "later", "1.txt": "a dog", "1.TEXT": "later",
            "2.a.txt": "a cat", "2.b.txt": "later", "2.npy": b"1", "2.pth": b"1", "2.x.npy": b"1", "2": b"1",
            "3.png": left, "3.json": "[1]", "3.cls": "7\n", "3.txt": GERMAN.encode("cp1252"),
            "4.png": left, "4.json": "no json", "4.txt": bytes(99), "4.class": "cat", "._4.png": b"x",
            "5.mp4": b"1", "5.wav": b"1", "5.cls.npy": b"1",
        },
        mode=mode,
    )  # fmt: skip
    assert [fields_of(item) for item in documents(shard)] == [
        ("stereo", left, {"unread": "1 image"}),
        ("a dog", left, {"unread": "2 texts, 1 image"}),
        ("a cat", None, {"unread": "2 npy files, 1 other file, 1 pth file, 1 text"}),
        (GERMAN, left, {"cls": 7, "unread": "1 json file"}),
        (None, left, {"class": "cat", "unread": "1 json file, 1 text"}),
    ]
    (reject,) = rejects(shard)
    assert reject.message == "s.tar, sample 6: 5: neither text nor image, but 1 mp4 file, 1 npy file, 1 wav file"


def test_members_of_a_sample_are_joined_wherever_they_are(tmp_path: Path) -> None:
    image = png(1)
    files: dict[str, bytes | str | dict[str, object]] = {
        "a/0.png": image,
        "1.png": image,
        "1.txt": "one",
        "a/0.txt": "nought",
        "b.0.txt": "other",
        "a/0.json": "{}",
    }
    plain = write_tar(tmp_path / "s.tar", files)
    assert [(item.id, item.text) for item in documents(plain)] == [
        (f"{plain}/a/0", "nought"),
        (f"{plain}/1", "one"),
        (f"{plain}/b", "other"),
    ]
    packed = write_tar(tmp_path / "z.tar", files, mode="w:gz")
    assert [(item.id, item.text) for item in documents(packed)] == [
        (f"{packed}/a/0", None),
        (f"{packed}/1", "one"),
        (f"{packed}/b", "other"),
    ]
    first, second = rejects(packed)
    assert (first.id, second.id) == (f"{packed}:3", f"{packed}:5")
    assert first.message == "z.tar, sample 3: a/0: it comes again: put the members of a sample side by side"


def test_a_member_that_is_appended_again_counts_and_a_hard_link_is_a_file(tmp_path: Path) -> None:
    image = png(1)
    shard = write_tar(tmp_path / "s.tar", {"0.png": image, "0.txt": "old", "1.txt": "one"})
    with tarfile.open(shard, "a") as tar:
        (tmp_path / "0.txt").write_text("new")
        tar.add(tmp_path / "0.txt", "0.txt")
        for name, kind in (("1.png", tarfile.LNKTYPE), ("1.jpg", tarfile.SYMTYPE), ("1.gif", tarfile.LNKTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "gone.gif" if name == "1.gif" else "0.png"
            tar.addfile(link)
    assert [fields_of(item) for item in documents(shard)] == [
        ("new", image, {}),
        ("one", image, {"unread": "2 links"}),
    ]


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
