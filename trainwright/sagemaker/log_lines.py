"""Logs as people have them: plain text, gzip, exports of CloudWatch, JSON lines; and what a line says of its process.

A log is read in blocks of whole lines, so that its size does not matter.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from trainwright.core.errors import RequestError

BLOCK = 1 << 22
LONGEST_LINE = 4000
MOST_JSON = 256 << 20  # a JSON document is read whole
MOST_BYTES = 4 << 30  # unpacked; a job's log is smaller, an archive that is made to fill a disk is not
# Colours, and the prefixes of mpirun, torchrun, the toolkit, CloudWatch (with the stream) and docker compose.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")
_FRONT = (
    r"(?:(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\s*\[\d+(?:,(?:mpirank:)?\d+(?:,algo-\d+)?)?\]\s*<std(?:out|err)>:?"
    r"|\s*\|\s*(?=\d{4}-\d\d-)|\s*\[?(?:rank|default)\d+\]?:"
    r"|\s*(?:algo-\d+(?:-\w+)?|\w{8,12}-algo-\d+-\w+)\s*\||\s*[\w-]+/algo-\d+-\d{10}\s"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?{after})"
)
_PREFIX = re.compile("^" + _FRONT.replace("{after}", r"[\s|]+") + r"\s*")
_PREFIX_ALONE = re.compile("^" + _FRONT.replace("{after}", r"(?: \| |[\s|])"))
_RANK = re.compile(
    r"\[(?:\d+,)?(?:mpirank:)?(\d+)(?:,algo-\d+)?\]<std|\[?rank(\d+)\]?:|\[default(\d+)\]|\[Rank (\d+)\]"
)
_HOST = re.compile(r"\b(algo-\d+)\b")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
_TIME_OF_MPI = re.compile(r"\w{3} (\w{3} [ \d]\d [\d:]{8} \d{4})(?=\s*\[)")  # mpirun --timestamp-output
# The names of a log's text in JSON: CloudWatch, Logs Insights, Docker's json-file, loggers.
_TEXT = ("message", "@message", "log", "msg", "event", "FailureReason")
_WHEN = ("timestamp", "@timestamp", "time", "asctime")


@dataclass(frozen=True)
class Log:
    """A log: its name, and its bytes in blocks of whole lines."""

    name: str
    blocks: Iterable[bytes]


def clean(line: str) -> str:
    """Return a line without colours and control characters."""
    line = line.rstrip("\r\n").rpartition("\r")[2]
    # A control character, or text that is cut off, may have hidden the end of a line.
    return line[:LONGEST_LINE] if line.isprintable() else _ESCAPES.sub("", line)[:LONGEST_LINE].rstrip("\n")


def bare(line: str, prefix: re.Pattern[str] = _PREFIX) -> str:
    """Return a cleaned line without the prefixes of launchers and CloudWatch."""
    for _ in range(4):
        if not (found := prefix.match(line)):
            break
        line = line[found.end() :]
    return line


def indented(line: str) -> str:
    """:func:`bare`, with the indentation behind the prefixes."""
    return bare(line, _PREFIX_ALONE)


def rank_of(line: str) -> int | None:
    """The rank that wrote a line, if its launcher marks lines: mpirun's --tag-output, torchrun, PyTorch."""
    found = _RANK.search(line[:200])
    return int(next(group for group in found.groups() if group)) if found else None


def host_of(text: str) -> str | None:
    """The host that a prefix or the name of a log stream names: ``algo-2``."""
    found = _HOST.search(text[:200])
    return found[1] if found else None


def time_of(line: str) -> str | None:
    """The time at the beginning of a line, in a form whose order is that of time."""
    if stamp := _TIME_OF_MPI.match(line):
        with suppress(ValueError):
            return datetime.strptime(stamp[1], "%b %d %H:%M:%S %Y").strftime("%Y-%m-%d %H:%M:%S.%f")
    found = _TIME.search(line[:80])
    return f"{found[1]} {found[2]}.{(found[3] or '').ljust(6, '0')}" if found else None


def log_files(path: Path, above: Path | None = None) -> list[Log]:
    """The logs of a file, or of every file of a folder and its subfolders (an export of CloudWatch).

    Args:
        path: of the file, which may be a pipe, or the folder.
        above: a folder above it, from which the logs are named.

    Raises:
        RequestError: there is no such file, or the folder contains no log file.
    """
    if path.is_dir():
        # `aws-logs-write-test` is what CloudWatch leaves in a bucket before an export.
        files = sorted(each for each in path.rglob("*") if each.is_file() and each.name != "aws-logs-write-test")
        if not files:
            raise RequestError(f"{path}: the folder has no files", remedy="./invoke diagnose FOLDER-WITH-LOGS")
        return [Log(each.relative_to(above or path).as_posix(), _of_file(each)) for each in files]
    if not path.exists():
        raise RequestError(f"{path}: no such file", remedy="./invoke diagnose LOG, or - for standard input")
    if path.is_block_device() or (path.is_char_device() and path.resolve() != Path(os.devnull)):
        raise RequestError(f"{path}: a device, not a log", remedy="./invoke diagnose LOG, or - for standard input")
    return [Log(str(path.relative_to(above) if above else path), _of_file(path))]


def _of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from blocks(stream, str(path))


def blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The text of a log in blocks of whole lines, whatever its format.

    Args:
        stream: the log.
        name: for errors.

    Raises:
        RequestError: a broken archive, or more text than any log has.
    """
    head = stream.read(BLOCK)
    source = _chained(head, stream)
    if head[:2] == b"\x1f\x8b":
        unpacked = gzip.GzipFile(fileobj=io.BufferedReader(_Raw(source)))
        try:
            yield from blocks(unpacked, name)  # type: ignore[arg-type]
        except (OSError, EOFError, zlib.error) as wrong:
            raise RequestError(f"{name}: broken gzip archive: {wrong}", remedy="Download it again.") from None
        return
    start = head.lstrip()[:1]
    first = head.partition(b"\n")[0].strip().strip(b"\xef\xbb\xbf")
    if start in (b"{", b"[") and _is_json(first, head):
        yield from _of_json(source)
    elif re.fullmatch(rb'"?@?timestamp"?,(?:.*,)?"?@?message"?(?:,.*)?', first):
        yield from _joined(_of_csv(source))
    else:
        yield from _whole_lines(source, name)


class _Raw(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return 0
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _chained(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = stream.read(BLOCK)


def _whole_lines(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    rest, total = b"", 0
    for chunk in chunks:
        total += len(chunk)
        if total > MOST_BYTES:
            raise RequestError(f"{name}: more than {MOST_BYTES >> 30} GiB", remedy="Diagnose the end of the log.")
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        if not end and len(text) > BLOCK:
            end = len(text)  # one endless line
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest


def _is_json(first: bytes, head: bytes) -> bool:
    """Whether a log is JSON, and not text that begins with a bracket or a dict of Python."""
    try:
        return next(_messages(json.loads(first)), None) is not None
    except (ValueError, RecursionError):
        return bool(re.search(rb'"(?:events|logEvents|results|@?message|FailureReason)"\s*:', head[: 1 << 16]))


def _of_json(chunks: Iterator[bytes]) -> Iterator[bytes]:
    whole = b"".join(_up_to(chunks, MOST_JSON))
    try:
        values: Iterable[Any] = [json.loads(whole)]
    except (ValueError, RecursionError):
        values = (_value(line) for line in whole.split(b"\n") if line.strip())
    yield from _joined(text for value in values for text in _messages(value))


def _up_to(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        most -= len(chunk)
        if most < 0:
            raise RequestError("a JSON document of more than 256 MiB", remedy="Export the log as text.")


def _value(line: bytes) -> Any:
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        return msgspec.json.decode(line)  # several times as fast; it refuses NaN and half of a surrogate pair
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode("utf-8", "replace")


def _messages(value: Any) -> Iterator[str]:
    """The lines of a value of JSON: an event, a list of events, a description of a job, or a row of Insights."""
    if isinstance(value, str):
        yield from value.splitlines() or [""]
    elif isinstance(value, list):
        if value and all(isinstance(each, dict) and {"field", "value"} <= each.keys() for each in value):
            yield from _messages({str(each["field"]): each["value"] for each in value})
        else:
            for each in value:
                yield from _messages(each) if isinstance(each, dict | list) else ()
    elif isinstance(value, dict):
        for several in ("events", "logEvents", "results"):
            if isinstance(value.get(several), list):
                yield from _messages(value[several])
                return
        text = next((value[key] for key in _TEXT if key in value and isinstance(value[key], str)), None)
        if text is not None:
            front, stream = _when(value), value.get("logStreamName") or value.get("@logStream")
            if stream:
                front = f"{front} {stream}" if front else str(stream)
            for line in text.splitlines() or [""]:
                yield f"{front} {line}" if front else line
        if isinstance(value.get("SecondaryStatus"), str):
            yield f"SecondaryStatus: {value['SecondaryStatus']}"


def _when(value: dict[str, Any]) -> str:
    given = next((value[key] for key in _WHEN if value.get(key)), "")
    if isinstance(given, int | float) and not isinstance(given, bool):
        return iso(given)
    return str(given) if time_of(str(given)) else ""


def iso(milliseconds: float) -> str:
    """The time of an event of CloudWatch, which counts milliseconds since 1970; empty if it is none."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _of_csv(chunks: Iterator[bytes]) -> Iterator[str]:
    text = b"".join(_up_to(chunks, MOST_JSON)).decode("utf-8-sig", "replace").replace("\0", "")
    csv.field_size_limit(BLOCK)
    try:
        for row in csv.DictReader(io.StringIO(text)):
            stamp = str(row.get("timestamp") or "")
            event = {key: value for key, value in row.items() if isinstance(key, str)}
            yield from _messages(event | ({"timestamp": int(stamp)} if stamp.isascii() and stamp.isdigit() else {}))
    except csv.Error as wrong:
        raise RequestError(f"the log looks like CSV of CloudWatch, but is invalid: {wrong}") from None


def _joined(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines as blocks."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size > BLOCK:
            yield ("\n".join(held) + "\n").encode("utf-8", "replace")
            held, size = [], 0
    if held:
        yield ("\n".join(held) + "\n").encode("utf-8", "replace")
