#!/usr/bin/env bash
# pyarrow 25.0.1: what `to_pylist` gives for timestamps in nanoseconds depends on whether pandas is installed, though
# nothing imports it. With pandas they are pandas' Timestamp. Without it they are datetimes, unless one of them has
# nanoseconds: then the whole column raises ValueError. Times of day (time64) raise too, and with pandas they lose the
# nanoseconds in silence.
# See also apache/arrow issue 34614.
# Seen:
#   alone, 12:00:00.000000000: datetime
#   alone, 12:00:00.000000007: ValueError
#   alone, 01:00:00.000000007 (time64): ValueError
#   with pandas, 12:00:00.000000000: Timestamp
#   with pandas, 12:00:00.000000007: Timestamp
#   with pandas, 01:00:00.000000007 (time64): 01:00:00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
install() { "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }
cat > "$folder/values.py" <<'PYTHON'
import sys

import pyarrow as pa

noon = 1_714_564_800_000_000_000
columns = {
    "12:00:00.000000000": pa.array([noon], pa.timestamp("ns")),
    "12:00:00.000000007": pa.array([noon + 7], pa.timestamp("ns")),
    "01:00:00.000000007 (time64)": pa.array([3_600_000_000_007], pa.time64("ns")),
}
for name, column in columns.items():
    try:
        (value,) = column.to_pylist()
        said = value if "time64" in name else type(value).__name__
    except ValueError:
        said = "ValueError"
    print(f"{sys.argv[1]}, {name}: {said}")
PYTHON
install pyarrow==25.0.1
"$folder/venv/bin/python" "$folder/values.py" alone | tee "$folder/said"
install pandas==3.1.1
"$folder/venv/bin/python" "$folder/values.py" "with pandas" | tee -a "$folder/said"
diff "$folder/said" - <<'SEEN' || { echo "changed: other values" >&2; exit 1; }
alone, 12:00:00.000000000: datetime
alone, 12:00:00.000000007: ValueError
alone, 01:00:00.000000007 (time64): ValueError
with pandas, 12:00:00.000000000: Timestamp
with pandas, 12:00:00.000000007: Timestamp
with pandas, 01:00:00.000000007 (time64): 01:00:00
SEEN
