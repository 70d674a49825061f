"""The EFA installer's steps, run as they are: its signature, and what of it an image keeps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.component import Provider
from trainwright.core.paths import templates_dir
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.failures import FETCH_EXIT, source_failure
from trainwright.sources.gather import gather

FOLDER = templates_dir() / "components" / "efa"
ARCHIVE = "aws-efa-installer-1.49.0.tar.gz"


@pytest.fixture(scope="module")
def aws() -> Provider:
    return load_catalog().components["efa"].component.providers["aws"]


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("1.9.3", "-y --skip-kmod -g"),
        ("1.13.0", "-y --skip-kmod -g"),
        ("1.14.0", "-y --skip-kmod"),
        ("1.24.0", "-y --skip-kmod"),
        ("1.24.1", "-y --skip-kmod --skip-limit-conf --no-verify"),
        ("1.47.0", "-y --skip-kmod --skip-limit-conf --no-verify"),
        ("1.48.0", "-y --skip-kmod --skip-limit-conf --no-verify --disable-ngc --disable-build-ngc"),
        ("1.100.0", "-y --skip-kmod --skip-limit-conf --no-verify --disable-ngc --disable-build-ngc"),
    ],
)
def test_flags_by_version(aws, version, flags):
    assert aws.values_for(version)["flags"] == flags


def test_every_version_has_a_checksum_or_a_signature(aws):
    assert len(aws.versions) == 69
    for number, version in aws.versions.items():
        files = [source.file for source in version.sources]
        assert version.sha256 or files[1:] == [f"{files[0]}.sig", "aws-efa-installer.key"], number


# ---- the signature -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signers(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Two keys: name to fingerprint and armoured public key; their private halves lie in the folder ``home``."""
    if not shutil.which("gpg") or not shutil.which("gpgv"):
        pytest.skip("no gpg here to sign with")
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    made = {}
    for name in ("aws", "other"):
        gpg(home, "--quick-generate-key", f"{name}@example.org", "rsa2048", "sign", "never")
        listed = gpg(home, "--with-colons", "--fingerprint", f"{name}@example.org")
        fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
        made[name] = (fingerprint, gpg(home, "--armor", "--export", fingerprint))
    made["home"] = (str(home), "")
    yield made
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, timeout=30)


def gpg(home: Path | str, *argv: str) -> str:
    options = ("--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")
    command = ["gpg", "--homedir", str(home), *options, *argv]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout.decode()


@pytest.fixture
def signed(signers, tmp_path) -> Path:
    """A folder with an archive, its signature and the key."""
    (tmp_path / ARCHIVE).write_bytes(b"archive" * 1000)
    (tmp_path / "aws-efa-installer.key").write_text(signers["aws"][1])
    gpg(
        signers["home"][0],
        "-u",
        signers["aws"][0],
        "--detach-sign",
        "-o",
        f"{tmp_path}/{ARCHIVE}.sig",
        f"{tmp_path}/{ARCHIVE}",
    )
    return tmp_path


def verify(folder: Path, fingerprint: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", FOLDER / "verify.sh", ARCHIVE, fingerprint],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_a_good_signature(signed, signers):
    done = verify(signed, signers["aws"][0])
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip() == f"verify: {ARCHIVE} is signed by {signers['aws'][0]}"


def test_a_key_of_another_fingerprint_is_not_trusted(signed, signers):
    # Whoever changes the archive on a mirror changes signature and key as well.
    (signed / "aws-efa-installer.key").write_text(signers["other"][1])
    path = f"{signed}/{ARCHIVE}"
    gpg(signers["home"][0], "-u", signers["other"][0], "--detach-sign", "-o", f"{path}.sig", path)
    assert verify(signed, signers["other"][0]).returncode == 0
    assert verify(signed, signers["aws"][0]).returncode == FETCH_EXIT


def test_a_changed_archive_is_found_out(signed, signers):
    with (signed / ARCHIVE).open("ab") as file:
        file.write(b"x")
    done = verify(signed, signers["aws"][0])
    assert done.returncode == FETCH_EXIT
    taken = gather(plan_with_efa(), load_catalog(), Site())
    failure = source_failure(taken, "efa", done.returncode, done.stdout.splitlines(), "/log")
    assert failure is not None
    assert failure.exit_code == 8
    assert (failure.details["component"], failure.details["file"]) == ("efa", ARCHIVE)
    assert "is not signed by the key" in failure.message


@pytest.mark.parametrize("file", ["aws-efa-installer.key", f"{ARCHIVE}.sig"])
@pytest.mark.parametrize("text", ["", "<html>no such file</html>"])
def test_something_else_in_place_of_key_or_signature(signed, signers, file, text):
    (signed / file).write_text(text)
    assert verify(signed, signers["aws"][0]).returncode == FETCH_EXIT


def plan_with_efa() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124"), load_catalog())


# ---- the installer -------------------------------------------------------------------------------------------------

# Installs into $EFA_PREFIX what the real one does, by name, and says with which options.
INSTALLER = """\
echo "$@" > options
for file in efa/lib/libfabric.so.1 openmpi/bin/mpirun openmpi5/bin/mpirun ofi-nccl/lib/libnccl-net.so; do
    mkdir -p "$EFA_PREFIX/${file%/*}" && touch "$EFA_PREFIX/$file"
done
"""
# A package manager that knows the installer's packages, and writes down which of them are purged.
TOOLS = {
    "dpkg-query": "for name in openmpi40-aws openmpi50-aws libnccl-ofi libfabric1-aws; do\n"
    "case $name in $4) echo $name ;; esac; done; exit 1\n",
    "dpkg": 'shift 2; echo "$@" >> "$PURGED"\n',
    "ldconfig": "true\n",
}


@pytest.fixture
def installed(tmp_path):
    """``installed(kept)``: what is left under the prefix, and which packages were purged."""
    for name, text in TOOLS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/efa_installer.sh").write_text(INSTALLER)
    (tmp_path / "loader").mkdir()
    variables = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PURGED": str(tmp_path / "purged"),
        "EFA_PREFIX": str(tmp_path / "prefix"),
        "EFA_INSTALLER": str(tmp_path / "archive"),
        "EFA_LOADER": str(tmp_path / "loader"),
    }

    def run(kept: str, *options: str) -> tuple[set[str], set[str]]:
        done = subprocess.run(
            ["sh", FOLDER / "install.sh", kept, *options], env=variables, capture_output=True, check=False, timeout=30
        )
        if done.returncode:
            raise AssertionError(done.stderr)
        purged = tmp_path / "purged"
        return {p.name for p in (tmp_path / "prefix").iterdir()}, set(purged.read_text().split())

    run.folder = tmp_path  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize(
    ("kept", "left", "gone"),
    [
        ("", {"efa"}, {"openmpi40-aws", "openmpi50-aws", "libnccl-ofi"}),
        ("openmpi", {"efa", "openmpi"}, {"openmpi50-aws", "libnccl-ofi"}),
        ("aws-ofi-nccl", {"efa", "ofi-nccl"}, {"openmpi40-aws", "openmpi50-aws"}),
        ("openmpi aws-ofi-nccl", {"efa", "openmpi", "ofi-nccl"}, {"openmpi50-aws"}),
    ],
)
def test_what_the_plan_does_not_name_goes(installed, kept, left, gone):
    assert installed(kept, "-y", "--skip-kmod") == (left, gone)
    assert (installed.folder / "archive/options").read_text() == "-y --skip-kmod\n"
    assert (installed.folder / "loader/efa.conf").read_text() == f"{installed.folder}/prefix/efa/lib\n"


def test_a_failed_installer_fails_the_step(installed):
    (installed.folder / "archive/efa_installer.sh").write_text("exit 3\n")
    with pytest.raises(AssertionError):
        installed("")
