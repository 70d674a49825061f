"""``estimator``: a training job checked against its image, and what starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.cli.output import Ended, artifact, complain, print_json
from trainwright.core.errors import RequestError
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field, Words


class PlanWords(Words):
    """What a job is checked against in place of an image; keys of the job file's ``plan``."""

    heading: ClassVar[str] = "In place of an image"

    framework: str | None = Field(
        default=None, description="check against a plan in place of an image: its framework", values="frameworks"
    )
    cuda: str | None = Field(default=None, description="CUDA of that plan", values="cudas")
    version: str | None = Field(default=None, description="framework version of that plan")
    python: str | None = Field(default=None, description="Python version of that plan", values="pythons")
    base: str | None = Field(default=None, description="what the image of that plan starts from", values="bases")


class JobWords(Words):
    """The keys of the job file that a flag gives as they are."""

    heading: ClassVar[str] = "The job"

    image: str | None = Field(
        default=None,
        description="the image: its address in Amazon ECR (for --check-only, a tag that the engine has will do)",
    )
    entry_point: str | None = Field(default=None, description="the script, relative to --source-dir")
    source_dir: str | None = Field(default=None, description="the folder that is uploaded")
    instance_type: str | None = Field(default=None, description="such as ml.p4d.24xlarge", values="instances")
    instance_count: int = Field(default=0, description="how many instances")
    role: str | None = Field(default=None, description="the ARN of the job's role")
    region: str | None = Field(default=None, description="the job's region (default: the image's)")
    name: str | None = Field(default=None, description="what the job's name begins with")
    spot: bool = Field(default=False, description="on spot capacity")


class EstimatorFlags(PlanWords, JobWords, CatalogFlag, JsonFlag):
    """The flags of ``estimator``: the job, and what is to be made of it."""

    heading: ClassVar[str] = "The job"
    examples: ClassVar[tuple[str, ...]] = (
        "estimator --job job.yaml",
        "estimator --job job.yaml --check-only --strict",
        "estimator --job job.yaml --format request --output request.json",
        "estimator --job job.yaml --format pytorchjob --output pytorchjob.yaml",
    )

    job: str | None = Field(default=None, description="the job file; flags override it")
    distribution: str | None = Field(
        default=None, description="in SDK 2's form: a file or a text of JSON, or mpi or torch_distributed"
    )
    hyperparameters: str | None = Field(
        default=None, description="a file or a text of JSON, added to those of the file"
    )
    inputs: tuple[str, ...] = Field(
        default=(),
        alias="input",
        description="a channel and its S3 address, as train=s3://bucket/prefix (may be repeated)",
    )
    environment: tuple[str, ...] = Field(
        default=(), alias="env", description="a variable of the containers, as NAME=VALUE (may be repeated)"
    )
    output_path: str | None = Field(
        default=None, description="S3 address for models and code (default: the SDK's bucket)"
    )
    sdk: int = Field(default=2, description="version of the SageMaker SDK", values=("2", "3"))
    format: str = Field(
        default="python",
        description="python, request (of CreateTrainingJob), cli (a script for the AWS command line), hyperparameters; "
        "for a cluster of your own: pytorchjob (Kubeflow on EKS), hyperpod (its operator), slurm",
        heading="Output",
        values=("python", "request", "cli", "hyperparameters", "pytorchjob", "hyperpod", "slurm"),
    )
    output: str | None = Field(
        default=None, description="write what is generated into this file; default: standard output"
    )
    check_only: bool = Field(default=False, description="check for what --format says, and write nothing")
    compare: bool = Field(default=False, description="two jobs, without and with the Training Compiler")
    findings: str | None = Field(
        default=None, description="format of the findings: text (the default), json, sarif, or github for annotations"
    )
    baseline: str | None = Field(default=None, description="a file of findings that are known and do not count")
    write_baseline: bool = Field(default=False, description="write today's findings into --baseline FILE")
    strict: bool = Field(default=False, description="warnings count as errors")


@verb
def estimator(flags: EstimatorFlags) -> None:
    """Check a training job, and write the code that starts it.

    The job is checked against its image; with errors, the exit code is 1 and nothing is written.
    """
    from trainwright.core.findings_formats import form_of, github, sarif
    from trainwright.core.owned import check_replaceable, write_atomically
    from trainwright.estimator import estimate
    from trainwright.estimator.check import CODES
    from trainwright.estimator.estimate_text import estimator_text

    shown = form_of(flags.findings, as_json=flags.json_)
    if flags.write_baseline and not flags.baseline:
        raise RequestError("--write-baseline needs --baseline FILE", remedy="--baseline job.json --write-baseline")
    use_catalog(flags.catalog)
    job, folder = estimate.read_words(flags.job, job_words(flags))
    if job.image:
        _check_signature(job.image)
    found = estimate.estimate(
        job,
        folder,
        title=flags.job or estimate.COMMAND_LINE,
        sdk=flags.sdk,
        form=flags.format,
        check_only=flags.check_only,
        compared=flags.compare,
        strict=flags.strict,
        accepted=Path(flags.baseline) if flags.baseline else None,
        renewed=flags.write_baseline,
    )
    text = estimate.texts(found) if found.generated else ""
    if flags.output and text:
        # People go on from what was generated, so a file that is there is theirs.
        check_replaceable(Path(flags.output), f"--output {flags.output}", text=text)
        write_atomically(Path(flags.output).absolute(), text)
    if shown == "sarif":
        print_json(sarif(estimate.as_findings(found), CODES))
    elif shown == "github":
        artifact(github(estimate.as_findings(found), "estimator") + "\n")
    elif shown == "json" or flags.output or flags.check_only:
        emit(found, estimator_text, as_json=shown == "json")
    else:
        # What is generated has standard output for itself, as `> start.py` wants it.
        complain(estimator_text(found))
        artifact(text)
    if found.exit_code:
        raise Ended(found.exit_code)


def _check_signature(image: str) -> None:
    """Refuse an image without a valid signature, where the site demands one."""
    from trainwright.signing.verify import SignatureGate
    from trainwright.site.site import load_site

    site = load_site()
    SignatureGate(site.signing, site).check_address(image)


def job_words(flags: EstimatorFlags) -> dict[str, Any]:
    """The keys of a job file that the flags give; those that were not given are empty.

    Raises:
        RequestError: a text cannot be read.
    """
    from trainwright.rehearse.flags import distribution_of, pairs_of, table_of

    hyperparameters = flags.hyperparameters
    return {
        **{name: getattr(flags, name) for name in JobWords.__struct_fields__},
        "plan": {name: word for name in PlanWords.__struct_fields__ if (word := getattr(flags, name)) is not None},
        "distribution": distribution_of(flags.distribution),
        "hyperparameters": table_of("--hyperparameters", hyperparameters) if hyperparameters else {},
        "inputs": pairs_of("--input", flags.inputs),
        "environment": pairs_of("--env", flags.environment),
        "output": flags.output_path,
    }
