"""Near-duplicate images of an index: groups, their files, and what cannot be compared."""

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.edits import EDITS, altered
from vlmsearch import ConfigError, Document, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.registry import open_encoder

SEEDS = range(51_000_000, 51_000_016)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes with copies of four kinds each, one that is not a copy, and others; named by their scene."""
    folder = tmp_path_factory.mktemp("copies")
    kinds = list(EDITS)
    for place, seed in enumerate(SEEDS):
        scene = make_scene(seed)
        picture = scene.draw()
        picture.save(folder / f"{seed} original.png")
        for name in (kinds * 2)[place % len(kinds) :][:4]:
            edited = EDITS[name](picture, random.Random(seed))
            edited.save(folder / f"{seed} {name}.jpg", quality=90)
        altered(scene, random.Random(seed)).draw().save(folder / f"{seed}a altered.png")
        make_scene(seed + 1_000_000).draw().save(folder / f"{seed}b other.png")
    return folder


@pytest.fixture(scope="module")
def indexed(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.index(folder)
        yield pipeline


def pairs(groups: list[list[str]]) -> set[tuple[str, str]]:
    return {pair for group in groups for pair in itertools.combinations(sorted(group), 2)}


def test_copies_are_in_one_group_and_nothing_else_is(folder: Path, indexed: Pipeline) -> None:
    done: list[int] = []
    found = indexed.duplicates(on_progress=done.append)
    assert found.compared == done[-1] == len(indexed.store) == 16 * 7
    assert found.unread == ()
    by_scene: dict[str, list[str]] = {}
    for path in folder.iterdir():
        by_scene.setdefault(path.name.split()[0], []).append(str(path))
    said, true = pairs([[file.id for file in group.files] for group in found.groups]), pairs(list(by_scene.values()))
    assert len(said & true) / len(said) >= 0.95
    assert len(said & true) / len(true) >= 0.9


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
    assert all(file.bytes == file.path.stat().st_size for file in group.files)


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
    with pytest.raises(ConfigError, match="`threshold` is a cosine from 0 to 1, not 2"):
        indexed.duplicates(threshold=2)
    with Pipeline(MockEncoder(), MemoryStore()) as empty:
        assert empty.duplicates().groups == ()
