"""What tests of rehearsals share: what a rehearsal's document says, and that none leaves anything behind."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.engine.setup import ensure_tool

LABEL = "io.trainwright.rehearsal"


def left(docker: Callable[..., str]) -> list[str]:
    """What the engine holds of rehearsals whose process is gone; others may be at work beside this test."""
    owner = f'{{{{index .%s "{LABEL}.owner"}}}}'
    found = []
    for kind, words, labels in (("container", ["ps", "-a"], "Config.Labels"), ("network", ["network", "ls"], "Labels")):
        for identity in docker(*words, "-q", "--filter", f"label={LABEL}").split():
            said = docker(kind, "inspect", "--format", owner % labels, identity, check=False)
            if said and not Path("/proc", said.split(":")[2]).exists():
                found.append(identity)
    return found


@pytest.fixture(scope="session", autouse=True)
def ip_is_there() -> None:
    """A smallest Debian lacks the program, which veth pairs are made with."""
    if os.geteuid() == 0:
        ensure_tool("ip", print)


@pytest.fixture(autouse=True)
def nothing_is_left(docker: Callable[..., str], state: Path) -> Iterator[None]:
    """For the modules that import it."""
    yield
    assert not left(docker)
    assert not list((state / "rehearsals").glob("*/work"))


def files_of(document: dict[str, Any], kind: str = "model") -> dict[str, str]:
    with tarfile.open(document["artifacts"][kind]["path"]) as archive:
        found = {}
        for member in archive.getmembers():
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                found[member.name] = content.read().decode()
        return found


def checks(document: dict[str, Any]) -> dict[str, str]:
    return {row["check"]: row["outcome"] for row in document["checks"]}
