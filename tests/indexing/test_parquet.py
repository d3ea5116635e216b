"""``export`` and ``import``: one Parquet file from every kind of store and into every other, and what others read."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import daft
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vlmsearch_mocks import MemoryStore
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, TEXT, make_records, unit_vectors

from tests.support.cli import assert_one_line, ok, run
from tests.support.every_store import MakeStore
from tests.support.small_store import SmallStore
from vlmsearch import (
    ConfigError,
    Document,
    IndexMismatchError,
    MissingDependencyError,
    Pipeline,
    Record,
    VlmsearchError,
)
from vlmsearch._util.extras import install_command
from vlmsearch.index import add_reported
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.diff import diff
from vlmsearch.indexing.parquet import ParquetIndex, export_index
from vlmsearch.stores.base import RejectList, Store, Tunable
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Reject, Scalar, Stamp

METADATA: dict[str, Scalar] = {
    "whole": 2**63 - 1,
    "float": 1.0,
    "small": -1e-308,
    "yes": True,
    "one": 1,
    "name": "ünï 🐕",
    "half": "\udc00",
}
REJECTS = [Reject("bad", "truncated", "it ends early", Stamp("d", "s")), Reject("worse", "empty", "nothing")]


def some_records(number: int = 600) -> list[Record]:
    """More than are read together, some without a vector, a text or an image, some with strings that are no Unicode."""
    return [
        *make_records(number, (IMAGE, TEXT)),
        Record(Document("x" * 1024, image=Path("b.png")), {CAPTION: unit_vectors(1, CAPTION)[0]}, Stamp("1", "s")),
        Record(Document("bare", text="", metadata=METADATA), {}, Stamp("2")),
        Record(Document("odd", text="half \ud83d", image=Path("b\udcff.png")), {}, Stamp("3")),
    ]


def filled(store: Store, number: int = 600) -> Store:
    store.bind("encoder 1", SPACES)
    store.upsert(some_records(number))
    if isinstance(store, RejectList):
        store.reject(REJECTS)
    if isinstance(store, Tunable):
        store.tune({"words": 0.5, "min_score": 0.25})
    return store


def same_bits(first: Store | ParquetIndex, second: Store | ParquetIndex) -> None:
    found = diff(first, second, tolerance=0)
    assert found.same, (found.index, found.counts, found.differences[:3])
    assert found.documents == len(first) == len(second)


@pytest.mark.parametrize("kind", ["sqlite", "mongodb+chroma"])
def test_a_file_holds_an_index_bit_by_bit_in_a_store_and_back(kind: str, make_store: MakeStore, tmp_path: Path) -> None:
    file, again = tmp_path / "index.parquet", tmp_path / "again.parquet"
    with MemoryStore() as source, make_store(kind) as store, MemoryStore() as back:
        filled(source)
        report = export_index(source, file)
        assert (report.documents, report.rejects, report.bytes) == (603, 2, file.stat().st_size)
        with ParquetIndex(file) as exported:
            done = copy(exported, store)
            assert (done.documents, done.copied, done.unchanged, done.rejects, done.refused) == (603, 603, 0, 2, ())
            assert copy(exported, store).unchanged == 603
            same_bits(exported, store)
        counted: list[int] = []
        export_index(store, again, on_progress=counted.append)
        assert counted == [603]
        with ParquetIndex(again) as exported:
            copy(exported, back)
            same_bits(source, exported)
        same_bits(source, back)
        assert isinstance(store, RejectList)
        assert store.rejects() == back.rejects() == REJECTS
        one, other = (pq.read_table(each).sort_by("id") for each in (file, again))
        assert one.equals(other)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("parquet") / "index.parquet"
    with MemoryStore() as store:
        export_index(filled(store), file)
    return file


def test_pandas_reads_it(file: Path) -> None:
    import pandas as pd

    table = pd.read_parquet(file).set_index("id")
    assert len(table) == 603
    row = table.loc["id-7"]
    assert (row["text"], row["source"], json.loads(row["metadata"])) == ("text 7", "source 1", {"number": 7})
    assert row["clip/image"].dtype == np.float32
    assert (row["clip/image"] == unit_vectors(600, IMAGE)[7]).all()
    assert row["clip/text"] is None
    assert table.loc["bare", "text"] == ""
    assert pd.isna(table.loc["x" * 1024, "text"])
    flat = pd.json_normalize(table["metadata"].map(json.loads).tolist()).set_index(table.index)
    assert flat.loc["id-7", "number"] == 7


def test_duckdb_reads_it(file: Path) -> None:
    rows = duckdb.execute(
        f"""SELECT id, CAST(metadata->>'number' AS INTEGER) FROM '{file}'
            WHERE CAST(metadata->>'number' AS INTEGER) BETWEEN 5 AND 6 ORDER BY id"""
    ).fetchall()
    assert rows == [("id-5", 5), ("id-6", 6)]
    query = unit_vectors(600, IMAGE)[9].tolist()
    nearest = duckdb.execute(
        f"""SELECT id FROM '{file}'
            ORDER BY array_inner_product("clip/image"::FLOAT[32], ?::FLOAT[32]) DESC NULLS LAST LIMIT 1""",
        [query],
    ).fetchall()
    assert nearest == [("id-9",)]


def test_daft_reads_it(file: Path) -> None:
    frame = daft.read_parquet(str(file))
    assert frame.count_rows() == 603
    assert str(frame.schema()["clip/image"].dtype) == "List[Float32]"
    rows = frame.where("id = 'id-7'").to_pylist()
    assert (rows[0]["text"], json.loads(rows[0]["metadata"])) == ("text 7", {"number": 7})
    assert np.array_equal(np.array(rows[0]["minilm/text"], np.float32), unit_vectors(600, TEXT, seed=1)[7])


def test_row_groups_are_small(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.indexing.parquet._GROUP_ROWS", 250)
    with MemoryStore() as store:
        export_index(filled(store), tmp_path / "small.parquet")
    about = pq.read_metadata(tmp_path / "small.parquet")
    assert [about.row_group(i).num_rows for i in range(about.num_row_groups)] == [250, 250, 103]
    monkeypatch.setattr("vlmsearch.indexing.parquet._GROUP_BYTES", 10_000)
    with MemoryStore() as store:
        export_index(filled(store), tmp_path / "smaller.parquet")
        with ParquetIndex(tmp_path / "smaller.parquet") as exported:
            same_bits(exported, store)
    assert pq.read_metadata(tmp_path / "smaller.parquet").num_row_groups > 10


def test_a_store_without_a_reject_list_and_a_target_without_one(tmp_path: Path) -> None:
    with SmallStore() as store, MemoryStore() as target:
        filled(target, 1)
        store.bind("encoder 1", SPACES)
        assert export_index(store, tmp_path / "none.parquet").rejects is None
        with ParquetIndex(tmp_path / "none.parquet") as exported:
            assert (len(exported), copy(exported, target).rejects) == (0, None)
        assert target.rejects() == REJECTS
        export_index(target, tmp_path / "some.parquet")
        with ParquetIndex(tmp_path / "some.parquet") as exported:
            assert copy(exported, store).rejects is None


def test_with_prune_the_target_is_what_the_file_has(file: Path) -> None:
    with ParquetIndex(file) as exported, MemoryStore() as target:
        target.bind("encoder 1", SPACES)
        target.upsert([*make_records(700, (IMAGE,)), Record(Document("mine"), {}, Stamp("mine"))])
        target.reject([Reject("old", "empty", "nothing")])
        assert copy(exported, target).pruned == 0
        assert {"mine", "id-699"} < set(target.ids())
        assert copy(exported, target, prune=True).pruned == 101
        assert copy(exported, target).unchanged == 603
        assert target.rejects() == REJECTS


def test_an_import_that_is_cut_off_goes_on(file: Path) -> None:
    def die(done: int) -> None:
        raise KeyboardInterrupt

    with ParquetIndex(file) as exported, MemoryStore() as target:
        with pytest.raises(KeyboardInterrupt):
            copy(exported, target, on_progress=die)
        assert len(target) == 512
        report = copy(exported, target)
        assert (report.copied, report.unchanged) == (91, 512)


def test_an_index_of_another_encoder_is_refused(file: Path) -> None:
    with ParquetIndex(file) as exported, MemoryStore() as target:
        target.bind("encoder 2", SPACES)
        with pytest.raises(IndexMismatchError, match=r"built with encoder 2 and .*index\.parquet with encoder 1"):
            copy(exported, target)
        assert len(target) == 0


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def die(done: int) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "index.parquet"
    file.write_bytes(b"old")
    with MemoryStore() as store, pytest.raises(KeyboardInterrupt):
        export_index(filled(store), file, on_progress=die)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with MemoryStore() as store:
        with pytest.raises(ConfigError, match="is not an index yet"):
            export_index(store, tmp_path / "a.parquet")
        filled(store, 1)
        with pytest.raises(ConfigError, match=r"does not end in \.parquet"):
            export_index(store, tmp_path / "index")
        (tmp_path / "folder.parquet").mkdir()
        with pytest.raises(ConfigError, match="is a folder"):
            export_index(store, tmp_path / "folder.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.parquet"]


def rewritten(file: Path, folder: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A file with other columns, as another program would write it that keeps the file's own metadata."""
    table = change(pq.read_table(file))
    about = pq.read_metadata(file).metadata
    with pq.ParquetWriter(folder / "changed.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: value for key, value in about.items() if key != b"ARROW:schema"})
    return folder / "changed.parquet"


def test_what_is_not_an_export_is_refused(file: Path, tmp_path: Path) -> None:
    import pandas as pd

    with pytest.raises(ConfigError, match=r"no such file: 'none\.parquet'"):
        ParquetIndex("none.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        ParquetIndex(tmp_path / "text.parquet")
    pd.DataFrame({"id": ["a"]}).to_parquet(tmp_path / "pd.parquet")
    with pytest.raises(ConfigError, match="was not written by `vlmsearch export`"):
        ParquetIndex(tmp_path / "pd.parquet")
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        ParquetIndex(cut)
    with pytest.raises(ConfigError, match=r"needs a column clip/image of type .*, and has none"):
        ParquetIndex(rewritten(file, tmp_path, lambda table: table.drop_columns(["clip/image"])))


def test_damage_is_seen_before_anything_is_written(file: Path, tmp_path: Path) -> None:
    data = bytearray(file.read_bytes())
    vector = unit_vectors(600, IMAGE)[3].tobytes()
    place = bytes(data).index(vector)
    data[place] ^= 1
    (tmp_path / "flipped.parquet").write_bytes(data)
    with ParquetIndex(tmp_path / "flipped.parquet") as exported, MemoryStore() as target:
        with pytest.raises(ConfigError, match="is damaged"):
            copy(exported, target)
        assert len(target) == 0


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("metadata", '["a"]', "the metadata of 'id-0' are not a JSON object"),
        ("id", None, "has a row without id"),
        ("metadata", None, "has a row without metadata"),
        ("metadata", "{", "the row of 'id-0' cannot be read"),
        ("metadata", "[" * 60_000, "the row of 'id-0' cannot be read: JSON is nested deeper than 64 levels"),
        ("escaped", "[]", "the row of 'id-0' cannot be read: expected a JSON object with strings for id, text, "),
        ("escaped", '{"text": 5}', "the row of 'id-0' cannot be read: expected a JSON object with strings for"),
        ("escaped", '{"other": "x"}', "the row of 'id-0' cannot be read: expected a JSON object with strings for"),
        ("clip/image", [0.5] * 32, "a vector clip/image that is not of length one"),
        ("clip/image", [float("nan")] * 32, "a vector clip/image that is not of length one"),
    ],
)
def test_rows_that_no_index_has_are_refused(
    file: Path, tmp_path: Path, column: str, values: object, message: str
) -> None:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(column)
        cells = pa.array([values] * len(table), table.schema.field(column).type)
        return table.set_column(place, table.schema.field(column).with_nullable(True), cells)

    changed = rewritten(file, tmp_path, change)
    with ParquetIndex(changed) as exported, MemoryStore() as target, pytest.raises(ConfigError, match=message):
        copy(exported, target)


def with_keys(path: Path, folder: Path, **keys: object) -> Path:
    """An export with other metadata of its own."""
    table, own = pq.read_table(path), pq.read_metadata(path).metadata
    kept = {key: own[key] for key in (b"vlmsearch", b"vlmsearch.rejects")}
    texts = {key.replace("_", ".").encode(): json.dumps(value).encode() for key, value in keys.items()}
    pq.write_table(table.replace_schema_metadata(kept | texts), folder / "keys.parquet")
    return folder / "keys.parquet"


def manifest_of(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(pq.read_metadata(path).metadata[b"vlmsearch"])
    return found


SPACE = {"name": "clip", "dim": 32, "modalities": ["image", "text"]}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spaces", []),
        ("spaces", [SPACE | {"dim": 0}]),
        ("spaces", [SPACE | {"dim": -1}]),
        ("spaces", [SPACE | {"dim": "32"}]),
        ("spaces", [SPACE | {"modalities": ["sound"]}]),
        ("spaces", [SPACE, SPACE]),
        ("spaces", {"clip": 32}),
        ("spaces", 7),
        ("tuning", {"words": [1]}),
        ("tuning", [1]),
        ("tuning", {"words": float("nan")}),
    ],
)
def test_a_manifest_that_none_can_have_is_refused(file: Path, tmp_path: Path, key: str, value: object) -> None:
    changed = with_keys(file, tmp_path, vlmsearch={**manifest_of(file), key: value})
    with pytest.raises(ConfigError, match=r"the manifest in '.*' is damaged: "):
        ParquetIndex(changed)


@pytest.mark.parametrize(
    "rejects",
    [
        [1],
        {"a": 1},
        [{"id": "a"}],
        [{"id": 5, "code": "empty", "message": "m", "stamp": {"digest": "", "source": ""}}],
        [{"id": "a", "code": "empty", "message": "m", "stamp": {"digest": 1, "source": ""}}],
        [{"id": "a", "code": "empty", "message": "m", "other": "x", "stamp": {"digest": "", "source": ""}}],
    ],
)
def test_a_reject_list_that_none_can_have_is_refused(file: Path, tmp_path: Path, rejects: object) -> None:
    with pytest.raises(ConfigError, match=r"the manifest in '.*' is damaged: "):
        ParquetIndex(with_keys(file, tmp_path, vlmsearch_rejects=rejects))


ODD: list[object] = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    "",
    "x",
    "\0",
    "\ud800",
    "clip/image",
    [],
    [[]],
    {},
    {"a": []},
    "[" * 9999,
]


def odd_form(value: object, rng: random.Random) -> object:
    """A JSON value with one part of it replaced."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[key] = odd_form(value[key], rng)
        return changed
    return rng.choice(ODD)


def odd_file(file: Path, folder: Path, seed: int) -> Path:
    """An export with one odd thing in it."""
    rng, own = random.Random(seed), pq.read_metadata(file).metadata
    if seed % 3 == 0:
        key = rng.choice(["vlmsearch", "vlmsearch.rejects"])
        return with_keys(file, folder, **{key.replace(".", "_"): odd_form(json.loads(own[key.encode()]), rng)})
    if seed % 3 == 1:
        content = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 3, 20])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (folder / "bits.parquet").write_bytes(content)
        return folder / "bits.parquet"

    def change(table: pa.Table) -> pa.Table:
        place = rng.randrange(table.num_columns)
        field, cells = table.schema.field(place), table.column(place).to_pylist()
        row = rng.randrange(len(cells))
        if pa.types.is_string(field.type):
            text = rng.choice(
                [None, "", "\0", "x" * 5000, *map(json.dumps, ODD), json.dumps({"text": rng.choice(ODD)})]
            )
            cells[row] = text
        else:
            cells[row] = rng.choice([None, [], [None] * 32, [0.0] * 32, [1e38] * 32, [1.0], [float("inf")] * 32])
        if rng.random() < 0.1:
            return table.set_column(place, field.name, pa.array([rng.choice([1, 1.5, b"x", [1]])] * len(cells)))
        return table.set_column(place, field.with_nullable(True), pa.array(cells, field.type))

    return rewritten(file, folder, change)


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(6000, marks=pytest.mark.exhaustive)])
def test_whatever_is_in_a_file_it_is_copied_or_refused(tmp_path: Path, count: int) -> None:
    with SqliteStore(str(tmp_path / "source")) as store:
        export_index(filled(store, 20), tmp_path / "index.parquet")
    refused = list[str]()
    for seed in range(count):
        odd = odd_file(tmp_path / "index.parquet", tmp_path, seed)
        target = tmp_path / f"target-{seed}"
        try:
            with ParquetIndex(odd) as exported, SqliteStore(str(target)) as store:
                copy(exported, store)
                assert store.check().clean
                assert len(store.get(list(store.ids()))) == len(store)
        except VlmsearchError as exc:
            refused.append(str(exc))
        except Exception as exc:
            raise AssertionError(f"file {seed}") from exc
    assert count / 3 < len(refused) < count
    assert not [said for said in refused if "\n" in said]


def test_without_pyarrow_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("parquet"))):
        ParquetIndex(file)


# ---- the commands


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document(f"{i}", text=f"text {i}", metadata={"i": i}) for i in range(10)])
        add_reported(pipeline, Document("bad", image=b"no image"))
    return tmp_path


def test_the_commands_write_read_and_tell(folder: Path) -> None:
    told = ok("export", "out.parquet", "--store", "sqlite:index", cwd=folder)
    assert told.startswith("10 documents in ")
    assert "; out.parquet has 0.0 MB\n" in told
    done = json.loads(ok("export", "out.parquet", "--store", "sqlite:index", "--json", cwd=folder))
    assert done.pop("seconds") >= 0
    assert done == {"documents": 10, "files": 10, "rejects": 1, "bytes": (folder / "out.parquet").stat().st_size}
    assert ok("import", "out.parquet", "--store", "sqlite:other", cwd=folder).startswith("10 copied, 0 unchanged in ")
    with SqliteStore(str(folder / "other")) as store:
        store.upsert([Record(Document("mine"), {}, Stamp("mine"))])
    done = json.loads(ok("import", "out.parquet", "--store", "sqlite:other", "--prune", "--json", cwd=folder))
    assert (done["documents"], done["copied"], done["pruned"], done["rejects"]) == (10, 0, 1, 1)
    found = ok("search", "text 7", "--store", "sqlite:other", "--encoder", "mock:", "--limit", "1", cwd=folder)
    assert found.split("\t")[1] == "7"


def test_the_commands_name_their_flags_where_they_refuse(folder: Path) -> None:
    assert_one_line(run("export", "a.parquet", "--store", "sqlite:none", cwd=folder), "no index at sqlite:none")
    assert_one_line(
        run("export", "index", "--store", "sqlite:index", cwd=folder), "'index' ends in neither .parquet nor .csv"
    )
    assert_one_line(run("import", "a.parquet", "--store", "sqlite:b", cwd=folder), "no such file: 'a.parquet'")
    assert not (folder / "b").exists()
    ok("export", "a.parquet", "--store", "sqlite:index", cwd=folder)
    with SqliteStore(str(folder / "b")) as store:
        store.bind("another", SPACES)
    done = run("import", "a.parquet", "--store", "sqlite:b", cwd=folder)
    assert_one_line(done, "sqlite:b was built with another and a.parquet with mock:")
    assert "give --store a place without an index" in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_file_and_an_import_goes_on(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as source:
        source.bind("encoder 1", SPACES)
        source.upsert(make_records(30_000, (IMAGE, TEXT)))

    def interrupted(*arguments: str, begun: Callable[[], bool]) -> None:
        command = [sys.executable, "-m", "vlmsearch", *arguments]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not begun():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors.strip()) == (130, "Interrupted.")

    def is_writing() -> bool:
        return any(file.stat().st_size > 100_000 for file in tmp_path.glob(".*.writing"))

    interrupted("export", "out.parquet", "--store", "sqlite:index", begun=is_writing)
    assert not list(tmp_path.glob(".*.writing"))
    assert not (tmp_path / "out.parquet").exists()
    ok("export", "out.parquet", "--store", "sqlite:index", cwd=tmp_path)

    def is_importing() -> bool:
        with SqliteStore(str(tmp_path / "other")) as target:
            return len(target) > 0

    interrupted("import", "out.parquet", "--store", "sqlite:other", begun=is_importing)
    with SqliteStore(str(tmp_path / "other")) as target:
        before = len(target)
    assert 0 < before < 30_000
    done = json.loads(ok("import", "out.parquet", "--store", "sqlite:other", "--json", cwd=tmp_path))
    assert (done["documents"], done["copied"], done["unchanged"]) == (30_000, 30_000 - before, before)
