"""``shell``: opens a shell in an image, with the working folder mounted."""

from __future__ import annotations

from typing import ClassVar

from trainwright.cli.flags import verb
from trainwright.verbs.run import ContainerFlags, start


class ShellFlags(ContainerFlags):
    """The flags of ``shell``."""

    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "shell",
        "shell trainwright/pytorch:2.6.0-cu124-py311-debian12",
        "shell --network none",
    )


@verb
def shell(flags: ShellFlags) -> None:
    """Open a shell in an image, with the working folder mounted.

    The folder is /workspace, where the shell starts; GPUs are there if the engine has any. The exit code is that of
    the shell.
    """
    start(flags, ["bash"])
