"""``completion``: the script with which a shell completes verbs, flags and their values."""

from __future__ import annotations

from typing import ClassVar

from trainwright.cli.completion import SCRIPTS
from trainwright.cli.flags import verb
from trainwright.cli.output import artifact
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Field, Words


class CompletionFlags(Words):
    """The flags of ``completion``."""

    examples: ClassVar[tuple[str, ...]] = ("completion bash", "completion zsh", "completion fish")

    shell: str = Field(description="the shell", values=tuple(SCRIPTS))


@verb
def completion(flags: CompletionFlags) -> None:
    """Print the script that completes verbs, flags and values.

    For trainwright and ./invoke. In bash: eval "$(./invoke completion bash)", in ~/.bashrc with the whole path; in
    zsh the same with zsh, after compinit; in fish: ./invoke completion fish | source.
    """
    if flags.shell not in SCRIPTS:
        raise RequestError(f"completion {flags.shell}: unknown shell. {did_you_mean(flags.shell, SCRIPTS)}")
    artifact(SCRIPTS[flags.shell])
