"""The start-up program of images on NVIDIA's base, and what takes that base over: both run as they are, on files."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.core.paths import templates_dir

FOLDER = templates_dir() / "components" / "cuda"
SCRIPT = FOLDER / "cuda-compat"
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
PLAIN = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Jul 13 16:14:05 UTC 2021"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U16-I1-N07-12-3)"


class Image:
    """The files that the program reads and writes, in a folder."""

    def __init__(self, root: Path) -> None:
        self.driver, self.compat = root / "version", root / "cuda-compat"
        self.conf = root / "ld.so.conf.d" / "00-cuda-compat.conf"
        self.calls, self.ldconfig = root / "calls", root / "ldconfig"
        self.compat.mkdir()
        self.conf.parent.mkdir()
        self.ldconfig.write_text(f'#!/bin/sh\necho called >> "{self.calls}"\n')
        self.ldconfig.chmod(0o755)

    def has_driver(self, version: str, words: str = PLAIN) -> None:
        self.driver.write_text(words.format(version) + "\nGCC version:  gcc version 7.3.1 20180712 (Red Hat)\n")

    def has_library(self, version: str) -> None:
        for link in ("libcuda.so", "libcuda.so.1"):
            (self.compat / link).unlink(missing_ok=True)
            (self.compat / link).symlink_to(f"libcuda.so.{version}")
        (self.compat / f"libcuda.so.{version}").touch()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "CUDA_COMPAT_DRIVER": str(self.driver),
            "CUDA_COMPAT_FOLDER": str(self.compat),
            "CUDA_COMPAT_CONF": str(self.conf),
            "CUDA_COMPAT_LDCONFIG": str(self.ldconfig),
        }

    def run(self, *argv: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*(("busybox", "sh") if shell == "busybox" else (shell,)), str(SCRIPT), *argv],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    @property
    def wanted(self) -> bool:
        """Whether the loader is told of the folder."""
        return self.conf.is_file() and str(self.compat) in self.conf.read_text().splitlines()

    @property
    def loader_runs(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("driver", "library", "wanted"),
    [
        ("418.87.01", "465.19.01", True),
        ("465.19.00", "465.19.01", True),
        ("465.9", "465.19.01", True),
        ("99.100.100", "465.19.01", True),
        ("465.19.01", "465.19.01", False),
        ("465.19", "465.19.0", False),
        ("470.57.02", "465.19.01", False),
        ("1000.1", "465.19.01", False),
    ],
)
def test_older_drivers_alone_are_helped(image, shell, driver, library, wanted):
    image.has_driver(driver)
    image.has_library(library)
    done = image.run("--decide", shell=shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert image.wanted is wanted
    assert image.loader_runs == int(wanted)


@pytest.mark.parametrize("words", [PLAIN, OPEN])
def test_both_kinds_of_driver_are_read(image, words):
    image.has_library("465.19.01")
    image.has_driver("465.19.00", words)
    image.run("--decide")
    assert image.wanted
    image.has_driver("465.19.02", words)
    image.run("--decide")
    assert not image.wanted


def test_newest_of_several_libraries_counts(image):
    for version in ("450.51.06", "465.19.01", "455.1"):
        image.has_library(version)
    image.has_driver("460.32.03")
    image.run("--decide")
    assert image.wanted


_VERSION = st.lists(st.integers(0, 999), min_size=2, max_size=3)


@settings(max_examples=some(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(driver=_VERSION, library=_VERSION)
def test_order_of_versions(tmp_path_factory, driver, library):
    image = Image(tmp_path_factory.mktemp("image"))
    image.has_driver(".".join(map(str, driver)))
    image.has_library(".".join(map(str, library)))
    image.run("--decide")
    length = max(len(driver), len(library))
    padded = [tuple(v + [0] * (length - len(v))) for v in (driver, library)]
    assert image.wanted is (padded[0] < padded[1])


def test_decision_is_made_once_for_a_driver(image):
    image.has_driver("418.87.01")
    image.has_library("465.19.01")
    for _ in range(3):
        image.run("--decide")
    assert image.loader_runs == 1


def test_a_newer_driver_takes_the_decision_back(image):
    image.has_driver("418.87.01")
    image.has_library("465.19.01")
    image.run("--decide")
    image.has_driver("470.57.02")
    image.run("--decide")
    assert not image.wanted
    assert image.loader_runs == 2


def test_no_driver_leaves_nothing_and_takes_back_what_a_build_left(image):
    image.has_library("465.19.01")
    done = image.run("--decide")
    assert (done.returncode, done.stdout, done.stderr, image.conf.exists()) == (0, "", "", False)
    image.conf.write_text(f"# another driver\n{image.compat}\n")
    image.run("--decide")
    assert not image.conf.exists()
    assert image.loader_runs == 1


@pytest.mark.parametrize("text", ["", "\n", "no version here\n", "NVRM version: x86_64 a.b 1..2 .5 7.\n"])
def test_a_driver_file_without_a_version_changes_nothing(image, text):
    image.has_library("465.19.01")
    image.driver.write_text(text)
    done = image.run("--decide")
    assert (done.returncode, done.stderr) == (0, "")
    assert not image.conf.exists()


def test_no_library_changes_nothing(image):
    image.has_driver("418.87.01")
    image.run("--decide")
    assert not image.wanted
    assert image.loader_runs == 0


def test_a_loader_folder_that_cannot_be_written_is_no_failure(image):
    # Even root cannot make a file in a folder that is none: it stands for a read-only file system.
    image.conf.parent.rmdir()
    image.conf.parent.touch()
    image.has_driver("418.87.01")
    image.has_library("465.19.01")
    done = image.run("echo", "went on")
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


def test_a_broken_ldconfig_is_no_failure(image):
    image.ldconfig.unlink()
    image.has_driver("418.87.01")
    image.has_library("465.19.01")
    done = image.run("echo", "went on")
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_becomes_the_command(image, shell):
    image.has_driver("418.87.01")
    image.has_library("465.19.01")
    done = image.run("sh", "-c", 'printf "%s|" "$0" "$@"; exit 7', "a b", "*", "", shell=shell)
    assert (done.returncode, done.stdout) == (7, "a b|*||")
    assert image.wanted


def test_without_a_command_it_is_a_shell(image):
    done = subprocess.run(
        ["sh", SCRIPT], env=image.environment, input="echo $0", capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "bash"


def test_a_signal_reaches_the_command(image):
    program = "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        ["sh", SCRIPT, "sh", "-c", program], env=image.environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "stopped\n"
    assert running.returncode == 3


class TestBash:
    """``BASH_ENV``: where the ENTRYPOINT is another."""

    @staticmethod
    def bash(image: Image, command: str, **words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **image.environment,
            "BASH_ENV": str(FOLDER / "cuda-compat.bash"),
            "CUDA_COMPAT": str(SCRIPT),
            **words,
        }
        return subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, check=False, timeout=30
        )

    def test_first_bash_decides_before_its_command_runs(self, image):
        image.has_driver("418.87.01")
        image.has_library("465.19.01")
        done = self.bash(image, f"tail -n 1 {image.conf}")
        assert (done.stdout.strip(), done.stderr) == (str(image.compat), "")

    def test_later_ones_do_not(self, image, tmp_path):
        image.has_driver("470.57.02")
        image.has_library("465.19.01")
        self.bash(image, "true")
        assert image.conf.exists()
        counter = tmp_path / "counter"
        counter.write_text(f"#!/bin/sh\necho once more >> {tmp_path}/again\n")
        counter.chmod(0o755)
        self.bash(image, "bash -c true; true", CUDA_COMPAT=str(counter))
        assert not (tmp_path / "again").exists()

    @pytest.mark.parametrize("driver", ["418.87.01", None])
    def test_leaves_no_trace_in_the_command(self, image, driver, tmp_path):
        if driver:
            image.has_driver(driver)
        (tmp_path / "nothing").write_text("true\n")
        plain = self.bash(image, "compgen -v; set +o", BASH_ENV=str(tmp_path / "nothing"))
        done = self.bash(image, "compgen -v; set +o")
        assert done.stdout == plain.stdout
        assert done.stderr == ""

    def test_strict_scripts_go_on_without_it(self, image):
        image.has_driver("418.87.01")
        image.driver.write_text("")
        done = self.bash(image, "set -eu; bash -eu -c 'echo went on'", CUDA_COMPAT="/nowhere/cuda-compat")
        assert done.stdout == "went on\n"


class TestAdoptedBase:
    """``adopt_base.sh``: a file system in the shape of NVIDIA's runtime image."""

    @pytest.fixture
    def root(self, tmp_path):
        home = tmp_path / "usr/local/cuda-11.3"
        (home / "compat").mkdir(parents=True)
        (home / "compat/libcuda.so.465.19.01").write_text("library")
        (home / "lib64").mkdir()
        (home / "lib64/libcudart.so.11.3.109").touch()
        (home / "lib64/libcudart.so.11.0").symlink_to("libcudart.so.11.3.109")
        (tmp_path / "usr/local/cuda").symlink_to("cuda-11.3")
        (tmp_path / "usr/local/cuda-11").symlink_to("cuda-11.3")
        (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
        (tmp_path / "etc/ld.so.conf.d/00-compat-1.conf").write_text("/usr/local/cuda/compat\n")
        return tmp_path

    @staticmethod
    def adopt(root: Path) -> None:
        subprocess.run(["sh", FOLDER / "adopt_base.sh", root], check=True, timeout=30)

    def test_driver_libraries_are_where_no_loader_looks(self, root):
        self.adopt(root)
        assert (root / "opt/cuda-compat/libcuda.so.465.19.01").read_text() == "library"
        assert not list(root.glob("usr/local/cuda*/compat"))
        assert not list(root.glob("etc/ld.so.conf.d/*compat*"))

    def test_runtime_gets_the_name_without_a_version(self, root):
        self.adopt(root)
        assert (root / "usr/local/cuda/lib64/libcudart.so").resolve().name == "libcudart.so.11.3.109"
        assert (root / "etc/ld.so.conf.d/cuda.conf").read_text() == "/usr/local/cuda/lib64\n"

    def test_an_image_without_these_libraries_is_fine(self, root):
        shutil.rmtree(root / "usr/local/cuda-11.3/compat")
        self.adopt(root)
        assert not (root / "opt/cuda-compat").exists()

    def test_a_devel_image_keeps_its_link(self, root):
        link = root / "usr/local/cuda-11.3/lib64/libcudart.so"
        link.symlink_to("libcudart.so.11.0")
        self.adopt(root)
        assert str(link.readlink()) == "libcudart.so.11.0"


def test_program_is_executable_where_it_lies():
    assert SCRIPT.stat().st_mode & stat.S_IXUSR
