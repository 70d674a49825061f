"""``diagnose``: the cause of a failed job, from its logs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.core.errors import RequestError
from trainwright.core.records import Field


class DiagnoseFlags(SiteFlag, JsonFlag):
    """The flags of ``diagnose``."""

    examples: ClassVar[tuple[str, ...]] = (
        "diagnose failed.log",
        "diagnose - --json",
        "diagnose --job my-training-job --region eu-west-1",
    )

    log: str = Field(description="the log of a failed job, a folder of logs, or - for standard input")
    job: bool = Field(default=False, description="LOG is the name of a training job; read it from the account")
    region: str | None = Field(default=None, description="AWS region of the job (default: the site's, AWS_REGION)")


@verb
def diagnose(flags: DiagnoseFlags) -> None:
    """Name the cause of a failed job from its logs, and the fix."""
    from trainwright.sagemaker.diagnosis import diagnose_file, diagnosis_text

    if not flags.job:
        if flags.region or flags.site:
            given = "--region" if flags.region else "--site"
            raise RequestError(f"{given} needs --job", remedy="./invoke diagnose --job NAME --region REGION")
        emit(diagnose_file(flags.log), diagnosis_text, as_json=flags.json_)
        return
    from trainwright.diagnose.account import diagnose_job
    from trainwright.site.site import load_site

    site = load_site(Path(flags.site) if flags.site else None)
    emit(diagnose_job(flags.log, flags.region, site), diagnosis_text, as_json=flags.json_)
