"""Checksums of archives: those that somebody publishes are in the catalog, and lines without are named."""

from __future__ import annotations

import base64

import msgspec
import pytest

from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog, target_of
from trainwright.catalog.listing import lines
from trainwright.catalog.platforms import PLATFORMS
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
SPACK = "spack/spack-packages 1e8cf059 (2026-07-01), package.py"
NIX = "nixpkgs, binary-hashes.nix"
INDEX = "the link of PyTorch's own index, quoted in public requirements"
# The file, its checksum as the publisher gives it (nixpkgs: base64), and where.
PUBLISHED = [
    ("Python-3.11.10.tgz", "92f2faf242681bfa406d53a51e17d42c5373affe23a130cd9697e132ef574706", "Homebrew, Spack"),
    ("Python-3.13.11.tgz", "03cfedbe06ce21bc44ce09245e091a77f2fee9ec9be5c52069048a181300b202", SPACK),
    ("openmpi-4.0.1.tar.bz2", "cce7b6d20522849301727f81282201d609553103ac0b09162cf28d102efb9709", SPACK),
    ("openmpi-4.0.4.tar.bz2", "47e24eb2223fe5d24438658958a313b6b7a55bb281563542e1afc9dec4a31ac4", SPACK),
    ("thrust-1.9.10.tar.gz", "5071c995a03e97e2bcfe0c5cc265330160316733336bb87dfcea3fc381065316", SPACK),
    ("nccl-2.16.5-1.tar.gz", "0e3d7b6295beed81dc15002e88abf7a3b45b5c686b13b779ceac056f5612087f", "conda-forge"),
    ("torchvision-0.11.1+cu113-cp38-cp38-linux_x86_64.whl", "bFxvJaNEomytXXANHng+oU8YSLGkuO/TSzkoDskkaIE=", NIX),
    ("torchvision-0.12.0+cu113-cp38-cp38-linux_x86_64.whl", "NxM+jFsOwvAZmeWRFvbQ422a+xx/j1i9DD3ImW+DVBk=", NIX),
    ("torchaudio-0.11.0+cu113-cp38-cp38-linux_x86_64.whl", "zuCHDpz3bkOUjYWprqX9VXoUbXfR8Vhdf1VFfOUg8z4=", NIX),
    ("torchaudio-0.12.1+cu116-cp38-cp38-linux_x86_64.whl", "CCtZ6eUhs/6kaoU0HwDDaK4JTSFKkVJF+OMAu368Zno=", NIX),
    (
        "torch-2.13.0+cpu-cp313-cp313-manylinux_2_28_aarch64.whl",
        "C499BCMCeui5DHl3xifzN58yU2OggiTf+tm0staEqD0=",
        NIX,
    ),
    (
        "torchvision-0.28.0+cpu-cp313-cp313-manylinux_2_28_aarch64.whl",
        "h5rm1OLjZRWC+3GH6v1TVgHLXQGVldR+LIdCYqAA6I4=",
        NIX,
    ),
    (
        "torchaudio-2.11.0+cpu-cp313-cp313-manylinux_2_28_aarch64.whl",
        "L6qNjyUdH6RIE3ZbAHkQSLYX6dwG5s2SIquoECOSkRk=",
        NIX,
    ),
    (
        "torchaudio-0.12.1+cu113-cp38-cp38-linux_x86_64.whl",
        "07324a67c069a986bb991c509c9442e8fce72326941e55fa4738d88cbb806047",
        INDEX,
    ),
    (
        "torchvision-0.16.0+cu118-cp310-cp310-linux_x86_64.whl",
        "033712f65d45afe806676c4129dfe601ad1321d9e092df62b15847c02d4061dc",
        INDEX,
    ),
    (
        "torchaudio-2.1.0+cu118-cp310-cp310-linux_x86_64.whl",
        "cdfd0a129406155eee595f408cafbb92589652da4090d1d2040f5453d4cae71f",
        INDEX,
    ),
]


def sha256_by_file() -> dict[str, str | None]:
    found = {}
    for entry in CATALOG.lines:
        for name, chosen in {**entry.line.components, **entry.line.options}.items():
            provider = CATALOG.components[name].component.providers[chosen.provider]
            for platform in PLATFORMS:
                target = target_of(entry.line, entry.line.version, platform)
                found |= {source.file: source.sha256 for source in provider.sources_for(chosen.version, target) or ()}
    return found


@pytest.mark.parametrize(("file", "said", "where"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_a_published_checksum_is_in_the_catalog(file, said, where):
    assert where
    expected = said if len(said) == 64 else base64.b64decode(said).hex()
    assert sha256_by_file()[file] == expected


def test_list_counts_what_is_not_pinned():
    by_line = {(row.framework, row.version, row.cuda): row.unpinned for row in lines(CATALOG, CATALOG.lines, {}).lines}
    assert by_line["pytorch", "2.6.0", "cu124"] == ()
    seed = by_line["pytorch", "1.10.2", "cu113"]
    assert "torch-1.10.2+cu113-cp38-cp38-manylinux1_x86_64.whl" in seed
    shown = call("list", "--framework", "pytorch", "--cuda", "cu124").stdout.splitlines()
    at = shown[0].index("unpinned")
    assert {row[at:].split()[0] for row in shown[1:] if "debian-12" in row} == {"-"}
    assert {row[at:].split()[0] for row in shown[1:] if "ubuntu" in row} == {"base+4"}


# Docker's documentation, "Pin base image versions": a tag is mutable, a digest is not.
def test_list_says_that_a_base_image_is_not_pinned():
    rows = {(row.framework, row.name): row.base_tags for row in lines(CATALOG, CATALOG.lines, {}).lines}
    assert rows["pytorch", "2.13.0-cu133"] == (
        "nvidia/cuda:13.3.0-base-amzn2023",
        "nvidia/cuda:13.3.0-devel-amzn2023",
    )
    assert rows["pytorch", "cu124"] == ()
    shown = call("list", "--framework", "pytorch").stdout.splitlines()
    at = shown[0].index("unpinned")
    (line,) = [row for row in shown if row.startswith("2.13.0-cu133 ")]
    assert line[at:].split()[0] == "base"


def test_a_base_image_with_a_digest_is_pinned():
    entry = next(each for each in CATALOG.lines if each.name == "2.13.0-cu133")
    base = msgspec.structs.replace(entry.line.base, image=f"nvidia/cuda@sha256:{'a' * 64}", build_image=None)
    pinned = msgspec.structs.replace(entry, line=msgspec.structs.replace(entry.line, base=base))
    assert lines(CATALOG, [pinned], {}).lines[0].base_tags == ()


def test_an_option_that_is_asked_for_counts():
    """Nobody publishes the checksum of torchaudio 2.11.0+cpu (images/pytorch/cpu/line.yaml: none was run)."""
    shown = call("list", "--framework", "pytorch", "--cuda", "cpu", "--with", "torchaudio").stdout.splitlines()
    at = shown[0].index("unpinned")
    assert {row.split()[0]: row[at:].split()[0] for row in shown[1:] if row.startswith("cpu ")} == {"cpu": "1"}
    plain = call("list", "--framework", "pytorch", "--cuda", "cpu").stdout.splitlines()
    assert [row[at:].split()[0] for row in plain[1:] if row.startswith("cpu ")] == ["-"]


def test_render_names_what_is_not_pinned():
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.10.2"), CATALOG)
    done = call("render", "--framework", "pytorch", "--cuda", "cu113", "--version", "1.10.2")
    assert plan.unpinned
    assert f"{len(plan.unpinned)} of 14 archives are not pinned" in done.stderr
    assert all(file in done.stderr for file in plan.unpinned)
    assert "smdistributed_modelparallel-1.7.0-cp38-cp38-linux_x86_64.whl" in done.stderr
    assert "cnmem-37896cc9.tar.gz" not in done.stderr
    assert "metis-5.1.0.tar.gz" not in done.stderr
    assert "not pinned, as their tags may move: nvidia/cuda:" in done.stderr
    assert "not pinned, as" not in call("render", "--framework", "pytorch", "--cuda", "cu124").stderr


# Debian's and Ubuntu's archives change within a release (point releases, security updates). Amazon Linux 2023 locks an
# image to the repository of its own release (its user guide, "Deterministic upgrades through versioned repositories").
def test_what_the_distribution_s_archive_decides_is_not_pinned_before_a_lock():
    rows = {(row.framework, row.name): row.until_locked for row in lines(CATALOG, CATALOG.lines, {}).lines}
    assert rows["pytorch", "cpu"] == ("root file system", "packages")
    assert rows["pytorch", "1.10.2-cu113"] == ("packages",)
    assert rows["pytorch", "2.13.0-cu133"] == ()
    note = "pinned by ./invoke lock"
    assert note in call("list", "--framework", "pytorch", "--cuda", "cu124").stdout
    assert note not in call("list", "--framework", "tensorflow", "--cuda", "cu129", "--base", "nvidia").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytorch:cpu"], "not pinned: the root file system and its packages"),
        (["pytorch:2.5.1-cu124-nvidia"], "not pinned: the distribution's packages"),
        (["pytorch:2.13.0-cu133-nvidia"], ""),
    ],
)
def test_render_says_what_the_distribution_s_archive_decides(words, said):
    told = [line for line in call("render", *words).stderr.splitlines() if "not pinned: " in line]
    assert [line for line in told if said in line] == told
    assert bool(told) is bool(said)


def test_a_locked_base_is_pinned():
    base = resolve(make_request(framework="pytorch", cuda="cu133", base="nvidia"), CATALOG).base
    assert base.tags == ("nvidia/cuda:13.3.0-base-amzn2023", "nvidia/cuda:13.3.0-devel-amzn2023")
    digest = f"sha256:{'a' * 64}"
    assert base.replace(digest=digest).tags == ("nvidia/cuda:13.3.0-devel-amzn2023",)
    assert base.replace(digest=digest, build_digest=digest).tags == ()
