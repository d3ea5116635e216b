#!/usr/bin/env bash
# FFmpeg (PyAV 18.1.0) says how long a film is in MP4, and when it ends in Matroska and ASF: six seconds whose times
# begin at a minute, such as a piece of a recording, are 6 seconds of .mp4 and 66 of .mkv and .wmv. Who compares the
# duration with what was decoded takes the whole file for one that is cut short. mkvmerge writes the length into the
# same field of a Matroska file, so that the program which wrote the file decides what the number means.
# Seen (start and duration in seconds):
#   mp4: 60.0 6.0
#   mpegts: 60.0 6.0
#   matroska: 60.0 66.0
#   asf: 60.0 66.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check av==18.1.0 numpy==2.3.5
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from fractions import Fraction

import av
import numpy as np

durations = {}
for name, codec in (("mp4", "libx264"), ("mpegts", "libx264"), ("matroska", "libx264"), ("asf", "wmv2")):
    with av.open(name, "w", format=name) as film:
        stream = film.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(60):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8))
            frame.pts, frame.time_base = 600 + number, Fraction(1, 10)
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    with av.open(name) as film:
        durations[name] = (film.start_time / av.time_base, film.duration / av.time_base)
    print(f"{name}:", *(round(seconds, 1) for seconds in durations[name]))
rounded = {name: tuple(map(round, seconds)) for name, seconds in durations.items()}
if rounded != {"mp4": (60, 6), "mpegts": (60, 6), "matroska": (60, 66), "asf": (60, 66)}:
    sys.exit("changed: other durations")
PYTHON
