"""Parquet files and tars of drawn scenes, as data sets have them."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlmsearch.demo.scenes import make_scene


def png(seed: int) -> bytes:
    """A drawn scene as a file."""
    out = io.BytesIO()
    make_scene(seed).draw(96).save(out, "PNG")
    return out.getvalue()


def write_parquet(path: Path, rows: Sequence[Mapping[str, object]], *, group: int = 100) -> Path:
    """A Parquet file of these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    pq.write_table(pa.table({each: [row.get(each) for row in rows] for each in columns}), path, row_group_size=group)
    return path


def write_tar(path: Path, files: Mapping[str, bytes | str | dict[str, object]], *, mode: str = "w") -> Path:
    """A tar of these files: a dictionary is written as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            text = json.dumps(content) if isinstance(content, dict) else content
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
