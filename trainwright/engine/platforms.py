"""A build runs programs of its image, which is for Linux on x86-64 or ARM: which machines and engines can do that."""

from __future__ import annotations

import platform

from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.core.errors import EngineError
from trainwright.engine.engine import WITHOUT, Engine

X86_64 = PLATFORMS[AMD64]
ELSEWHERE = (
    f"{WITHOUT}   # builds in CodeBuild what is here (docs/builders.md, docs/setup-aws.md)\n"
    "Or build on a machine with Linux on x86-64."
)


def this_machine() -> tuple[str, bool]:
    """The system and processor of this machine, and whether a Debian base for images can be made on it."""
    system, processor = platform.system(), platform.machine()
    return f"{system} {processor}", system == "Linux" and processor.lower() in X86_64


def check_machine(image_platform: str = AMD64) -> None:
    """Refuse a machine on which no Debian base can be made: its packages are unpacked and configured here.

    One on x86-64 may make a base for ARM, if its kernel runs those programs by qemu-user: mmdebstrap finds out.

    Args:
        image_platform: of the image, as in a plan.

    Raises:
        EngineError: it is not Linux on x86-64, and not on the image's own processor.
    """
    here, fits = this_machine()
    if not fits and here not in [f"Linux {name}" for name in PLATFORMS[image_platform]]:
        raise EngineError(f"{here}: images are built on Linux x86-64", remedy=ELSEWHERE, state="platform")


def check_engine(engine: Engine, image_platform: str = AMD64) -> None:
    """Refuse an engine that cannot run the programs of an image: Docker Desktop on an ARM Mac, Windows containers.

    An engine that does not say what it is counts as fitting. Emulation is not considered: none was tried.

    Args:
        engine: that is to build.
        image_platform: of the image, as in a plan.

    Raises:
        EngineError: the engine runs containers of another system or processor.
    """
    if engine.system in ("", "linux") and engine.processor in ("", *PLATFORMS[image_platform]):
        return
    own = image_platform == AMD64
    wanted = "images are built on Linux x86-64" if own else f"this image is for {image_platform}"
    raise EngineError(
        f"the engine at {engine.endpoint} is for {engine.system} on {engine.processor}: {wanted}",
        remedy=ELSEWHERE if own else f"Use an engine for {image_platform} (DOCKER_HOST), or leave out --platform.",
        state="platform",
    )
