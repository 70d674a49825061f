"""A copy of the front door, ``./invoke``, with a stand-in for Python; another user who runs it."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AUTO = {"TRAINWRIGHT_ENGINE_SETUP": "auto"}

# A Python of ten lines: it makes an environment whose "python" prints what it is asked to run. What it does goes to
# the file CALLS; the folder of that file holds switches (no-venv, old, pip-fails, pip-hangs, ...).
PYTHON = """#!/bin/sh
here={here}
case "$*" in
*'import ensurepip'*)
    [ ! -e $here/old ] || exit 3
    echo {path}
    [ ! -e $here/no-venv ] || exit 1 ;;
'-I -m venv '*)
    echo "venv" >>$here/calls
    mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
    touch "$4/pyvenv.cfg" "$4/bin/invoke"
    cp "$0" "$4/bin/python" ;;
'-I -m pip '*)
    echo "pip $*" >>$here/calls
    [ ! -e $here/pip-hangs ] || {{ touch $here/pip-began; exec sleep 30; }}
    [ ! -e $here/pip-slow ] || sleep 1
    [ ! -e $here/pip-waits ] || until [ -e $here/go ]; do sleep 0.1; done
    [ ! -e $here/pip-full ] || {{ cat $here/pip-full >&2; exit 1; }}
    [ ! -e $here/pip-fails ] || {{ echo 'THESE PACKAGES DO NOT MATCH THE HASHES' >&2; exit 1; }} ;;
'-I -m compileall '*) ;;
*) pwd; printf '%s\\n' "$@" ;;
esac
"""


# A real Python that copies an environment where it is asked for one: ensurepip takes five seconds for each.
COPIES = """#!/bin/sh
case "$*" in
*'import ensurepip'*) echo {program} && exit ;;
'-I -m venv '*) mkdir -p "$4" && exec cp -a {venv}/. "$4" ;;
esac
exec {python} "$@"
"""


def python_with_venv(folder: Path) -> Path:
    """A program that is this Python, and whose ``-m venv`` is a copy of one that was really made, once."""
    venv, program = folder / "venv", folder / "python3.11"
    subprocess.run([sys.executable, "-I", "-m", "venv", venv], check=True)
    program.write_text(COPIES.format(program=program, venv=venv, python=sys.executable))
    program.chmod(0o755)
    return program


class Checkout:
    """A copy of the front door in a folder of its own, with a stand-in for Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "my checkout"
        self.root.mkdir()
        shutil.copy2(ROOT / "invoke", self.root / "invoke")
        self.pins("invoke==3.0.3 --hash=sha256:0\n")
        self.python = folder / "usr" / "bin" / "python3.11"
        self.python.parent.mkdir(parents=True)
        self.python.write_text(PYTHON.format(here=folder, path=self.python))
        self.python.chmod(0o755)

    def pins(self, text: str) -> None:
        """Write requirements.txt."""
        (self.root / "requirements.txt").write_text(text)

    def switch(self, name: str, on: bool = True) -> None:
        """Turn a switch of the stand-in on or off."""
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()

    def program(self, name: str, script: str) -> None:
        """A stand-in beside Python on PATH."""
        path = self.python.with_name(name)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a call."""
        ours = ("PYTHON", "TRAINWRIGHT", "CI", "CODEBUILD", "container")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = f"{self.python.parent}:{os.environ['PATH']}"
        return {**inherited, "PATH": path, "TRAINWRIGHT_PYTHON": str(self.python), "TRAINWRIGHT_UV": ""}

    @property
    def calls(self) -> list[str]:
        """What the stand-in did: "venv" and "pip" with its arguments."""
        noted = self.folder / "calls"
        return [line.split()[0] for line in noted.read_text().splitlines()] if noted.exists() else []

    def begin(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the front door in a process group of its own."""
        return subprocess.Popen(
            [self.root / "invoke", *arguments],
            cwd=cwd or self.root,
            env={**self.environment, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def on_a_terminal(self, answer: str, **env: str) -> tuple[int, str]:
        """Run the front door with a terminal as standard input and error; its exit status and what was shown."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as screen:
            process = subprocess.Popen(
                [self.root / "invoke"],
                cwd=self.root,
                env={**self.environment, **env},
                stdin=theirs,
                stderr=theirs,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.close(theirs)
            screen.write(f"{answer}\n".encode())
            shown = b""
            try:
                while more := screen.read(4096):
                    shown += more
            except OSError:  # EIO: nobody holds the other end any longer
                pass
            return process.wait(30), shown.decode()

    def a_bare_machine(self) -> None:
        """Root on Debian without venv, in no container; apt-get brings the module."""
        self.switch("no-venv")
        self.program("id", "echo 0")
        self.program("apt-get", f'echo "apt-get $*" >>{self.folder}/apt\nrm -f {self.folder}/no-venv')
        door = self.root / "invoke"
        text = door.read_text()
        for mark in ("/.dockerenv", "/run/.containerenv"):
            assert mark in text
            text = text.replace(mark, f"{self.folder}{mark}")
        door.write_text(text)

    @property
    def installed(self) -> bool:
        """Whether apt-get was called."""
        return (self.folder / "apt").exists()

    def run(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the front door to its end."""
        process = self.begin(*arguments, cwd=cwd, env=env)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess([], process.returncode, out, err)


class Strange:
    """A checkout that belongs to another user than the one that runs it."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout

    def begin(self) -> subprocess.Popen[str]:
        """Start the front door as that user."""
        other = 65534 if os.geteuid() == 0 else None
        return subprocess.Popen(
            [self.checkout.root / "invoke", "x"],
            cwd="/",
            env={**self.checkout.environment, "HOME": "/nonexistent"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=other,
            group=other,
            extra_groups=None if other is None else [],
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the front door as that user (without root: as this one, whose folders are then closed)."""
        folders = [self.checkout.root / name for name in (".", ".venv", ".venv/.set-up")]
        closed = [] if os.geteuid() == 0 else [folder for folder in folders if folder.exists()]
        for folder in reversed(closed):
            folder.chmod(0o555)
        try:
            process = self.begin()
            out, err = process.communicate(timeout=60)
        finally:
            for folder in closed:
                folder.chmod(0o755)
        return subprocess.CompletedProcess([], process.returncode, out, err)


def wait_for(path: Path, seconds: float = 20.0) -> None:
    """Wait until a file exists."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.02)
