"""A network bridge for a test's second engine; ``ip`` need not be installed.

A second engine with ``--bridge=none`` takes ``docker0`` away from the first one, and all its containers with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_ADD, _DELETE, _SET_FLAGS = 0x89A0, 0x89A1, 0x8914  # SIOCBRADDBR, SIOCBRDELBR, SIOCSIFFLAGS


@contextmanager
def bridge(name: str) -> Iterator[None]:
    """A bridge of that name (15 characters at most), gone on the way out; one that a killed test left is replaced.

    Raises:
        OSError: this may not be done here.
    """
    delete_bridge(name)
    _control(_ADD, name.encode() + b"\0")
    try:
        yield
    finally:
        delete_bridge(name)


def delete_bridge(name: str) -> None:
    """Delete a bridge, if it is there and this may be done here."""
    with contextlib.suppress(OSError):
        # Only a bridge that is down can be deleted: no flag is set.
        _control(_SET_FLAGS, struct.pack("16sh14x", name.encode(), 0))
        _control(_DELETE, name.encode() + b"\0")


def _control(command: int, argument: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, command, argument)
