"""The real command line in this process, fed what nobody should feed it: a table of tries, and what each must not do.

A module of tries is a table and a line::

    ROWS = (Try("plan --framework pytorhc", 2, "pytorch"), Try(["list", "--cuda", "a b"], 3, "cu124"))

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_hostile(row, attempt):
        attempt(row)

Each try runs in a fresh working folder beside a sentinel tree: somebody's project. In the words, the environment and
the content of files ``{work}``, ``{sentinel}``, ``{home}``, ``{state}`` and ``{cache}`` stand for the folders of a try.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import one_process
from trainwright.__main__ import run

LIMIT = 2.0  # seconds of processor time
INTERNAL = 70
ENVIRONMENT = (
    "TRAINWRIGHT_",
    "PIP_",
    "UV_",
    "AWS_",
    "DOCKER_",
    "BUILDKIT_",
    "BUILDX_",
    "INVOKE_",
    "XDG_",
    "CODEBUILD_",
)
# A project of somebody's, next door.
SENTINEL: Mapping[str, bytes] = {
    "Dockerfile": b"FROM scratch\n",
    "README.md": b"# My thesis\n",
    "src/train.py": b"print('hello')\n",
    "data/results.csv": b"1,2\n",
    ".git/HEAD": b"ref: refs/heads/main\n",
    ".git/objects/ab/cdef": b"\x78\x9c\x00",
    ".ssh/id_ed25519": b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    ".env": b"TOKEN=sentinel-secret\n",
}


@dataclass(frozen=True)
class Link:
    """A symbolic link among the files of a try."""

    target: str


@dataclass(frozen=True)
class Try:
    """One command line.

    Attributes:
        words: the command line, as one text to split at spaces, or as words.
        code: the exit code, or those that are right.
        says: what standard error or output must hold.
        files: of the working folder: path to content; ``None`` makes a folder.
        env: variables to set; ``None`` unsets one.
        stdin: what standard input holds.
    """

    words: str | Sequence[str]
    code: int | tuple[int, ...]
    says: str = ""
    files: Mapping[str, str | bytes | Link | None] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    stdin: str | bytes = ""

    @property
    def argv(self) -> list[str]:
        """The words."""
        return self.words.split() if isinstance(self.words, str) else list(self.words)

    def __str__(self) -> str:
        text = " ".join(self.argv)
        shown = "".join(c if c.isprintable() and ord(c) < 127 else "?" for c in text[:70])
        return shown if len(text) <= 70 else f"{shown}-{hashlib.sha256(os.fsencode(text)).hexdigest()[:6]}"


@dataclass(frozen=True)
class Tried:
    """What came of a try."""

    code: int
    out: str
    err: str
    work: Path


class _Watch:
    """Every file that this process opens for writing, makes, moves or removes, by Python's audit events."""

    one_path = ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.rmtree")

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self.hook)

    def hook(self, event: str, details: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event == "open":
            path, mode, flags = details
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else flags & (os.O_WRONLY | os.O_RDWR)
            if writes and isinstance(path, str | bytes):
                self.seen.append(self.absolute(path))
        elif event in self.one_path and isinstance(details[0], str | bytes):
            folder = details[-1] if event in ("os.mkdir", "os.remove", "os.rmdir") else None
            path = self.absolute(details[0], folder)
            # The event comes first: to make what is there, or to remove what is not, will change nothing.
            if os.path.lexists(path) != (event == "os.mkdir"):
                self.seen.append(path)
        elif event in ("os.rename", "os.link", "os.symlink"):
            self.seen += [self.absolute(p) for p in details[:2] if isinstance(p, str | bytes)]

    @staticmethod
    def absolute(path: str | bytes, folder: object = None) -> str:
        """Relative to a folder that is named by a file descriptor, as ``shutil.rmtree`` does it, or to the work."""
        whole = Path(os.fsdecode(path))
        if isinstance(folder, int) and folder >= 0:
            whole = Path(f"/proc/self/fd/{folder}").readlink() / whole
        return os.path.abspath(whole)  # noqa: PTH100 - a link that is removed or made is not what it leads to

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        seen: list[str] = []
        self.seen = seen
        try:
            yield seen
        finally:
            self.seen = None


WATCH = _Watch()


def contents(folder: Path) -> dict[str, str]:
    """Path to kind and checksum of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        else:
            found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def attempt(
    row: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], limit: float = LIMIT
) -> Tried:
    """Run a try and hold it against what holds of every one; what came of it, for what only this one must do."""
    places = {name: tmp_path / name for name in ("work", "sentinel", "home", "state", "cache", "scratch")}
    _prepare(row, places)
    _environment(row, places, monkeypatch)
    before = {name: contents(places[name]) for name in ("sentinel", "home")}
    words = [_placed(word, places) for word in row.argv]
    monkeypatch.setattr(sys, "argv", ["trainwright", *words])
    capfd.readouterr()
    with one_process(), WATCH.watching() as written:
        began = time.process_time()
        code = run(words)
        spent = time.process_time() - began
    out, err = capfd.readouterr()
    told = f"exit code {code}\n--- standard output\n{out[-4000:]}\n--- standard error\n{err[-4000:]}"
    assert "Traceback" not in out + err, told
    assert code in (row.code if isinstance(row.code, tuple) else (row.code,)), told
    assert row.says in out + err, f"{row.says!r} is missing: {told}"
    assert spent <= limit, f"{spent:.1f} s of processor time: {told}"
    for name, was in before.items():
        now = contents(places[name]) if places[name].is_dir() else {}
        changed = [f"{name}/{path}" for path in sorted({*was, *now}) if was.get(path) != now.get(path)]
        assert not changed, f"changed: {changed}: {told}"
    mine = tuple(str(places[name]) for name in ("work", "state", "cache", "scratch"))
    astray = [path for path in written if not _inside(path, mine)]
    assert not astray, f"written outside: {astray[:5]}: {told}"
    if code != INTERNAL:
        assert not [*places["state"].glob("crash-*"), *places["scratch"].glob("crash-*")], told
    escapes = {c for c in out + err if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
    assert not escapes, f"the output holds {escapes!r}"
    assert len(err) < 20_000, f"standard error has {len(err)} characters"
    if code and "--json" in words:
        json.loads(out)
    return Tried(code, out, err, places["work"])


def _placed(text: str, places: Mapping[str, Path]) -> str:
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text


def _prepare(row: Try, places: Mapping[str, Path]) -> None:
    for name in ("work", "sentinel", "home", "scratch"):
        places[name].mkdir()
    for name, content in SENTINEL.items():
        path = places["sentinel"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name, given in row.files.items():
        path = places["work"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if given is None:
            path.mkdir()
        elif isinstance(given, Link):
            path.symlink_to(_placed(given.target, places))
        elif isinstance(given, bytes):
            path.write_bytes(given)
        else:
            path.write_text(_placed(given, places))


def _environment(row: Try, places: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine, no network, no settings of this machine."""
    for name in os.environ:
        if name.startswith(ENVIRONMENT) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    settings = {
        "HOME": "{home}",
        "TMPDIR": "{scratch}",
        "TRAINWRIGHT_STATE": "{state}",
        "TRAINWRIGHT_CACHE": "{cache}",
        "TRAINWRIGHT_ENGINE_SETUP": "never",
        "DOCKER_HOST": "unix:///nowhere",
        "PIP_CONFIG_FILE": os.devnull,
        "UV_OFFLINE": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    }
    for name, value in {**settings, **row.env}.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, _placed(value, places))
    monkeypatch.setattr(tempfile, "tempdir", str(places["scratch"]))
    monkeypatch.chdir(places["work"])
    given = row.stdin if isinstance(row.stdin, bytes) else row.stdin.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))


def _inside(path: str, folders: tuple[str, ...]) -> bool:
    return path.startswith(("/dev/", "/proc/")) or any(
        path == folder or path.startswith(f"{folder}/") for folder in folders
    )
