"""``diagnose``: the cause of a failed job, from its log."""

from __future__ import annotations

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.core.records import Field


class DiagnoseFlags(JsonFlag):
    """The flags of ``diagnose``."""

    log: str = Field(description="the log of a failed job, or - for standard input")


@verb
def diagnose(flags: DiagnoseFlags) -> None:
    """Name the cause of a failed job from its log, and the fix."""
    from trainwright.sagemaker.diagnosis import diagnose_file, diagnosis_text

    emit(diagnose_file(flags.log), diagnosis_text, as_json=flags.json_)
