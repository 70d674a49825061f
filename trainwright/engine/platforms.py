"""Images are for Linux on x86-64, and a build runs their programs: which machines and engines can do that."""

from __future__ import annotations

import platform

from trainwright.core.errors import EngineError
from trainwright.engine.engine import Engine

X86_64 = ("x86_64", "amd64")
ELSEWHERE = "Build in CodeBuild (docs/pipeline.md), or on a machine with Linux on x86-64 (docs/builders.md)."


def this_machine() -> tuple[str, bool]:
    """The system and processor of this machine, and whether a Debian base for images can be made on it."""
    system, processor = platform.system(), platform.machine()
    return f"{system} {processor}", system == "Linux" and processor.lower() in X86_64


def check_machine() -> None:
    """Refuse a machine on which no Debian base can be made: its packages are unpacked and configured here.

    Raises:
        EngineError: it is not Linux on x86-64.
    """
    here, fits = this_machine()
    if not fits:
        raise EngineError(f"{here}: images are built on Linux x86-64", remedy=ELSEWHERE, state="platform")


def check_engine(engine: Engine) -> None:
    """Refuse an engine that cannot run the programs of an image: Docker Desktop on an ARM Mac, Windows containers.

    An engine that does not say what it is counts as fitting. Emulation is not considered: none was tried.

    Raises:
        EngineError: the engine runs containers of another system or processor.
    """
    if engine.system not in ("", "linux") or engine.processor not in ("", *X86_64):
        raise EngineError(
            f"the engine at {engine.endpoint} is for {engine.system} on {engine.processor}: images are built on "
            "Linux x86-64",
            remedy=ELSEWHERE,
            state="platform",
        )
