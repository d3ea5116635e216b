#!/usr/bin/env bash
# NumPy (2.3.5) asks Linux for huge pages (madvise) for each array of 4 MiB or more; `bytes` of that size get usual ones.
# With /sys/kernel/mm/transparent_hugepage/defrag at its default, madvise, the kernel makes room for such pages while the
# program waits. So reading files of 480 MiB into arrays of 12 MiB took 0.14 to 2.1 s of processor time in processes that
# did nothing else, from one run to the next, by how scattered the free memory was. Reading them as `bytes`, with
# np.frombuffer around, took 0.22 to 0.26 s each time. NUMPY_MADVISE_HUGEPAGE=0 turns it off for a whole process.
# Seen (whether the memory of 12 MiB has the flag hg):
#   np.empty: True
#   np.empty with NUMPY_MADVISE_HUGEPAGE=0: False
#   bytes: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.3.5
cat >"$folder/flags.py" <<'PYTHON'
import sys

import numpy as np

SIZE = 12 * 2**20
kept = np.empty(SIZE, np.uint8) if sys.argv[1] == "np.empty" else bytes(SIZE)
address = np.frombuffer(kept, np.uint8).ctypes.data + SIZE // 2
inside = False
for line in open("/proc/self/smaps", encoding="ascii"):
    first, _, rest = line.partition(" ")
    if "-" in first and not first.endswith(":"):
        start, end = (int(number, 16) for number in first.split("-"))
        inside = start <= address < end
    elif inside and first == "VmFlags:":
        print("hg" in rest.split())
PYTHON
python="$folder/venv/bin/python"
seen="np.empty: $("$python" "$folder/flags.py" np.empty)
np.empty with NUMPY_MADVISE_HUGEPAGE=0: $(NUMPY_MADVISE_HUGEPAGE=0 "$python" "$folder/flags.py" np.empty)
bytes: $("$python" "$folder/flags.py" bytes)"
echo "$seen"
[ "$seen" = "np.empty: True
np.empty with NUMPY_MADVISE_HUGEPAGE=0: False
bytes: False" ] || { echo "changed: other flags"; exit 1; }
