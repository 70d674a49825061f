"""What the data of the catalog must not bring into a Dockerfile: moving names, unchecked downloads, secrets."""

from __future__ import annotations

import re

import pytest

from tests.support.dockerfiles import LINES, every_dockerfile

UNCHECKED = "# Files with - instead of a checksum are published without one"


def instructions(text: str) -> list[str]:
    """Every instruction, continued lines joined."""
    lines = re.sub(r" *\\\n\s*", " ", text).splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture(params=LINES, scope="module")
def dockerfiles(request: pytest.FixtureRequest) -> list[str]:
    return list(every_dockerfile(request.param).values())


def test_nothing_is_a_moving_name(dockerfiles: list[str]) -> None:
    for dockerfile in dockerfiles:
        assert not re.search(r"(:latest|/master|/main|@master|@main|--branch)\b", dockerfile)
        images = re.findall(r"(?m)^ARG (?:BASE|BUILD)_IMAGE=(\S+)", dockerfile)
        assert all(re.search(r":[\w.-]*\d[\w.-]*$|@sha256:", image) for image in images)


def test_every_download_is_checked_or_said_not_to_be(dockerfiles: list[str]) -> None:
    for dockerfile in dockerfiles:
        fetched = [found for line in instructions(dockerfile) for found in re.findall(r"[ /]fetch (\S+) (\S+) '", line)]
        every = sum(len(re.findall(r"[ /]fetch ", line)) for line in instructions(dockerfile))
        assert len(fetched) == every, "each in the form that is looked for here"
        for _, sha256 in fetched:
            assert re.fullmatch(r"[0-9a-f]{64}", sha256) or (sha256 == "-" and UNCHECKED in dockerfile)
        for sha256 in re.findall(r"/mnt/apt-fetch \S+ (\S+)", dockerfile):
            assert re.fullmatch(r"[0-9a-f]{64}", sha256)


def test_nothing_of_a_site_or_of_a_secret_is_written_down(dockerfiles: list[str]) -> None:
    for dockerfile in dockerfiles:
        assert not re.search(r"(?m)^(ENV|ARG|LABEL).*(PASSWORD|TOKEN|SECRET|PROXY)", dockerfile, re.IGNORECASE)


def test_no_provider_of_libfabric_is_forced(dockerfiles: list[str]) -> None:
    for dockerfile in dockerfiles:
        assert "FI_PROVIDER" not in dockerfile, "it hangs instances without EFA"


def test_one_entry_point_and_in_the_containers_of_aws_none(dockerfiles: list[str]) -> None:
    for dockerfile in dockerfiles:
        # Theirs makes the host's name from resourceconfig.json, so it stays.
        theirs = re.search(
            r"(?m)^ARG BASE_IMAGE=(763104351884\.|public\.ecr\.aws/deep-learning-containers/)", dockerfile
        )
        own = [] if theirs else ['["/usr/local/bin/training-init"]']
        assert re.findall(r"(?m)^ENTRYPOINT (.+)", dockerfile) == own
