#!/usr/bin/env bash
# PyAV 18.1.0 (libswscale 9.5.102): white of YCbCr is 65283 of 65535 in rgb48, 0.4% too dark, and 65535 in gray16 of the same
# frame. Full range of 10 bits gives 65472. In PQ 0.4% of a code are 2 levels of SDR. Of 8 bits rgb48 is up to 1.3% too
# dark, unless ACCURATE_RND is asked for. With FULL_CHR_H_INT, which is meant to be better, rgb48 is wrong: red has no
# green any more, and four times the blue.
# Seen:
#   white: rgb48 [65283, 65283, 65283], gray16 65535; full range: rgb48 [65472, 65472, 65472]
#   grey of 8 bits: rgb48 [37522, 37522, 37522], accurate [37858, 37858, 37858]
#   red: rgb48 [44232, 8248, 6348], full chroma [44232, 0, 24924]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check av==18.1.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import av
import numpy as np
from av.video.reformatter import Interpolation

PLAIN, ACCURATE = Interpolation.BILINEAR, Interpolation.BILINEAR | Interpolation.ACCURATE_RND


def frame(form, codes, colour_range):
    made = av.VideoFrame(64, 64, form)
    made.color_range, made.colorspace = colour_range, 9
    for plane, code in zip(made.planes, codes):
        kind = np.uint16 if "10" in form else np.uint8
        plane.update(np.full(plane.buffer_size // kind().itemsize, code, kind).tobytes())
    return made


def pixel(of, form, interpolation):
    return of.to_ndarray(format=form, interpolation=interpolation)[32, 32].tolist()


white, full = frame("yuv420p10le", (940, 512, 512), 1), frame("yuv420p10le", (1023, 512, 512), 2)
grey, red = frame("yuv420p", (143, 128, 128), 1), frame("yuv420p10le", (300, 430, 760), 1)
whites = [pixel(white, "rgb48le", ACCURATE), pixel(white, "gray16le", ACCURATE), pixel(full, "rgb48le", ACCURATE)]
greys = [pixel(grey, "rgb48le", PLAIN), pixel(grey, "rgb48le", ACCURATE)]
reds = [pixel(red, "rgb48le", ACCURATE), pixel(red, "rgb48le", ACCURATE | Interpolation.FULL_CHR_H_INT)]
print("white: rgb48 {}, gray16 {}; full range: rgb48 {}".format(*whites))
print("grey of 8 bits: rgb48 {}, accurate {}".format(*greys))
print("red: rgb48 {}, full chroma {}".format(*reds))
sys.exit(not (whites[0][0] < 65300 and whites[1] == 65535 and greys[0][0] + 200 < greys[1][0] and reds[0][1] > 8000 > reds[1][1]))
PYTHON
