"""The script of ``--with-run``: a step of the user's own, read and checked before anything is built."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.core.errors import RequestError

MOST_BYTES = 1_000_000  # what is larger is data: it belongs into --code or an input channel
_FIRST_LINES = "#!/bin/bash, #!/bin/sh or #!/usr/bin/env python3"


def read_script(path: Path, what: str) -> str:
    """The text of a script that the kernel can run in an image.

    Args:
        path: the file.
        what: how messages name it.

    Raises:
        RequestError: it is missing or not a regular file, too large, not UTF-8, has line ends of Windows, or its first
            line names no interpreter (``#!``, execve(2)).
    """
    try:
        if not path.is_file():
            wrong = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "no such file"
            raise RequestError(f"{what}: {wrong}", remedy="Name a shell or Python script.")
        if path.stat().st_size > MOST_BYTES:
            raise RequestError(
                f"{what}: has {path.stat().st_size} bytes; a script may have {MOST_BYTES}",
                remedy="Keep data out of it: --code bakes a folder, and jobs read from input channels.",
            )
        data = path.read_bytes()
    except OSError as refused:
        raise RequestError(f"{what}: cannot be read: {refused.strerror}", remedy="Make it readable for you.") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as wrong:
        line = data[: wrong.start].count(b"\n") + 1
        raise RequestError(f"{what}:{line}: is not text in UTF-8", remedy="Save the file as UTF-8.") from None
    first = text.partition("\n")[0]
    if text.startswith("\ufeff"):
        raise RequestError(f"{what}: begins with a byte order mark", remedy="Save the file as UTF-8 without one.")
    if not text.startswith("#!"):
        raise RequestError(f"{what}: the first line does not begin with #!", remedy=f"Begin it with {_FIRST_LINES}.")
    if "\r\n" in text or first.endswith("\r"):
        line = text[: text.index("\r")].count("\n") + 1
        raise RequestError(
            f"{what}:{line}: has line ends of Windows (CRLF)", remedy=f"sed -i 's/\\r$//' {path.name} changes them."
        )
    if not re.match(r"#! */[^\s\0]", text) or "\0" in text:
        raise RequestError(f"{what}: {first[:80]!r} names no interpreter by its path", remedy=f"Write {_FIRST_LINES}.")
    return text
