"""The verbs about a training job: its script, its log. Thin and typed, as those of :mod:`.namespace`."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from trainwright.cli.program import (
    CATALOG_HELP,
    JSON_HELP,
    answer,
    artifact,
    complain,
    print_json,
    say,
    use_catalog,
    verb,
)


@verb(
    help={
        "image": "tag or id of an image that the engine has",
        "entry-point": "the script, relative to --source-dir; or any file, where that is not given",
        "source-dir": "the folder that an estimator would upload",
        "requirements": "a requirements file, in place of the source folder's requirements.txt",
        "hosts": "how many instances (default: 1)",
        "processes-per-host": "ranks on each (default: what the platform takes for --instance-type)",
        "distribution": "the estimator's distribution: a file or a text of JSON, or mpi or torch_distributed",
        "instance-type": "as ml.p4d.24xlarge (default: ml.m5.xlarge)",
        "instance-groups": "of a heterogeneous cluster: a file or a text of JSON, in place of --hosts, --instance-type",
        "hyperparameters": "a file or a text of JSON",
        "input": "a channel and its folder, as training=DIR (may be repeated)",
        "env": "a variable of the estimator's environment, as NAME=VALUE (may be repeated)",
        "sdk": "whose contract: 2 (the image's `train`) or 3 (the drivers of SageMaker SDK 3)",
        "launch-only": "show the launch line and environment on every host, and run nothing",
        "timeout": "seconds until it is ended (default: 300)",
        "stop-after": "send SIGTERM, as StopTrainingJob does, so many seconds after the script began",
        "memory": "limit of each host, as 2g",
        "output": "folder for report, logs and artifacts (default: one under .trainwright/rehearsals)",
        "junit": "a file for the verdict as a JUnit report, as build services read it",
        "quiet": "do not show the logs of the hosts",
        "json": JSON_HELP,
    },
    iterable=["input", "env"],
)
def rehearse(
    c: Context,
    *,
    image: str = "",
    entry_point: str = "",
    source_dir: str | None = None,
    requirements: str | None = None,
    hosts: int = 1,
    processes_per_host: int = 0,
    distribution: str | None = None,
    instance_type: str = "ml.m5.xlarge",
    instance_groups: str | None = None,
    hyperparameters: str | None = None,
    input: list[str] | None = None,
    env: list[str] | None = None,
    sdk: int = 2,
    launch_only: bool = False,
    timeout: float = 300.0,
    stop_after: str | None = None,
    memory: str | None = None,
    output: str | None = None,
    junit: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Run a training job in an image as SageMaker would, on one or more simulated hosts."""
    from trainwright.engine.engine import connect
    from trainwright.rehearse.flags import make_job
    from trainwright.rehearse.rehearsal import rehearse as run_rehearsal
    from trainwright.rehearse.report import rehearsal_text

    job = make_job(
        image=image,
        entry_point=entry_point,
        source_dir=source_dir,
        requirements=requirements,
        hosts=hosts,
        processes_per_host=processes_per_host,
        distribution=distribution,
        instance_type=instance_type,
        instance_groups=instance_groups,
        hyperparameters=hyperparameters,
        inputs=input or [],
        environment=env or [],
        sdk=sdk,
        launch_only=launch_only,
        timeout=timeout,
        stop_after=stop_after,
        memory=memory,
    )
    engine = connect(say=say)
    folder, report = (Path(name) if name else None for name in (output, junit))
    document = run_rehearsal(job, engine, say=say, output=folder, junit=report, quiet=quiet)
    if json:
        print_json(document)
    else:
        answer(rehearsal_text(document))


@verb(
    help={
        "entry-point": "the training script (default: the one that --job names)",
        "source-dir": "the folder that goes into the job (default: the script's own)",
        "job": "the job file: launcher, hosts and hyperparameters are then held against the script",
        "strict": "warnings count as errors",
        "json": JSON_HELP,
    }
)
def preflight(
    c: Context,
    *,
    entry_point: str = "",
    source_dir: str | None = None,
    job: str | None = None,
    strict: bool = False,
    json: bool = False,
) -> None:
    """Read a training script (never run it) for mistakes that would cost a job; exit code 2 for errors."""
    from trainwright.core.findings import findings_text
    from trainwright.preflight.preflight import preflight as check

    found = check(entry_point, source_dir, job, strict=strict)
    if json:
        print_json(found.as_json())
    else:
        answer(findings_text(found))
    if found.exit_code:
        raise Exit(code=found.exit_code)


@verb(positional=["log"], help={"log": "the log of a failed job, or - for standard input", "json": JSON_HELP})
def diagnose(c: Context, log: str, json: bool = False) -> None:
    """Name the cause of a failed job from its log, and the mend."""
    from trainwright.sagemaker import diagnosis

    found = diagnosis.diagnose_file(log)
    if json:
        print_json(found.as_json())
    else:
        answer(diagnosis.diagnosis_text(found))


@verb(
    help={
        "job": "the job file; flags override it",
        "image": "the image: its address in Amazon ECR (for --check-only, a tag that the engine has will do)",
        "framework": "check against a plan in place of an image: its framework",
        "cuda": "CUDA of that plan",
        "version": "framework version of that plan",
        "python": "Python version of that plan",
        "base": "kind of base image of that plan",
        "entry-point": "the script, relative to --source-dir",
        "source-dir": "the folder that is uploaded",
        "instance-type": "such as ml.p4d.24xlarge",
        "instance-count": "how many instances",
        "distribution": "in SDK 2's form: a file or a text of JSON, or mpi or torch_distributed",
        "hyperparameters": "a file or a text of JSON, added to those of the file",
        "input": "a channel and its S3 address, as train=s3://bucket/prefix (may be repeated)",
        "env": "a variable of the containers, as NAME=VALUE (may be repeated)",
        "role": "the ARN of the job's role",
        "region": "the job's region (default: the image's)",
        "name": "what the job's name begins with",
        "output-path": "S3 address for models and code (default: the SDK's bucket)",
        "spot": "on spot capacity",
        "sdk": "2 or 3",
        "format": "python, request (of CreateTrainingJob), cli (a script for the AWS command line) or hyperparameters",
        "output": "write what is generated into this file; default: standard output",
        "check-only": "check, and write nothing",
        "compare": "two jobs, without and with the Training Compiler",
        "strict": "warnings count as errors",
        "catalog": CATALOG_HELP,
        "json": JSON_HELP,
    },
    iterable=["input", "env"],
)
def estimator(
    c: Context,
    *,
    job: str | None = None,
    image: str | None = None,
    framework: str | None = None,
    cuda: str | None = None,
    version: str | None = None,
    python: str | None = None,
    base: str | None = None,
    entry_point: str | None = None,
    source_dir: str | None = None,
    instance_type: str | None = None,
    instance_count: int = 0,
    distribution: str | None = None,
    hyperparameters: str | None = None,
    input: list[str] | None = None,
    env: list[str] | None = None,
    role: str | None = None,
    region: str | None = None,
    name: str | None = None,
    output_path: str | None = None,
    spot: bool = False,
    sdk: int = 2,
    format: str = "python",
    output: str | None = None,
    check_only: bool = False,
    compare: bool = False,
    strict: bool = False,
    catalog: str | None = None,
    json: bool = False,
) -> None:
    """Check a training job against its image, and write the code or request that starts it; exit code 2 for errors."""
    from trainwright.core.owned import check_replaceable, write_atomically
    from trainwright.estimator import estimate
    from trainwright.estimator.estimate_text import estimator_text
    from trainwright.rehearse.flags import distribution_of, pairs_of, table_of

    use_catalog(catalog)
    plan = {"framework": framework, "cuda": cuda, "version": version, "python": python, "base": base}
    words = {
        "image": image,
        "plan": {key: value for key, value in plan.items() if value},
        "entry_point": entry_point,
        "source_dir": source_dir,
        "instance_type": instance_type,
        "instance_count": instance_count or None,
        "distribution": distribution_of(distribution),
        "hyperparameters": table_of("--hyperparameters", hyperparameters) if hyperparameters else {},
        "inputs": pairs_of("--input", input or []),
        "environment": pairs_of("--env", env or []),
        "role": role,
        "region": region,
        "name": name,
        "output": output_path,
        "spot": spot,
    }
    made, folder = estimate.read_words(job, words)
    found = estimate.estimate(
        made,
        folder,
        title=job or estimate.COMMAND_LINE,
        sdk=sdk,
        form=None if check_only else format,
        compared=compare,
        strict=strict,
    )
    text = estimate.texts(found) if found.generated else ""
    if output and text:
        # People go on from what was generated, so a file that is there is theirs.
        check_replaceable(Path(output), f"--output {output}", text=text)
        write_atomically(Path(output).absolute(), text)
    if json:
        print_json(found.as_json())
    elif output or check_only:
        answer(estimator_text(found))
    else:
        # What is generated has standard output for itself, as `> start.py` wants it.
        complain(estimator_text(found))
        artifact(text)
    if found.exit_code:
        raise Exit(code=found.exit_code)
