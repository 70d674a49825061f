"""What holds for every Dockerfile of the catalog: nothing unpinned, nothing unchecked, one apt-get update a stage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "golden").glob("*.Dockerfile"))
UNCHECKED = "# Nobody publishes a checksum of this file"


def instructions(text: str) -> list[tuple[str, str]]:
    """Every instruction with the comments right above it, continued lines joined."""
    found, comments = [], ""
    for line in re.sub(r" *\\\n\s*", " ", text).splitlines():
        if line.startswith("#"):
            comments += line + "\n"
        elif line.strip():
            found.append((comments, line))
            comments = ""
    return found


def stages(text: str) -> list[str]:
    """The text of every stage."""
    return re.split(r"(?m)^(?=FROM )", text)[1:]


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem, scope="module")
def dockerfile(request: pytest.FixtureRequest) -> str:
    return str(request.param.read_text())


def test_there_are_dockerfiles() -> None:
    assert GOLDEN


def test_nothing_is_a_moving_name(dockerfile: str) -> None:
    assert not re.search(r"(:latest|/master|/main|@master|@main|--branch)\b", dockerfile)
    images = re.findall(r"(?m)^ARG (?:BASE|BUILD)_IMAGE=(\S+)", dockerfile)
    assert all(re.search(r":[\w.-]*\d[\w.-]*$|@sha256:", image) for image in images)


def test_every_download_is_checked_or_said_not_to_be(dockerfile: str) -> None:
    for comments, line in instructions(dockerfile):
        for _, sha256 in re.findall(r"sh /mnt/fetch (\S+) (\S+)", line):
            assert re.fullmatch(r"[0-9a-f]{64}", sha256) or (sha256 == "-" and UNCHECKED in comments), line
        told = re.search(r"\b(curl|wget|git clone)\b|ADD https?:", line)
        assert not told or "install" in line, line


def test_packages_are_installed_by_hash_or_from_checked_files(dockerfile: str) -> None:
    for _, line in instructions(dockerfile):
        for command in re.findall(r"pip install [^&|;]*|pip wheel [^&|;]*", line):
            assert re.search(r"--require-hashes|--no-index|user\.txt|--upgrade", command), command


def test_one_update_per_stage_and_step(dockerfile: str) -> None:
    for stage in stages(dockerfile):
        runs = [line for _, line in instructions(stage) if re.search(r'apt-get ("\$@" )?update', line)]
        assert all(len(re.findall(r'apt-get ("\$@" )?update', line)) == 1 for line in runs)
        # The final stage has AWS's installer beside the packages of the os stage, which is another one.
        assert len(runs) <= 1, stage[:200]


def test_nothing_of_a_site_or_of_a_secret_is_written_down(dockerfile: str) -> None:
    assert not re.search(r"(?m)^(ENV|ARG|LABEL).*(PASSWORD|TOKEN|SECRET|PROXY)", dockerfile, re.IGNORECASE)


def test_no_provider_of_libfabric_is_forced(dockerfile: str) -> None:
    assert "FI_PROVIDER" not in dockerfile, "it hangs instances without EFA"
