"""A small collection in CISI's format."""

from pathlib import Path

_FILES = {
    "CISI.ALL": """.I 1
.T
Dogs in the snow
.A
Nobody, N.
.W
Huskies pull a sledge
through the forest.
.X
2	5	1
.I 2
.T
Blue cars
.W
A parade of old cars.
.I 3
.A
An author and nothing else
.I 4
.W
Boats on a lake.
""",
    "CISI.QRY": ".I 1\n.W\na sledge and\nhuskies\n.I 2\n.T\na title\n.W\ncars of old\n.I 3\n.W\nnever judged\n",
    "CISI.REL": "     1      1\t0\t0.0\n     2      2\t0\t0.0\n     2      4\t0\t0.000000\n     9      4\t0\t0.0\n",
}


def write_cisi(folder: Path) -> Path:
    """Write it into a new folder, and return that."""
    folder.mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    return folder
