"""The whole of ``estimator``: the job from its file and flags, checked, and what starts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from trainwright.core import findings
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding
from trainwright.core.records import Record, parse_record, read_json
from trainwright.estimator import awscli, compare, program_sdk2, program_sdk3
from trainwright.estimator.check import check
from trainwright.estimator.create_training_job import launch_hyperparameters, make_request
from trainwright.estimator.figures import Figures, figures
from trainwright.estimator.image import ImageFacts, facts_of_image, facts_of_plan
from trainwright.estimator.subject import SMP_PARAMETERS, Subject, part
from trainwright.sagemaker.job import Job, PlanRequest, read_job

FORMATS = ("python", "request", "cli", "hyperparameters")
COMMAND_LINE = "the command line"
Look = Callable[[str], ImageFacts | None]


class EstimatorDocument(Record):
    """``estimator --json``."""

    schema_: Literal["trainwright/estimator/1"] = Field(alias="schema")
    job: str = Field(description="the job file, or the command line")
    sdk: Literal[2, 3]
    image: ImageFacts | None = Field(description="null: nothing is known of it")
    findings: tuple[Finding, ...]
    errors: int
    warnings: int
    notes: int
    strict: bool = Field(description="warnings count as errors for the exit code")
    exit_code: Literal[0, 2]
    figures: Figures
    format: Literal["python", "request", "cli", "hyperparameters"] | None = Field(description="null: checks alone")
    generated: dict[str, Any] = Field(
        description="job, or baseline and compiled → source, script, request or hyperparameters; empty after errors"
    )

    def as_json(self) -> dict[str, Any]:
        """The document of ``--json``."""
        return self.model_dump(mode="json", by_alias=True)


def read_words(job_file: str | None, words: Mapping[str, Any]) -> tuple[Job, Path]:
    """The job of a file, with the flags that override it, and the folder its paths are relative to.

    Args:
        job_file: the job file; nothing: the flags say everything.
        words: key of the job file → value of a flag; ``None`` and empty ones were not given. ``plan`` is merged key by
            key, as are tables.

    Raises:
        RequestError: no such file, an unknown key, a value of the wrong type.
    """
    job = read_job(Path(job_file)) if job_file else Job()
    folder = Path(job_file).parent if job_file else Path()
    given = {key: value for key, value in words.items() if value not in (None, "", {}, [], False)}
    if "source_dir" in given and not given["source_dir"].startswith("s3://"):
        given["source_dir"] = str(Path(given["source_dir"]).absolute())
    elif "entry_point" in given and not (job.source_dir or given.get("source_dir")):
        given["entry_point"] = str(Path(given["entry_point"]).absolute())
    for key in ("hyperparameters", "environment", "inputs"):
        if key in given:
            given[key] = {**getattr(job, key), **given[key]}
    if "plan" in given:
        old = job.plan.model_dump(by_alias=True, exclude_none=True) if job.plan else {}
        # Another framework is another request; of the old one nothing need fit it.
        keep = {} if "framework" in given["plan"] else old
        given["plan"] = {**keep, **given["plan"]}
    data = job.model_dump(by_alias=True, exclude_unset=True)
    if "instance_type" in given:
        data.pop("instance_groups", None)
    return parse_record(Job, {**data, **given}, COMMAND_LINE), folder


def estimate(
    job: Job,
    folder: Path,
    *,
    title: str = COMMAND_LINE,
    sdk: int = 2,
    form: str | None = "python",
    compared: bool = False,
    strict: bool = False,
    look: Look = facts_of_image,
) -> EstimatorDocument:
    """Check a job against its image, and write what starts it.

    Args:
        job: what is to be started.
        folder: what its relative paths are relative to.
        title: what the job is called in messages: its file.
        sdk: 2 or 3.
        form: one of :data:`FORMATS`; ``None``: check only.
        compared: write two jobs, with and without the Training Compiler.
        strict: warnings count as errors.
        look: finds out about an image.

    Raises:
        RequestError: a word is wrong, or there is neither image nor plan.
    """
    version = _version(sdk)
    if form is not None and form not in FORMATS:
        raise RequestError(f"--format {form}: no such format. {did_you_mean(form, FORMATS)}")
    if form == "cli" and version == 3:
        raise RequestError(
            "--format cli: SDK 3 uploads programs of its own with every job, which the AWS command line does not have",
            remedy="--sdk 2 --format cli, or --sdk 3 --format python.",
        )
    if job.image is None and job.plan is None:
        raise RequestError(
            "the job has neither image nor plan",
            remedy="--image <address in ECR>, or --framework pytorch --cuda cu124 to check against a plan.",
        )
    job = with_parameters(job, folder)
    image = facts_of_plan(resolve_plan(job.plan)) if job.plan else look(str(job.image))
    generates = form is not None and form != "hyperparameters"
    subject = Subject(job, image, version, folder, generates)
    jobs = compare.twins(subject) if compared else {"job": subject}
    found = [each for one in jobs.values() for each in check(one)]
    checked = findings.document(title, [title], {}, list(dict.fromkeys(found)), strict=strict)
    generated: dict[str, Any] = {}
    if form is not None and not checked.exit_code:
        generated = {name: generate(one, form) for name, one in jobs.items()}
    return EstimatorDocument(
        schema="trainwright/estimator/1",
        job=title,
        sdk=version,
        image=image,
        findings=checked.findings,
        errors=checked.errors,
        warnings=checked.warnings,
        notes=checked.notes,
        strict=strict,
        exit_code=checked.exit_code,
        figures=figures(next(reversed(jobs.values()))),
        format=form,  # type: ignore[arg-type]
        generated=generated,
    )


def with_parameters(job: Job, folder: Path) -> Job:
    """The job with the model parallel library's parameters in it, which SDK 2 also takes from a file of JSON.

    Raises:
        RequestError: there is no such file, or it holds no JSON object.
    """
    model = part(job.distribution, "smdistributed", "modelparallel")
    named = model.get("parameters")
    if not isinstance(named, str):
        return job
    remedy = f"{SMP_PARAMETERS} is a mapping, or the name of a file of JSON that holds one."
    parameters = read_json(folder / named, remedy=remedy)
    libraries = {**job.distribution["smdistributed"], "modelparallel": {**model, "parameters": parameters}}
    return job.model_copy(update={"distribution": {**job.distribution, "smdistributed": libraries}})


def generate(subject: Subject, form: str) -> Any:
    """What starts a job that was checked: a text, or for requests and hyperparameters a mapping."""
    if form == "python":
        return program_sdk2.program(subject) if subject.sdk == 2 else program_sdk3.program(subject)
    if form == "hyperparameters":
        own = {name: json.dumps(value) for name, value in subject.job.hyperparameters.items()}
        return own | launch_hyperparameters(subject)
    request = make_request(replace(subject, generates=True))
    return awscli.script(subject, request) if form == "cli" else request


def resolve_plan(asked: PlanRequest) -> Any:
    """The plan of a job file; nothing is built and no engine is asked.

    Raises:
        RequestError: a word is wrong.
        Conflict: no image line has it.
    """
    from trainwright.catalog.catalog import load_catalog
    from trainwright.lock import unproven
    from trainwright.plan.request import make_request as request_of
    from trainwright.plan.resolve import resolve
    from trainwright.site.site import load_site

    site = load_site()
    request = request_of(
        framework=asked.framework,
        cuda=asked.cuda,
        version=asked.version,
        python=asked.python,
        base=asked.base,
        with_=",".join(asked.with_) or None,
        without=",".join(asked.without) or None,
    )
    return resolve(request, load_catalog(), site.base_image, unproven.stored_lock, site.aws.region)


def texts(document: EstimatorDocument) -> str:
    """Everything that was generated as one text: programs one after the other, mappings as one JSON document."""
    made = document.generated
    if all(isinstance(each, str) for each in made.values()):
        return "\n".join(made.values())
    one = next(iter(made.values())) if len(made) == 1 else made
    return json.dumps(one, indent=2, ensure_ascii=False) + "\n"


def _version(sdk: int) -> Literal[2, 3]:
    if sdk == 2:
        return 2
    if sdk == 3:
        return 3
    raise RequestError(f"--sdk {sdk}: 2 or 3")
