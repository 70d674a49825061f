"""``doctor``: what this machine lacks for building images."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import EngineError
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.doctor.doctor import DoctorDocument


class DoctorFlags(JsonFlag):
    """The flags of ``doctor``."""

    examples: ClassVar[tuple[str, ...]] = (
        "doctor",
        "doctor --fix",
        "doctor --json",
    )

    fix: bool = Field(default=False, description="fix what can be fixed")


@verb
def doctor(flags: DoctorFlags) -> None:
    """Say what this machine lacks, and the command that fixes it."""
    from trainwright.doctor.doctor import run_doctor
    from trainwright.site.site import load_site

    base = load_site().base_image
    document = run_doctor(fix=flags.fix, say=say, registries=(base,) if base else ())
    emit(document, doctor_text, as_json=flags.json_)
    if any(finding.severity == "error" for finding in document.findings):
        raise Ended(EngineError.exit_code)


def doctor_text(document: DoctorDocument) -> str:
    """A line per check, a remedy under each that needs one."""
    lines = []
    for finding in document.findings:
        lines.append(f"{finding.severity:8}{finding.check}: {finding.message}")
        if finding.severity != "ok":
            lines += [f"        {line}" for line in finding.remedy.splitlines()]
    return "\n".join(lines)
