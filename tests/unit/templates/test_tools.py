"""The programs under templates/tools that build steps call, with folders of their own."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.core.paths import tool_files

Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """``program("apt/apt-run", ...)``: run a copy whose folders lie under ``tmp_path``, in ``tmp_path/src``."""
    for folder in ("mnt", "etc", "opt/tools/bin", "run/secrets", "src", "var", "bin", "proc"):
        (tmp_path / folder).mkdir(parents=True)
    mounted(tmp_path, "", "mnt", "mnt/settle-step")

    for path in tool_files():
        text = re.sub(r"(?<![\w.!}])/(mnt|etc|opt|out|run|var)\b", rf"{tmp_path}/\1", path.read_text())
        text = text.replace("find / ", f"find {tmp_path} ").replace("/proc/self/", f"{tmp_path}/proc/")
        copy = tmp_path / ("mnt" if path.parent.name != "python" else "opt") / path.name
        copy.write_text(text)
        copy.chmod(0o755)

    def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        own = tmp_path / ("opt" if name.startswith("python/") else "mnt") / Path(name).name
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        return subprocess.run([own, *words], cwd=tmp_path / "src", env=env, capture_output=True, text=True, check=False)

    return run


def fake(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def mounted(root: Path, *places: str) -> None:
    """What proc(5) calls mountinfo: number, parent, device, root, mount point, options, -, type, source, options."""
    rows = [
        f"{n} 1 0:{n} / {root / place if place else '/'} rw - overlay overlay rw\n" for n, place in enumerate(places)
    ]
    (root / "proc" / "mountinfo").write_text("".join(rows))


def archive(path: Path, *names: str) -> None:
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            made.addfile(tarfile.TarInfo(name), io.BytesIO())


# ---- unpack --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("nccl-2.10.3-1.tar.gz", "nccl"),
        ("boost_1_73_0.tar.gz", "boost"),
        ("aws-ofi-nccl-1.1.3.tar.gz", "aws-ofi-nccl"),
        ("metis_5.1.0.dfsg.orig.tar.gz", "metis"),
    ],
)
def test_an_archive_goes_into_a_folder_of_its_name(program, tmp_path, file, folder):
    # Boost's archive has a folder of that name inside.
    archive(tmp_path / "src" / file, f"top/{folder}/inner", "top/file")
    done = program("build/unpack", f"./{file}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "src" / folder / "file").is_file()
    assert (tmp_path / "src" / folder / folder / "inner").is_file()


def test_several_archives_and_one_that_is_broken(program, tmp_path):
    archive(tmp_path / "src" / "a-1.tar.gz", "a-1/file")
    (tmp_path / "src" / "b-1.tar.gz").write_text("no archive")
    assert program("build/unpack", "a-1.tar.gz", "b-1.tar.gz").returncode != 0
    assert (tmp_path / "src" / "a" / "file").is_file()


def test_an_archive_without_a_version_is_refused(program, tmp_path):
    archive(tmp_path / "src" / "main.tar.gz", "main/file")
    done = program("build/unpack", "main.tar.gz")
    assert done.returncode == 2
    assert "main.tar.gz" in done.stderr


# ---- apt -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def apt_get(tmp_path: Path) -> Callable[[], str]:
    """An apt-get that writes down its words; what is returned reads them, and its settings."""
    fake(tmp_path / "bin" / "apt-get", f'echo "$@" >> {tmp_path}/asked; cp "$APT_CONFIG" {tmp_path}/settings')
    return lambda: (tmp_path / "asked").read_text() + (tmp_path / "settings").read_text()


def test_packages_are_installed_from_fresh_lists(program, apt_get, tmp_path):
    listed = tmp_path / "etc/apt/sources.list.d/cuda-ubuntu2004.list"
    left = tmp_path / "var/log/apt/history.log"
    for path in (listed, left):
        path.parent.mkdir(parents=True)
        path.touch()
    done = program("apt/apt-install", "gcc", "make")
    assert done.returncode == 0, done.stderr
    asked = apt_get()
    assert asked.splitlines()[:2] == ["update", "install -y --no-install-recommends gcc make"]
    assert "SourceList" not in asked
    assert "Preferences" not in asked
    assert not listed.exists(), "NVIDIA's key was changed"
    assert not left.exists()


@pytest.mark.parametrize(("words", "pins"), [(("apt-install", "gcc"), "preferences"), (("apt-run", "true"), "pins")])
def test_the_site_and_the_lock_are_read(program, apt_get, tmp_path, words, pins):
    (tmp_path / "mnt" / "apt-sources").write_text("deb https://mirror.example/ stable main\n")
    (tmp_path / "mnt" / "ca").write_text("a bundle\n")
    (tmp_path / "mnt" / "ca").chmod(0o400)
    (tmp_path / "mnt" / "apt").mkdir()
    for name in ("preferences", "pins"):
        (tmp_path / "mnt" / "apt" / name).touch()
    done = program(f"apt/{words[0]}", *words[1:])
    assert done.returncode == 0, done.stderr
    settings = apt_get()
    assert f'Dir::Etc::SourceList "{tmp_path}/mnt/apt-sources";' in settings
    assert 'Dir::Etc::SourceParts "/dev/null";' in settings
    assert f'Dir::Etc::Preferences "{tmp_path}/mnt/apt/{pins}";' in settings
    assert f'CaInfo "{tmp_path}/mnt/ca.crt";' in settings
    assert (tmp_path / "mnt" / "ca.crt").stat().st_mode & 0o777 == 0o644, "apt reads it as another user"


def test_a_failing_command_fails_the_step(program, apt_get):
    assert program("apt/apt-run", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize(("what", "kind", "command"), [("source", "deb-src", "source --download-only"),
                                                       ("download", "deb", "download")])  # fmt: skip
def test_a_file_of_the_archive_is_checked(program, tmp_path, what, kind, command):
    (tmp_path / "etc" / "apt").mkdir()
    (tmp_path / "etc" / "apt" / "sources.list").write_text("deb [trusted=yes] http://mirror.example/debian a main\n")
    fake(tmp_path / "bin" / "apt-get", f'echo "$@" >> {tmp_path}/asked; printf hello > file')
    good = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert program("apt/apt-fetch", "file", good, what, "metis", "trixie", "main", "contrib").returncode == 0
    assert (tmp_path / "asked").read_text().splitlines()[-1].endswith(f" {command} metis")
    listed = (tmp_path / "mnt" / "source.list").read_text()
    assert listed == f"{kind} http://mirror.example/debian trixie main contrib\n"
    assert "CaInfo" not in (tmp_path / "asked").read_text()
    (tmp_path / "mnt" / "ca").write_text("a bundle\n")
    assert program("apt/apt-fetch", "file", "0" * 64, what, "metis", "trixie", "main").returncode != 0
    assert f"CaInfo={tmp_path}/mnt/ca " in (tmp_path / "asked").read_text()


# ---- uv and pip ----------------------------------------------------------------------------------------------------


def test_uv_reads_the_site_s_settings_where_there_are_any(program, tmp_path):
    fake(tmp_path / "opt" / "bin" / "uv", 'echo "$@"; env')
    folders = [tmp_path / root / "venv/lib/python3.8/site-packages/six-1.dist-info" for root in ("opt", "out/opt")]
    notes = [folder / "uv_cache.json" for folder in folders]
    for note in notes:
        note.parent.mkdir(parents=True)
        note.touch()
        # As uv 0.13 writes it: the note's digest differs with the time of the wheel.
        (note.parent / "RECORD").write_text(
            "six-1.dist-info/RECORD,,\nsix-1.dist-info/uv_cache.json,sha256=ukqKBMbTFSvcAdQJ,127\nsix.py,,\n"
        )
    done = program("python/uv", "pip", "install", "six")
    assert done.stdout.startswith("pip install six\n")
    assert "UV_CONFIG_FILE" not in done.stdout
    assert f"SSL_CERT_FILE={tmp_path}/etc/ssl/certs/ca-certificates.crt\n" in done.stdout
    assert f"UV_CACHE_DIR={tmp_path}/mnt/cache\n" in done.stdout
    assert not any(note.exists() for note in notes)
    records = {note.with_name("RECORD").read_text() for note in notes}
    assert records == {"six-1.dist-info/RECORD,,\nsix.py,,\n"}, "nothing in the layer depends on when it is made"
    for name in ("ca", "uv.toml"):
        (tmp_path / "mnt" / name).write_text("x")
    said = program("python/uv", "venv").stdout
    assert f"UV_CONFIG_FILE={tmp_path}/mnt/uv.toml\n" in said
    assert f"SSL_CERT_FILE={tmp_path}/mnt/ca\n" in said


def test_a_failure_of_uv_is_one_of_the_step(program, tmp_path):
    fake(tmp_path / "opt" / "bin" / "uv", "exit 3")
    assert program("python/uv").returncode == 3


def test_pip_works_from_outside_where_the_tools_have_none(program, tmp_path):
    fake(tmp_path / "bin" / "python3", 'echo "$@"')
    said = program("python/pip", "install", "uv").stdout
    assert said == f"-m pip --python {tmp_path}/opt/tools/bin/python3 install uv\n"
    fake(tmp_path / "opt" / "tools" / "bin" / "pip", 'echo "$@ $PIP_CERT"')
    (tmp_path / "run" / "secrets" / "ca").write_text("x")
    assert program("python/pip", "--version").stdout == f"--version {tmp_path}/run/secrets/ca\n"


# ---- layers --------------------------------------------------------------------------------------------------------

EPOCH = 1_700_000_000


def times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): int(path.lstat().st_mtime) for path in folder.rglob("*")}


def test_a_layer_has_set_times(program, tmp_path):
    made = tmp_path / "opt" / "metis" / "lib"
    made.mkdir(parents=True)
    (made / "libmetis.so").write_bytes(b"library")
    (made / "libmetis.so.0").symlink_to("libmetis.so")
    done = program("build/on-loader-path", "metis", "/opt/metis/lib")
    assert done.returncode == 0, done.stderr
    done = program("build/settle", str(tmp_path / "opt" / "metis"))
    assert done.returncode == 0, done.stderr
    layer = Path(f"{tmp_path}/out{tmp_path}/opt/metis/lib")
    assert (layer / "libmetis.so").read_bytes() == b"library"
    assert not made.exists()
    assert (tmp_path / "out/etc/ld.so.conf.d/metis.conf").read_text() == "/opt/metis/lib\n"
    assert set(times(tmp_path / "out").values()) == {EPOCH}
    # Once more: what has its time already is left alone, as touching it would store it again.
    before = (layer / "libmetis.so").stat().st_ctime_ns
    (layer / "later").touch()
    assert program("build/settle").returncode == 0
    assert set(times(tmp_path / "out").values()) == {EPOCH}
    assert (layer / "libmetis.so").stat().st_ctime_ns == before


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A root file system in which a step added a user, a file and a link, and wrote into a mount."""
    old = tmp_path / "opt" / "old"
    old.touch()
    os.utime(old, (1_000_000_000, 1_000_000_000))
    (tmp_path / "opt" / "new").touch()
    (tmp_path / "opt" / "link").symlink_to("nowhere")
    (tmp_path / "etc" / "shadow").write_text("root:*:20780:0:99999:7:::\nsshd:!:20780::::::\nold::::::::\n")
    (tmp_path / "mnt" / "apt").mkdir()
    (tmp_path / "mnt" / "apt" / "pins").touch()
    return tmp_path


def test_a_step_of_the_image_leaves_set_times(program, step):
    done = program("build/settle-step")
    assert done.returncode == 0, done.stderr
    # shadow(5): the third field is the date of the last password change, in days.
    assert (step / "etc/shadow").read_text() == "root:*:19675:0:99999:7:::\nsshd:!:19675::::::\nold::::::::\n"
    found = times(step)
    assert {found[name] for name in ("etc", "etc/shadow", "opt", "opt/new", "opt/link")} == {EPOCH}
    assert found["opt/old"] == 1_000_000_000
    assert found["mnt/apt/pins"] > EPOCH, "a mount is not in the layer"


def test_the_times_of_a_machine_stay(program, step):
    mounted(step, "", "mnt")
    before = times(step)
    done = program("build/settle-step")
    assert done.returncode == 1
    assert "this is no build step" in done.stderr
    assert {name: found for name, found in times(step).items() if name in before and "mnt" not in name} == {
        name: found for name, found in before.items() if "mnt" not in name
    }


def test_wheels_go_into_the_layer_with_the_interpreter_of_the_image(program, tmp_path):
    fake(tmp_path / "opt/tools/uv", 'echo "$@" >> said')
    fake(tmp_path / "bin/settle", "echo settled >> said")
    assert program("python/into-layer", "-r", "/mnt/requirements.txt").returncode == 0
    words, last = (tmp_path / "src" / "said").read_text().splitlines()
    venv = f"{tmp_path}/opt/venv"
    assert words == f"pip install --python {venv} --prefix {tmp_path}/out/opt/venv --no-deps -r /mnt/requirements.txt"
    assert last == "settled"
    fake(tmp_path / "opt/tools/uv", "exit 2")
    assert program("python/into-layer", "six").returncode == 2


# ---- bytecode ------------------------------------------------------------------------------------------------------


def test_bytecode_is_a_layer_of_its_own(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "site-packages"
    (packages / "job").mkdir(parents=True)
    (packages / "job" / "__init__.py").write_text("from job import part\n")
    (packages / "job" / "part.py").write_text("answer = 41\n")
    (packages / "broken.py").write_text("raise OSError('libcuda.so.1 is missing')\n")
    for path in packages.rglob("*.py"):
        os.utime(path, (EPOCH, EPOCH))
    fake(tmp_path / "bin" / "python3", f'PYTHONPATH={packages} exec {sys.executable} "$@"')
    out = Path(f"{tmp_path}/out{packages}")
    done = program("python/bytecode", "job", "job.of_another_version", "broken")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "bytecode: broken cannot be imported: libcuda.so.1 is missing\n"
    kept = sorted(out.rglob("*.pyc"))
    assert [path.name.split(".")[0] for path in kept] == ["broken", "__init__", "part"]
    # PEP 552: no bit is set, so the time and the size of the source follow.
    assert {path.read_bytes()[4:12] for path in kept} == {bytes(4) + EPOCH.to_bytes(4, "little")}
    assert set(times(out).values()) == {EPOCH}
    shutil.copytree(out, packages, dirs_exist_ok=True)
    kept = sorted(packages.rglob("*.pyc"))
    before = {path: path.read_bytes() for path in kept}
    read = [sys.executable, "-c", "from job.part import answer; print(answer)"]
    monkeypatch.setenv("PYTHONPATH", str(packages))
    assert subprocess.check_output(read) == b"41\n"
    assert {path: path.read_bytes() for path in kept} == before  # valid: Python had no reason to write them again
    part = packages / "job" / "part.py"
    part.write_text(part.read_text().replace("41", "42"))
    assert subprocess.check_output(read) == b"42\n"
