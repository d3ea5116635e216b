"""TIFF images in depths that Pillow refuses, or reads as noise."""

from __future__ import annotations

import re
from typing import Any

from PIL.TiffImagePlugin import TiffImageFile

_DEPTHS, _COMPRESSION, _PHOTOMETRIC, _PLANES = 258, 259, 262, 284
_BY_LIBTIFF = 32771
"""A compression that is none, and that Pillow leaves to libtiff."""
_FOREIGN = re.compile(r"B(?=[SF]\Z)")
"""The order of bytes of floats and signed numbers. Pillow takes it for that of what libtiff gives."""


class TiffImage(TiffImageFile):
    """A TIFF whose header is read."""

    def _setup(self) -> None:
        """Read the header, where deep greys whose white is 0 are as others.

        Planes of 16 bits are left to libtiff, whose numbers have the order of bytes of the machine.
        """
        tags = self.tag_v2
        is_deep, photometric = not {12, 16}.isdisjoint(tags.get(_DEPTHS, ())), tags.get(_PHOTOMETRIC)
        if is_deep and photometric == 0:
            tags[_PHOTOMETRIC] = 1
        if is_deep and (tags.get(_PLANES), tags.get(_COMPRESSION, 1)) == (2, 1):
            tags[_COMPRESSION] = _BY_LIBTIFF
        super()._setup()
        if is_deep and photometric == 0:
            tags[_PHOTOMETRIC] = 0  # which says what is black
        for number, tile in enumerate(self.tile if self.use_load_libtiff else ()):
            args: Any = tile.args
            self.tile[number] = tile._replace(args=(_FOREIGN.sub("N", args[0]), *args[1:]))
