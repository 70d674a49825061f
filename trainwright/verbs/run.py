"""``run``: runs a command in an image, with the working folder mounted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import RequestError
from trainwright.core.records import Field, Words
from trainwright.verbs.request import image_in_hand


class ContainerFlags(Words):
    """The flags of a verb that starts a container of the user's."""

    image: str = Field(
        default="",
        description="tag or id of an image that the engine has (default: the one of trainwright.toml, or the newest)",
        values="built",
    )
    environment: tuple[str, ...] = Field(
        default=(), alias="env", description="a variable, as NAME=VALUE (may be repeated)", metavar="NAME=VALUE"
    )
    network: str | None = Field(
        default=None, description="none, or a network of the engine (default: the engine's own)", metavar="NETWORK"
    )


class RunFlags(ContainerFlags):
    """The flags of ``run``."""

    rest: ClassVar[str] = "command"
    examples: ClassVar[tuple[str, ...]] = (
        "run -- python train.py",
        "run --image trainwright/pytorch:2.6.0-cu124-py311-debian12 -- nvidia-smi",
        'run --env NCCL_DEBUG=INFO -- python -c "import torch; print(torch.__version__)"',
    )

    command: tuple[str, ...] = Field(default=(), description="the command and its arguments", metavar="COMMAND")


@verb
def run(flags: RunFlags) -> None:
    """Run a command in an image, with the working folder mounted.

    The folder is /workspace, where the command starts; GPUs are there if the engine has any. The exit code is the
    command's. Nothing is simulated: rehearse runs a script as SageMaker would.
    """
    if not flags.command:
        raise RequestError("run: the command is missing", remedy="For example: ./invoke run -- python train.py")
    start(flags, flags.command)


def start(flags: ContainerFlags, command: Sequence[str]) -> None:
    """Run a command in the image that the flags name.

    Raises:
        Ended: with the command's exit status, if that is not 0.
        Failure: the image or the engine is missing.
    """
    import sys

    from trainwright.engine.engine import connect
    from trainwright.prove.session import enter
    from trainwright.rehearse.flags import pairs_of

    environment = pairs_of("--env", flags.environment)
    image = flags.image or image_in_hand()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    engine = connect(say=say)
    code = enter(engine, image, command, Path.cwd(), environment=environment, network=flags.network, terminal=terminal)
    if code:
        raise Ended(code)
