"""The size budget of an image: how it is written, and when an image has outgrown it.

The size is the sum of an image's layers, unpacked, as ``build``, its record and ``plan`` name it. A budget is a limit
for growth that nobody meant, so a build may exceed it by a little: another day's packages are a few MB larger.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from trainwright.core.checked import Checked
from trainwright.core.layout import UNITS
from trainwright.core.records import Field, Record

TOLERANCE = 3  # percent: what another day's packages may add
SMALLEST, LARGEST = 10**6, 10**15  # no image is smaller than 1 MB; a forgotten unit is not taken for bytes
SIZE = r"^([0-9]{1,15}(?:\.[0-9]{1,12})?) ?(B|kB|MB|GB)$"
_SIZE = re.compile(SIZE.strip("^$"))
# What people write: 5 gigs, 5 GiB, 5,0 gb, 5G.
_NEARLY = re.compile(r"([0-9]{1,15})(?:[.,]([0-9]{1,12}))?\s*([a-z]{0,16})", re.ASCII | re.IGNORECASE)


def read_size(value: object) -> int:
    """A size as bytes: ``5.0 GB``, with the units of :func:`trainwright.core.layout.size`, or a number of bytes.

    Raises:
        ValueError: the value is invalid, or not a size that an image can have; the message names the nearest one.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        count = Decimal(value)
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        count = Decimal(found[1]) * 1000 ** UNITS.index(found[2])
    else:
        raise ValueError(f"must be a size. {_hint(value)}")
    if count != int(count) or not SMALLEST <= count <= LARGEST:
        raise ValueError(f"must be a whole number of bytes between 1 MB and 1 PB. {_hint(value)}")
    return int(count)


def _hint(value: object) -> str:
    """The nearest valid size, as far as one can be guessed."""
    found = None if isinstance(value, bool) else _NEARLY.fullmatch(str(value).strip())
    if found is not None:
        number, word = Decimal(f"{found[1]}.{found[2] or 0}"), found[3].lower()
        if not word:  # too few for bytes: the unit was forgotten
            word = "g" if number < 100 else "m"
        power = "bkmgt".find(word[0])
        count = number * (1024 if word[1:] in ("i", "ib") else 1000) ** power
        if power >= 0 and SMALLEST <= count <= LARGEST:
            unit, scale = ("GB", 10**9) if count >= 10**9 else ("MB", 10**6)
            return f"Did you mean {float(round(count / scale, 3)):g} {unit}?"
    return "Write it as in 5.0 GB, 900 MB, or as a number of bytes."


Size = Checked[Any, read_size]


class Budget(Record):
    """The size budget of an image, and the file that sets it."""

    bytes: int
    file: str = Field(description="as shown to users: images/pytorch/cpu/line.yaml, trainwright.toml")

    def percent_over(self, count: int) -> float:
        """By how much a size is over the budget, in percent of it; negative if it is below."""
        return (count - self.bytes) * 100 / self.bytes

    def broken_by(self, count: int) -> bool:
        """Whether an image of so many bytes may not be tagged: it is over the budget by more than the tolerance."""
        return count * 100 > self.bytes * (100 + TOLERANCE)
