"""``estimator``: read a job from its file and flags, check it, and generate what starts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from trainwright.core import findings, findings_baseline
from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, FindingsDocument, Known, Silenced
from trainwright.core.records import Field, Record, parse_record
from trainwright.core.yaml_places import yaml_tree
from trainwright.estimator import awscli, compare, manifest, program_sdk2, program_sdk3, sbatch, silence
from trainwright.estimator.check import CODES, check
from trainwright.estimator.create_training_job import encoded, launch_hyperparameters, make_request
from trainwright.estimator.figures import Figures, figures
from trainwright.estimator.image import ImageFacts, facts_of_image, facts_of_plan, packages_of
from trainwright.estimator.subject import CLUSTERS, SMP_PARAMETERS, Subject, part
from trainwright.preflight.carried import resolve_plan
from trainwright.sagemaker.job import Job, read_job
from trainwright.sagemaker.spellings import line_of

FORMATS = ("python", "request", "cli", "hyperparameters", *CLUSTERS)
COMMAND_LINE = "the command line"
Look = Callable[[str], ImageFacts | None]


class EstimatorDocument(Record):
    """``estimator --json``."""

    schema: Literal["trainwright/estimator/1"]
    job: str = Field(description="the job file, or the command line")
    sdk: Literal[2, 3]
    image: ImageFacts | None = Field(description="null: nothing is known about it")
    findings: tuple[Finding, ...]
    silenced: tuple[Silenced, ...]
    known: tuple[Finding, ...] = Field(default=(), description="findings of the baseline, which do not count")
    gone: tuple[Known, ...] = Field(default=(), description="findings of the baseline that are no longer there")
    errors: int
    warnings: int
    notes: int
    strict: bool = Field(description="warnings count as errors for the exit code")
    exit_code: Literal[0, 1]
    figures: Figures
    format: Literal["python", "request", "cli", "hyperparameters", "pytorchjob", "hyperpod", "slurm"] | None = Field(
        description="null: checks only"
    )
    generated: dict[str, Any] = Field(
        description="job, or baseline and compiled → source, script, manifest, request or hyperparameters; "
        "empty after errors"
    )


def read_words(job_file: str | None, words: Mapping[str, Any]) -> tuple[Job, Path]:
    """Return a job from a file and flags, and the folder that its paths are relative to.

    Args:
        job_file: the job file; None: use the flags only.
        words: key of the job file → value of a flag, which overrides the file; None and empty values are ignored.
            ``plan`` and tables are merged key by key.

    Raises:
        RequestError: the file is missing, a key is unknown, or a value has the wrong type.
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
        old = job.plan.unusual() if job.plan else {}
        # Another framework starts a new request; the other keys may not fit it.
        keep = {} if "framework" in given["plan"] else old
        given["plan"] = {**keep, **given["plan"]}
    data = job.unusual()
    # With their own values: as JSON, a date is a text, and what is not a number null (TW278).
    data |= {key: getattr(job, key) for key in ("distribution", "hyperparameters", "inputs") if key in data}
    if "instance_type" in given:
        data.pop("instance_groups", None)
    return parse_record(Job, {**data, **given}, COMMAND_LINE), folder


def estimate(
    job: Job,
    folder: Path,
    *,
    title: str = COMMAND_LINE,
    sdk: int = 2,
    form: str = "python",
    check_only: bool = False,
    compared: bool = False,
    strict: bool = False,
    accepted: Path | None = None,
    renewed: bool = False,
    look: Look = facts_of_image,
) -> EstimatorDocument:
    """Check a job against its image, and generate what starts it.

    Args:
        job: the job.
        folder: the base of its relative paths.
        title: the name of the job in messages, such as its file.
        sdk: 2 or 3.
        form: one of :data:`FORMATS`, which says what is to start the job.
        check_only: generate nothing; the job may then be incomplete.
        compared: generate two jobs, with and without the Training Compiler.
        strict: warnings count as errors.
        accepted: the file of the baseline.
        renewed: write that file from today's findings.
        look: finds the facts about an image.

    Raises:
        RequestError: an argument or the baseline is invalid, or image and plan are missing.
    """
    version = _version(sdk)
    if form not in FORMATS:
        raise RequestError(f"--format {form}: unknown format. {did_you_mean(form, FORMATS)}")
    if form == "cli" and version == 3:
        raise RequestError(
            "--format cli: SDK 3 uploads its own programs with every job, which the AWS command line cannot do",
            remedy="Use --sdk 2 --format cli, or --sdk 3 --format python.",
        )
    cluster = next((each for each in CLUSTERS if each == form), None)
    if cluster and (compared or version == 3):
        what = "--compare" if compared else "--sdk 3"
        raise RequestError(f"--format {form}: {what} is about jobs of SageMaker", remedy=f"Leave out {what}.")
    if job.image is None and job.plan is None:
        raise RequestError(
            "the job has neither image nor plan",
            remedy="Add --image <address in ECR>, or --framework pytorch --cuda cu124 to check against a plan.",
        )
    job = with_parameters(job, folder)
    plan = resolve_plan(job.plan) if job.plan else None
    image = facts_of_plan(plan) if plan else look(str(job.image))
    generates = not check_only and form != "hyperparameters"
    packages = packages_of(plan) if plan else None
    subject = Subject(job, image, version, folder, generates, cluster, packages)
    jobs = compare.twins(subject) if compared else {"job": subject}
    found = [each for one in jobs.values() for each in check(one)]
    if title != COMMAND_LINE:
        tree = yaml_tree(Path(title))
        found = [each.replace(line=line_of(each.path, tree)) for each in found]
    kept, silenced = silence.apply(job, dict.fromkeys(found), CODES)
    placed = {in_file(each, title): each for each in kept}
    beside = findings_baseline.compare(list(placed), [title], accepted, renewed=renewed)
    checked = findings.document(title, [title], {}, [placed[each] for each in beside.new], silenced, strict=strict)
    generated: dict[str, Any] = {}
    if not (check_only or checked.exit_code):
        # As JSON: if TW278 is silenced, a date is written as its text.
        plain = {name: replace(one, job=parse_record(Job, one.job.as_json(), title)) for name, one in jobs.items()}
        generated = {name: generate(one, form) for name, one in plain.items()}
    return EstimatorDocument(
        schema="trainwright/estimator/1",
        job=title,
        sdk=version,
        image=image,
        findings=checked.findings,
        silenced=checked.silenced,
        known=tuple(placed[each] for each in beside.known),
        gone=tuple(beside.gone),
        errors=checked.errors,
        warnings=checked.warnings,
        notes=checked.notes,
        strict=strict,
        exit_code=findings.FOUND if checked.exit_code else 0,
        figures=figures(next(reversed(jobs.values()))),
        format=None if check_only else form,  # type: ignore[arg-type]
        generated=generated,
    )


def in_file(finding: Finding, job: str) -> Finding:
    """Return a finding at its file, as other programs and baselines know places; the key goes into the message."""
    return finding.replace(path=job, message=f"{finding.path}: {finding.message}")


def as_findings(document: EstimatorDocument) -> FindingsDocument:
    """Return the findings as those of ``preflight`` are, for the formats of other programs."""
    return findings.document(
        document.job,
        [document.job],
        {},
        [in_file(each, document.job) for each in document.findings],
        document.silenced,
        known=document.known,
        gone=document.gone,
        strict=document.strict,
    )


def with_parameters(job: Job, folder: Path) -> Job:
    """Return the job with the model parallel library's parameters, which may be in a JSON file, as in SDK 2.

    Raises:
        RequestError: the file is missing, or is not a JSON object.
    """
    model = part(job.distribution, "smdistributed", "modelparallel")
    named = model.get("parameters")
    if not isinstance(named, str):
        return job
    remedy = f"{SMP_PARAMETERS} must be a mapping, or the name of a JSON file that contains one."
    parameters = read_json(folder / named, remedy=remedy)
    libraries = {**job.distribution["smdistributed"], "modelparallel": {**model, "parameters": parameters}}
    return job.replace(distribution={**job.distribution, "smdistributed": libraries})


def generate(subject: Subject, form: str) -> Any:
    """Return what starts a checked job: a text, or a mapping for requests and hyperparameters."""
    if form == "python":
        return program_sdk2.program(subject) if subject.sdk == 2 else program_sdk3.program(subject)
    if form == "hyperparameters":
        return encoded(subject, subject.job.hyperparameters) | launch_hyperparameters(subject)
    if subject.cluster is not None:
        return sbatch.script(subject) if subject.cluster == "slurm" else manifest.manifest(subject, subject.cluster)
    request = make_request(replace(subject, generates=True))
    return awscli.script(subject, request) if form == "cli" else request


def texts(document: EstimatorDocument) -> str:
    """Return everything generated as one text: programs one after the other, mappings as one JSON document."""
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
    raise RequestError(f"--sdk {sdk}: must be 2 or 3")
