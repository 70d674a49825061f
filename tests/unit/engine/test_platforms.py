"""Images are built on Linux x86-64: other machines and engines are refused before anything is fetched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.core.errors import EngineError
from trainwright.engine import engine, platforms
from trainwright.engine.engine import Client, Engine
from trainwright.verbs import way
from trainwright.verbs.state import State

ENGINE = Engine(Client("/usr/bin/docker", "buildx", "28.2.2", "rawjson"), "28.2.2")


# `docker info` as the Engine API describes SystemInfo (docs/api/v1.47.yaml in moby/moby: OSType, Architecture).
@pytest.mark.parametrize(
    ("system", "processor", "fits"),
    [
        ("linux", "x86_64", True),
        ("linux", "amd64", True),  # podman's answer
        ("", "", True),
        ("linux", "aarch64", False),  # Docker Desktop on Apple's processors
        ("windows", "x86_64", False),
    ],
)
def test_an_engine_has_to_run_the_programs_of_an_image(system: str, processor: str, fits: bool) -> None:
    one = replace(ENGINE, system=system, processor=processor)
    if fits:
        platforms.check_engine(one)
        return
    with pytest.raises(EngineError) as refused:
        platforms.check_engine(one)
    assert f"{system} on {processor}" in refused.value.message
    assert "CodeBuild" in refused.value.remedy
    assert refused.value.exit_code == 4


def test_the_engine_s_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"ServerVersion": "28.2.2", "OSType": "linux", "Architecture": "aarch64"}
    monkeypatch.setattr(engine, "_info", lambda _: (said, SimpleNamespace(ok=True)))
    monkeypatch.setattr(engine, "_endpoint", lambda *_: "unix:///x")
    found = engine._ask(ENGINE.client)
    assert isinstance(found, Engine)
    assert (found.system, found.processor) == ("linux", "aarch64")


@pytest.mark.parametrize("here", [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")])
def test_a_build_ends_before_it_asks_for_an_engine(monkeypatch: pytest.MonkeyPatch, here: tuple[str, str]) -> None:
    monkeypatch.setattr(platforms.platform, "system", lambda: here[0])
    monkeypatch.setattr(platforms.platform, "machine", lambda: here[1])
    monkeypatch.setattr(engine, "connect", lambda **_: pytest.fail("an engine was asked for"))
    with pytest.raises(EngineError, match=" ".join(here)):
        way.check(_ready(rootfs=SimpleNamespace(sha256=None)))


def test_a_build_looks_at_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "connect", lambda **_: replace(ENGINE, system="linux", processor="aarch64"))
    with pytest.raises(EngineError, match="linux on aarch64"):
        way.check(_ready(rootfs=None))


def _ready(**inputs: Any) -> State:
    plan = SimpleNamespace(notices=(), platform="linux/amd64")
    known: Any = SimpleNamespace(lock=None, plan=plan, site=SimpleNamespace(), folder=Path(), **inputs)
    options: Any = SimpleNamespace(registry=None, skip_source_check=True)
    unused: Any = SimpleNamespace()
    return State(say=lambda _: None, site=unused, catalog=unused, inputs=known, options=options)


def test_who_cannot_build_here_is_told_the_command_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac, an engine for ARM, a machine without a client: the same way, which can be typed."""
    command = "./invoke build --on codebuild"
    monkeypatch.setattr(platforms.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platforms.platform, "machine", lambda: "arm64")
    with pytest.raises(EngineError) as here:
        platforms.check_machine()
    with pytest.raises(EngineError) as there:
        platforms.check_engine(replace(ENGINE, system="linux", processor="aarch64"))
    for refused in (here.value, there.value, engine.no_client([])):
        assert any(
            line.removeprefix("# or, without an engine here: ").startswith(command)
            for line in refused.remedy.splitlines()
        )
