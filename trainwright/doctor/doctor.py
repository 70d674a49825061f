"""What this machine lacks for building images, and the command that fixes it.

A check looks at one thing, reads only, and gives one finding; a check that can repair what it finds has a fix.
Nothing here calls AWS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainwright.core.errors import Failure
from trainwright.core.masking import masked
from trainwright.core.records import Document
from trainwright.core.say import Say
from trainwright.doctor.engine import check_base, check_client, check_disk, check_engine, fix_base, fix_engine
from trainwright.doctor.host import check_aws, check_certificates, check_platform, check_python
from trainwright.doctor.leftovers import check_leftovers, fix_leftovers
from trainwright.doctor.machine import Check, Machine, MachineFinding, finding
from trainwright.doctor.network import check_apt, check_pip, check_trust


class DoctorDocument(Document):
    """``doctor --json``."""

    schema: Literal["trainwright/doctor/1"]
    findings: tuple[MachineFinding, ...]


def run_doctor(*, fix: bool, say: Say, registries: Sequence[str] = ()) -> DoctorDocument:
    """Examine this machine, and fix what can be fixed where ``fix`` is set.

    Args:
        fix: change this machine.
        say: progress callback.
        registries: those that the site names for base images.
    """
    machine = Machine(registries)
    findings = examine(machine)
    return document(repaired(findings, say, machine) if fix else findings)


def document(findings: Sequence[MachineFinding]) -> DoctorDocument:
    """The document of findings, without any secret that they quote."""
    shown = tuple(MachineFinding(**masked(each.as_json())) for each in findings)
    return DoctorDocument(schema="trainwright/doctor/1", findings=shown)


def examine(machine: Machine | None = None) -> list[MachineFinding]:
    """Run every check, in order; a check that itself fails is reported as an error."""
    looked_at = machine or Machine()
    return [_run(check, looked_at) for check in CHECKS]


def repaired(findings: Sequence[MachineFinding], say: Say, machine: Machine | None = None) -> list[MachineFinding]:
    """Fix what can be fixed and look again.

    Args:
        findings: what :func:`examine` gave.
        say: progress callback; called before each step.

    Returns:
        The findings as they are now, in the same order; a fix that failed is reported in its check's finding.
    """
    registries = machine.registries if machine else ()
    known = {check.name: check for check in CHECKS}
    failed: dict[str, MachineFinding] = {}
    for found in findings:
        check = known[found.check]
        if found.severity == "ok" or check.fix is None:
            continue
        try:
            check.fix(Machine(registries), say)
        except Failure as error:
            failed[check.name] = finding(check.name, found.severity, f"not fixed: {error.message}", error.remedy)
    # All of them again: the disk, for one, can be looked at only once the engine answers.
    now = Machine(registries)
    return [failed.get(found.check) or _run(known[found.check], now) for found in findings]


def _run(check: Check, machine: Machine) -> MachineFinding:
    try:
        return check.run(machine)
    except Failure as error:
        return finding(check.name, "error", error.message, error.remedy)
    except OSError as error:
        return finding(check.name, "error", f"could not be checked: {error}")


CHECKS: tuple[Check, ...] = (
    Check("platform", check_platform),
    Check("python", check_python),
    Check("client", check_client),  # the engine's fix sees to its client first
    Check("engine", check_engine, fix_engine),
    Check("disk", check_disk),
    Check("base images", check_base, fix_base),
    Check("pip index", check_pip),
    Check("apt sources", check_apt),
    Check("trust", check_trust),
    Check("certificates", check_certificates),
    Check("aws", check_aws),
    Check("leftovers", check_leftovers, fix_leftovers),
)
