"""Programs of Debian packages, unpacked beside the system: nothing is installed, and no service starts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from trainwright.core.paths import cache_dir, locked

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def checked(*argv: str, cwd: Path | None = None) -> str:
    """The standard output of a command that has to succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(argv)}\n{(done.stdout + done.stderr)[-3000:]}"
    return done.stdout


def unpacked(package: str, *, release: str | None = None) -> Path:
    """The folder with the files of a Debian package, kept in the user's cache.

    Args:
        package: its name.
        release: the code name of the release to take it from; this machine's own sources where none is named.

    A machine without apt skips the test.
    """
    folder = cache_dir() / "debian-packages" / f"{package}-{release or 'own'}"
    with locked(folder.with_suffix(".lock")):
        if folder.is_dir():
            return folder
        if not shutil.which("apt-get"):
            pytest.skip(f"no apt to get the package {package} with")
        work = folder.with_suffix(".part")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            options = _sources(work, release) if release else []
            checked("apt-get", *options, "-o", "APT::Sandbox::User=root", "download", package, cwd=work)
            checked("dpkg-deb", "-x", str(next(work.glob(f"{package}_*.deb"))), str(work / "files"))
            (work / "files").rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def _sources(work: Path, release: str) -> list[str]:
    """apt's options for ``release`` of the archive that this machine uses; its own lists stay as they are."""
    archive = checked("apt-get", "indextargets", "--format", "$(REPO_URI)").split()[0]
    (work / "sources.list").write_text(f"deb [signed-by={KEYS}] {archive} {release} main\n")
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True)
    places = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in places.items() for word in ("-o", f"{name}={value}")]
    checked("apt-get", *options, "update")
    return options
