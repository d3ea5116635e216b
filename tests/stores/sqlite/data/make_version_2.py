"""Write version-2.gz: an index as version 2 of the schema has it, with two generations, whose words are those of FTS5.

It was made by the code of commit 9a45aa0, in a checkout of that: ``PYTHONPATH=.:mocks python make_version_2.py FOLDER``
writes it into the folder.
"""

import gzip
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, TEXT, make_records

from vlmsearch import Document, Record, Reject, Stamp
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Scalar

WORDS = ("Hunde", "Häuser", "Bücher", "Öfen", "Küsse", "Äpfel")


def records() -> list[Record]:
    """Records in German, with metadata of all kinds."""
    made = []
    for i, record in enumerate(make_records(30, (IMAGE, CAPTION, TEXT))):
        text = f"{i} laufende {WORDS[i % 6]}" if i % 5 else None
        metadata: dict[str, Scalar] = {"number": i, "part": i / 4, "is even": i % 2 == 0, "word": WORDS[i % 6]}
        image = Path(f"bilder/{WORDS[i % 6]}-{i}.jpg")
        made.append(Record(Document(record.document.id, text, image, metadata), record.vectors, record.stamp))
    return made


def main(folder: Path) -> None:
    """Write the file."""
    path = folder / "version-2"
    with SqliteStore(str(path), language="de") as store:
        store.bind("first", SPACES)
        store.upsert(records())
        built = store.beside("second", SPACES)
        built.upsert(records()[:20])
        built.upsert(records()[10:])
        built.delete(["id-3", "id-7"])
        store.freeze(built)
        store.switch(built)
        store.bind("second", SPACES)
        store.tune({"words": 0.5})
        store.reject([Reject("bad.png", "corrupt", "no image", Stamp("digest", "bilder"))])
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = path.read_bytes()
    (folder / "version-2.gz").write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
