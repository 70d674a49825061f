"""``diagnose``: the cause of a failed job, from its logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import artifact, print_json
from trainwright.core.errors import RequestError
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.sagemaker.diagnosis import DiagnosisDocument


class DiagnoseFlags(SiteFlag, JsonFlag):
    """The flags of ``diagnose``."""

    examples: ClassVar[tuple[str, ...]] = (
        "diagnose failed.log",
        "diagnose algo-1.log algo-2.log",
        "diagnose - --json",
        "diagnose --job my-training-job --region eu-west-1",
    )

    bare: ClassVar[str] = "log"

    log: tuple[str, ...] = Field(
        default=(),
        description="the log of a failed job, the logs of its hosts or their folder, or - for standard input",
    )
    job: bool = Field(default=False, description="LOG is the name of a training job; read it from the account")
    format: str | None = Field(default=None, description="text (the default), json, sarif, or github for annotations")
    region: str | None = Field(default=None, description="AWS region of the job (default: the site's, AWS_REGION)")


@verb
def diagnose(flags: DiagnoseFlags) -> None:
    """Name the cause of a failed job from its logs, and the fix."""
    from trainwright.core.findings_formats import form_of
    from trainwright.sagemaker.diagnosis import diagnose_files

    if not flags.log:
        raise RequestError(
            "diagnose: log is missing",
            remedy="./invoke diagnose LOG   (./invoke --help diagnose shows every flag)",
        )
    form = form_of(flags.format, as_json=flags.json_)
    if not flags.job:
        if flags.region or flags.site:
            given = "--region" if flags.region else "--site"
            raise RequestError(f"{given} needs --job", remedy="./invoke diagnose --job NAME --region REGION")
        _show(diagnose_files(flags.log), form)
        return
    if len(flags.log) > 1:
        raise RequestError("--job takes one job", remedy=f"./invoke diagnose --job {flags.log[0]}")
    from trainwright.diagnose.account import diagnose_job
    from trainwright.site.site import load_site

    site = load_site(Path(flags.site) if flags.site else None)
    _show(diagnose_job(flags.log[0], flags.region, site), form)


def _show(found: DiagnosisDocument, form: str) -> None:
    from trainwright.core.findings_formats import github, sarif
    from trainwright.sagemaker.diagnosis_output import as_findings, diagnosis_text, rules

    if form == "sarif":
        print_json(sarif(as_findings(found), rules()))
    elif form == "github":
        artifact(github(as_findings(found), "diagnose") + "\n")
    else:
        emit(found, diagnosis_text, as_json=form == "json")
