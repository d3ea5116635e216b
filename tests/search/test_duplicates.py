"""Duplicate images of an index: groups, their files, and what cannot be compared."""

import itertools
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.edits import EDITS, altered
from tests.support.paths import SHARED
from tests.support.pdf_files import write_pdf, write_scan
from vlmsearch import ConfigError, Document, Duplicates, Paths, Pipeline, SourceOptions
from vlmsearch.demo.scenes import make_scene
from vlmsearch.media.images import open_image
from vlmsearch.registry import open_encoder

PHOTOS = SHARED / "photos"
SEEDS = range(51_000_000, 51_000_016)


def write_duplicate_images(folder: Path, name: str, picture: Image.Image, kinds: list[str]) -> None:
    """Write a picture and edited ones into files that begin with its name."""
    picture.save(folder / f"{name} original.png")
    for kind in kinds:
        edited = EDITS[kind](picture, random.Random(name))
        edited.save(folder / f"{name} {kind}.jpg", quality=90)


def write_scenes(folder: Path, seeds: range, kinds: int, others: int) -> None:
    """Write scenes with some of their duplicates, scenes that differ from them in one attribute, and other scenes."""
    names = list(EDITS)
    for place, seed in enumerate(seeds):
        scene = make_scene(seed)
        write_duplicate_images(folder, str(seed), scene.draw(), (names * 2)[place % len(names) :][:kinds])
        for i in range(others):
            altered(scene, random.Random(2 * seed + i)).draw().save(folder / f"{seed}a{i} altered.png")
            make_scene(seed + 1_000_000 * (i + 1)).draw().save(folder / f"{seed}b{i} other.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duplicates")
    write_scenes(folder, SEEDS, kinds=4, others=1)
    return folder


@pytest.fixture(scope="module")
def indexed(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.index(folder)
        yield pipeline


def pairs(groups: Iterable[list[str]]) -> set[tuple[str, str]]:
    return {pair for group in groups for pair in itertools.combinations(sorted(group), 2)}


def precision_and_recall(folder: Path, found: Duplicates) -> tuple[float, float]:
    """Of the pairs of images that are in one group; files are duplicates where their names begin with the same word."""
    by_picture: dict[str, list[str]] = {}
    for path in folder.iterdir():
        by_picture.setdefault(path.name.split()[0], []).append(str(path))
    said, true = pairs([file.id for file in group.files] for group in found.groups), pairs(by_picture.values())
    return len(said & true) / len(said), len(said & true) / len(true)


@pytest.mark.slow
def test_duplicates_are_in_one_group_and_nothing_else_is(folder: Path, indexed: Pipeline) -> None:
    done: list[int] = []
    found = indexed.duplicates(on_progress=done.append)
    assert found.compared == done[-1] == len(indexed.store) == 16 * 7
    assert found.unread == ()
    precision, recall = precision_and_recall(folder, found)
    assert precision >= 0.95
    assert recall >= 0.9


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_precision_and_recall_on_scenes(tmp_path: Path) -> None:
    write_scenes(tmp_path, range(80_000_000, 80_000_060), kinds=len(EDITS), others=2)
    measure(tmp_path, precision=0.99, recall=0.95)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not PHOTOS.is_dir(), reason="no photographs here")
def test_precision_and_recall_on_photographs(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(PHOTOS.rglob("*.jpg"))[:100]):
        picture = open_image(path)
        if number < 60:
            write_duplicate_images(tmp_path, f"{number}", picture, list(EDITS))
        else:
            picture.save(tmp_path / f"{number} other.png")
    measure(tmp_path, precision=0.99, recall=0.95)


def measure(folder: Path, *, precision: float, recall: float) -> None:
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.index(folder)
        found = precision_and_recall(folder, pipeline.duplicates())
    print(f"{len(list(folder.iterdir()))} images: precision {found[0]:.4f}, recall {found[1]:.4f}")
    assert found[0] >= precision
    assert found[1] >= recall


def test_files_are_measured_and_the_largest_is_first(tmp_path: Path) -> None:
    picture = make_scene(3).draw(512)
    picture.resize((200, 200)).save(tmp_path / "old.jpg")
    picture.save(tmp_path / "large.png")
    picture.resize((200, 200)).save(tmp_path / "small.png")
    os.utime(tmp_path / "old.jpg", (10**9, 10**9))
    with Pipeline(open_encoder("onnx:demo"), MemoryStore()) as pipeline:
        pipeline.index(tmp_path)
        [group] = pipeline.duplicates().groups
    assert {file.path.name: (file.width, file.height) for file in group.files} == {
        "large.png": (512, 512),
        "small.png": (200, 200),
        "old.jpg": (200, 200),
    }
    assert group.files[0].path.name == "large.png"
    assert group.oldest.path.name == "old.jpg"
    assert group.oldest.modified == 10**9
    assert all(file.bytes == Path(str(file.path)).stat().st_size for file in group.files)


def test_what_is_gone_or_was_never_a_file_is_named_and_in_no_group(tmp_path: Path) -> None:
    picture = make_scene(4).draw()
    for name in "abc":
        picture.save(tmp_path / f"{name}.png")
    with Pipeline(open_encoder("onnx:demo"), MemoryStore()) as pipeline:
        pipeline.index(tmp_path)
        pipeline.add([Document("bytes", image=(tmp_path / "a.png").read_bytes()), Document("text", text="a star")])
        (tmp_path / "b.png").unlink()
        found = pipeline.duplicates()
    assert [[file.path.name for file in group.files] for group in found.groups] == [["a.png", "c.png"]]
    assert found.compared == 2
    assert dict(found.unread).keys() == {str(tmp_path / "b.png"), "bytes"}
    assert "No such file" in dict(found.unread)[str(tmp_path / "b.png")]
    assert "does not keep its image" in dict(found.unread)["bytes"]


def test_a_filter_leaves_both_images_of_a_pair_out(tmp_path: Path) -> None:
    make_scene(5).draw().save(tmp_path / "a.png")
    make_scene(5).draw(200).save(tmp_path / "b.png")
    with Pipeline(open_encoder("onnx:demo"), MemoryStore()) as pipeline:
        for n, name in enumerate("ab"):
            pipeline.add(Document(name, image=tmp_path / f"{name}.png", metadata={"n": n}))
        assert len(pipeline.duplicates().groups) == 1
        assert pipeline.duplicates(where={"n": 0}).groups == ()
        assert pipeline.duplicates(threshold=1.0).groups == ()


def test_wrong_use_is_said(indexed: Pipeline) -> None:
    with pytest.raises(ConfigError, match="`threshold` is from 0 to 1, not 2"):
        indexed.duplicates(threshold=2)
    with Pipeline(MockEncoder(), MemoryStore()) as empty:
        assert empty.duplicates().groups == ()


def test_a_page_is_a_copy_of_a_picture_and_not_of_another_page(tmp_path: Path) -> None:
    picture = make_scene(51_000_000).draw(256)
    picture.save(tmp_path / "scene.png")
    write_scan(tmp_path / "scan.pdf", [picture, picture], size=(300, 300))
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        assert pipeline.index(Paths([tmp_path], options=SourceOptions(pdf=True))).added == 4
        [group] = pipeline.duplicates().groups
    path = tmp_path / "scan.pdf"
    assert {file.id for file in group.files} == {str(tmp_path / "scene.png"), f"{path}#page=1", f"{path}#page=2"}
    assert {file.bytes for file in group.files if file.id != str(tmp_path / "scene.png")} == {path.stat().st_size}


def test_pages_that_look_alike_and_say_different_things_are_no_copies(tmp_path: Path) -> None:
    first = ["how to fill the tank\nof the pump", "how to clean the filter\nof the pump"]
    second = ["where to put the paper\nof the printer", "where to connect the cable\nof the printer"]
    for name, pages in (("pump", first), ("printer", second), ("pump again", first)):
        write_pdf(tmp_path / f"{name}.pdf", pages, title=name)
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        assert pipeline.index(Paths([tmp_path], options=SourceOptions(pdf=True))).added == 9
        groups = [[Path(file.id).name for file in group.files] for group in pipeline.duplicates().groups]
    assert [sorted(group) for group in sorted(groups)] == [
        [f"pump again.pdf#page={page}", f"pump.pdf#page={page}"] for page in (1, 2)
    ]


def test_one_pair_that_agrees_joins_no_groups(tmp_path: Path) -> None:
    for page in range(4):  # each says almost the same as the next, and something else than the one after that
        words = [f"new{word}" if int(word) < page else f"old{word}" for word in "0123456789"]
        write_pdf(tmp_path / f"{page}.pdf", [" ".join(words)])
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        pipeline.index(Paths([tmp_path], options=SourceOptions(pdf=True)))
        groups = pipeline.duplicates().groups
    assert {len(group.files) for group in groups} == {2}
