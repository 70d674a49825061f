"""Making and keeping the Debian base, with a stand-in for mmdebstrap (the real one: tests/image)."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import EngineError, RequestError, SourceError
from trainwright.site.site import Proxies, Site
from trainwright.sources import debian_base as base_module
from trainwright.sources.debian_base import RootFileSystem, clean, make_base, recipe_key

FAKE = f"""#!{sys.executable}
import io, json, os, sys, tarfile, time
from pathlib import Path
log = Path(os.environ["FAKE_LOG"])
target = next(a for a in sys.argv[1:] if a.endswith(".tar"))
mirror = sys.argv[-1]
row = {{"argv": sys.argv[1:], "proxy": os.environ.get("http_proxy"), "epoch": os.environ.get("SOURCE_DATE_EPOCH")}}
row["sources"] = Path(mirror).read_text() if mirror.endswith(".list") else None
with log.open("a") as out:
    out.write(json.dumps(row) + "\\n")
print("I: running apt-get update...", flush=True)
time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
if os.environ.get("FAKE_FAIL"):
    Path(target).write_bytes(b"half")
    print("E: " + os.environ["FAKE_FAIL"])
    sys.exit(25)
with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
    status = b"Package: a\\nStatus: install ok installed\\n\\nPackage: b\\nStatus: deinstall ok config-files\\n"
    sources = (row["sources"] or "deb x").encode()
    for name, data in (("./etc/apt/sources.list", sources), ("./var/lib/dpkg/status", status)):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """mmdebstrap's stand-in first on PATH, caches of our own; gives the log of its calls."""
    fake = tmp_path / "bin" / "mmdebstrap"
    fake.parent.mkdir()
    fake.write_text(FAKE)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def calls(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def make(site: Site | None = None, **more: Any) -> RootFileSystem:
    return make_base("bookworm", site or Site(), say=lambda _: None, **more)


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "base").rglob("*") if path.suffix != ".lock"]


def test_made_once_then_taken_from_the_cache(log: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = make_base("bookworm", Site(), say=said.append)
    second = make()
    assert (first.cached, second.cached, len(calls(log))) == (False, True, 1)
    assert (second.sha256, second.packages, second.stale) == (first.sha256, 1, False)
    assert first.path.stat().st_size == first.size
    assert said[-1] == "running apt-get update"
    assert sorted(path.name for path in first.path.parent.iterdir()) == ["base.json", "rootfs.tar"]
    assert calls(log)[0]["epoch"] == "1700000000"
    assert make(refresh=True).cached is False
    assert [make(since=day).cached for day in ("2026-01-01", "9999-01-01")] == [True, False]
    assert first.sha256 == make().sha256


@pytest.mark.parametrize(
    ("suite", "installed", "merged"), [("bookworm", True, True), ("bookworm", False, False), ("trixie", True, False)]
)
def test_usr_of_debian_12_is_merged_first_so_that_no_package_needs_perl(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str, installed: bool, merged: bool
) -> None:
    hook = tmp_path / "merged-usr"
    monkeypatch.setattr(base_module, "MERGED_USR", hook)
    if installed:
        hook.mkdir()
    make_base(suite, Site(), say=lambda _: None)
    assert (f"--hook-dir={hook}" in calls(log)[0]["argv"]) is merged


def test_a_touched_tar_is_hashed_and_a_spoilt_one_made_again(log: Path) -> None:
    first = make()
    os.utime(first.path, (1, 1))
    assert make().cached
    data = bytearray(first.path.read_bytes())
    data[700] ^= 1
    first.path.write_bytes(data)
    assert not make().cached  # same size, other content
    with first.path.open("ab") as tar:
        tar.truncate(1000)
    assert not make().cached
    (first.path.parent / "base.json").write_text("{")
    assert not make().cached
    assert make().sha256 == first.sha256


def test_an_old_base_is_stale(log: Path) -> None:
    note = make().path.with_name("base.json")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"created": "2020-01-01T00:00:00+00:00"}))
    assert make().stale


def test_a_failure_says_what_mmdebstrap_said_and_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAIL", "cannot reach http://u:pw@mirror.example/debian")
    with pytest.raises(SourceError, match=r"(?s)exit status 25.*cannot reach http://\*\*\*@mirror") as wrong:
        make()
    assert wrong.value.exit_code == 8 and "apt_mirror" in wrong.value.remedy
    assert all("." not in name for name in leftovers(tmp_path))
    monkeypatch.delenv("FAKE_FAIL")
    assert not make().cached


def test_a_failed_refresh_keeps_the_old_base(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    monkeypatch.setenv("FAKE_FAIL", "no")
    with pytest.raises(SourceError):
        make(refresh=True)
    assert make().cached


@pytest.mark.parametrize(
    "said",
    [
        "E: install arch-test for foreign architecture support",
        "E: arm64 can neither be executed natively nor via qemu user emulation with binfmt_misc",
        "E: cannot find /usr/bin/qemu-aarch64-static",
    ],
)
def test_a_machine_that_cannot_run_another_processor_s_programs_is_told(
    log: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    # What mmdebstrap 1.3.5 says.
    monkeypatch.setenv("FAKE_FAIL", said)
    with pytest.raises(EngineError) as wrong:
        make(architecture="arm64")
    assert wrong.value.exit_code == 4
    assert "qemu-user-static" in str(wrong.value.remedy)


def test_a_base_for_another_processor_is_one_of_its_own(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    own = make()
    assert make(architecture="amd64").cached
    other = make(architecture="arm64")
    assert other.path != own.path
    asked = [[word for word in call["argv"] if "architectures" in word] for call in calls(log)]
    assert asked == [[], ["--architectures=arm64"]]


def test_a_full_disk_is_said(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "tar: write: No space left on device")
    with pytest.raises(SourceError, match="the disk is full"):
        make()
    monkeypatch.delenv("FAKE_FAIL")

    def full(*args: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(base_module, "clean", full)
        with pytest.raises(SourceError, match="the disk is full"):
            make()
    assert all("." not in name for name in leftovers(tmp_path))


def test_without_mmdebstrap_the_remedy_is_to_install_it(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError) as wrong:
        make()
    assert wrong.value.exit_code == 4 and "apt-get install mmdebstrap" in wrong.value.remedy


def test_a_user_who_may_not_make_one_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "unable to pick chroot mode automatically")
    with pytest.raises(EngineError, match="as this user"):
        make()


@pytest.mark.parametrize("suite", ["", "--help", "a/b", "Bookworm", "x" * 40])
def test_a_suite_is_a_plain_name(suite: str) -> None:
    with pytest.raises(RequestError):
        make_base(suite, Site(), say=print)


def test_a_mirror_is_used_but_neither_shown_nor_kept(log: Path, tmp_path: Path) -> None:
    site = Site(apt_mirror="http://u:pw@mirror.example/debian", proxies=Proxies(http="http://proxy"))
    made = make(site)
    (call,) = calls(log)
    assert "http://u:pw@mirror.example/debian bookworm main" in call["sources"]
    assert "pw" not in json.dumps(call["argv"]) and call["proxy"] == "http://proxy"
    with tarfile.open(made.path) as tar:
        assert tar.getmember("./etc/apt/sources.list").size == 0
    assert b"mirror.example" not in made.path.read_bytes()
    assert not any("pw" in path.read_text(errors="ignore") for path in tmp_path.rglob("commands.jsonl"))
    assert recipe_key("bookworm", site) != recipe_key("bookworm", Site())
    other = Site(apt_mirror="http://u:new@mirror.example/debian")
    assert recipe_key("bookworm", site) == recipe_key("bookworm", other)


def _make_in_process(queue: multiprocessing.Queue[tuple[bool, str]]) -> None:
    made = make()
    queue.put((made.cached, made.sha256))


def test_two_makers_at_once_make_it_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLEEP", "0.5")
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[tuple[bool, str]] = context.Queue()
    makers = [context.Process(target=_make_in_process, args=(queue,)) for _ in range(3)]
    for maker in makers:
        maker.start()
    results = [queue.get(timeout=30) for _ in makers]
    for maker in makers:
        maker.join()
    assert sorted(cached for cached, _ in results) == [False, True, True]
    assert len({sha for _, sha in results}) == 1 and len(calls(log)) == 1


def test_what_a_killed_maker_left_is_cleared(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLEEP", "5")
    maker = multiprocessing.get_context("fork").Process(target=make)
    maker.start()
    deadline = time.monotonic() + 20
    while not calls(log) and time.monotonic() < deadline:
        time.sleep(0.02)
    maker.kill()
    maker.join()
    assert any(name.startswith(".making-") for name in leftovers(tmp_path))
    monkeypatch.setenv("FAKE_SLEEP", "0")
    made = make()
    assert not made.cached
    assert sorted(path.name for path in made.path.parent.iterdir()) == ["base.json", "rootfs.tar"]


def dirty(host_files: bool) -> io.BytesIO:
    """A root file system with all that must not stay."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in (
            ("./", tarfile.DIRTYPE),
            ("./bin", tarfile.SYMTYPE),
            ("./dev/", tarfile.DIRTYPE),
            ("./dev/null", tarfile.CHRTYPE),
            ("./etc/hostname", tarfile.REGTYPE),
            ("./etc/passwd-", tarfile.REGTYPE),
            ("./etc/resolv.conf", tarfile.SYMTYPE),
            ("./opt/disk", tarfile.BLKTYPE),
            ("./run/lock", tarfile.DIRTYPE),
            ("./run/x", tarfile.DIRTYPE),
            ("./tmp/y", tarfile.REGTYPE),
            ("./usr/bin/ping", tarfile.REGTYPE),
            ("./usr/bin/pong", tarfile.LNKTYPE),
            ("./var/cache/apt/archives/", tarfile.DIRTYPE),
            ("./var/cache/apt/pkgcache.bin", tarfile.REGTYPE),
            ("./var/cache/debconf/config.dat", tarfile.REGTYPE),
            ("./var/cache/debconf/config.dat-old", tarfile.REGTYPE),
            ("./var/cache/ldconfig/aux-cache", tarfile.REGTYPE),
            ("./var/lib/apt/lists/lock", tarfile.REGTYPE),
            ("./var/lib/dpkg/status", tarfile.REGTYPE),
            ("./var/lib/dpkg/status-old", tarfile.REGTYPE),
            ("./var/log/apt/", tarfile.DIRTYPE),
            ("./var/log/dpkg.log", tarfile.REGTYPE),
        ):
            if not host_files and name in {"./etc/hostname", "./etc/resolv.conf"}:
                continue
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, {"./bin": "usr/bin", "./usr/bin/pong": "./usr/bin/ping"}.get(name, "/x")
            data = b"Status: install ok installed\n" if name.endswith("/status") else b"host"
            info.mtime = 1_600_000_000
            if kind == tarfile.REGTYPE:
                info.size, info.mode = len(data), 0o755
            if name == "./usr/bin/ping":
                info.pax_headers = {"SCHILY.xattr.security.capability": "cap"}
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    out.seek(0)
    return out


def test_what_varies_or_tells_of_the_machine_is_left_out() -> None:
    out, other = io.BytesIO(), io.BytesIO()
    clean(dirty(host_files=True), out)
    clean(dirty(host_files=False), other)
    assert out.getvalue() == other.getvalue()
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        members = {member.name: member for member in tar}
    assert set(members) == {
        ".",
        "./bin",
        "./usr/bin/ping",
        "./usr/bin/pong",
        "./var/cache/apt/archives",
        "./var/cache/debconf/config.dat",
        "./var/lib/dpkg/status",
        "./var/log/apt",
        "./dev",
        "./run/lock",
        "./etc/hostname",
        "./etc/hosts",
        "./etc/machine-id",
        "./etc/resolv.conf",
    }
    assert members["./usr/bin/ping"].pax_headers["SCHILY.xattr.security.capability"] == "cap"
    assert members["./usr/bin/pong"].islnk() and members["./usr/bin/ping"].mtime == 1_600_000_000
    empty = members["./etc/hostname"]
    assert (empty.size, empty.mode, empty.uid, empty.mtime) == (0, 0o644, 0, 1_700_000_000)
    assert members["./dev"].isdir() and members["./run/lock"].mode == 0o1777


@pytest.mark.parametrize("data", [b"", b"no tar at all" * 100, dirty(True).getvalue()[:1700]])
def test_half_a_tar_is_an_error(data: bytes) -> None:
    with pytest.raises(SourceError, match="incomplete tar"):
        clean(io.BytesIO(data), io.BytesIO())
