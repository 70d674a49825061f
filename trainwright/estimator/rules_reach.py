"""What the containers of a job can reach: nothing outside with network isolation; folders that the service keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.create_training_job import ARCHIVE
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.toolkit import TENSORFLOW_TOOLKIT, TOOLKIT
from trainwright.user.requirements import required_names, requirements_text

ISOLATED = Rule(
    code="TW316",
    severity="error",
    title="network isolation, and a model_dir in S3, which TensorFlow's toolkit looks up before the script starts "
    "or an archive with code in S3 whose name the toolkit does not look for "
    "(warnings: other addresses in hyperparameters and environment; requirements.txt, but an error for a package that "
    "the plan's image lacks)",
    source="AWS's API reference, CreateTrainingJob: with EnableNetworkIsolation no calls but those between the hosts; "
    f"aws/sagemaker-python-sdk #2702; sagemaker 2.257.7, estimator.py: CONTAINER_CODE_CHANNEL_SOURCEDIR_PATH; "
    f"{TENSORFLOW_TOOLKIT}, s3_utils.py; {TOOLKIT}, modules.py",
    remedy="Pass data as inputs, write the model to /opt/ml/model, and use `checkpoint`: the service copies them.",
)
RESERVED = Rule(
    code="TW317",
    severity="error",
    title="a folder for TensorBoard that the service keeps for itself",
    source="aws/amazon-sagemaker-examples #3620, the service's message: reserved are /opt/ml, /tmp and "
    "/usr/local/nvidia; AWS's developer guide, TensorBoard in SageMaker: its example has /opt/ml/output/tensorboard",
    remedy="Use /opt/ml/output/tensorboard, or a folder of your own such as /tensorboard.",
)
RELATIVE = Rule(
    code="TW323",
    severity="error",
    title="a local path that is not a path in the container",
    source="AWS's guides for checkpoints and TensorBoard: folders such as /opt/ml/checkpoints; Docker 20.10, tried: "
    "invalid mount path, mount path must be absolute",
    remedy="Begin it with a slash, such as /opt/ml/checkpoints.",
)
RULES = (ISOLATED, RESERVED, RELATIVE)
_RESERVED = ("/opt/ml", "/tmp", "/usr/local/nvidia")  # noqa: S108 - nothing is written
_TENSORBOARD = "/opt/ml/output/tensorboard"
_REMOTE = ("s3://", "http://", "https://", "git+")
# Variables of the toolkit and pip by which an isolated host installs without an index.
_OFFLINE = ("PIP_NO_INDEX", "PIP_FIND_LINKS")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    job = subject.job
    if job.network_isolation:
        yield from _isolated(subject)
    for key, kept_in in (("checkpoint", job.checkpoint), ("tensorboard", job.tensorboard), ("debugger", job.debugger)):
        if kept_in and kept_in.local_path and not kept_in.local_path.startswith("/"):
            yield RELATIVE.finding(f"{kept_in.local_path!r} does not begin with /", path=f"{key}.local_path")
    if job.tensorboard and job.tensorboard.local_path:
        path = PurePosixPath(job.tensorboard.local_path)
        kept = next((each for each in _RESERVED if path.is_relative_to(each)), None)
        if kept and not path.is_relative_to(_TENSORBOARD):
            yield RESERVED.finding(f"{path} is in {kept}", path="tensorboard.local_path")


def _isolated(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    for key, values in (("hyperparameters", job.hyperparameters), ("environment", job.environment)):
        for name, value in values.items():
            if not isinstance(value, str) or not value.startswith(_REMOTE):
                continue
            asked = (
                subject.framework == "tensorflow"
                and job.entry_point
                and (key, name) == ("hyperparameters", "model_dir")
            )
            yield ISOLATED.finding(
                f"{name} is {value}, which an isolated container cannot reach",
                path=f"{key}.{name}",
                severity="error" if asked and value.startswith("s3://") else "warning",
            )
    if job.entry_point and _archive(job.source_dir) != ARCHIVE:
        yield ISOLATED.finding(
            f"an isolated container gets the code as a channel, in which the toolkit looks for {ARCHIVE}",
            path="source_dir",
            remedy=f"Name the archive {ARCHIVE}, as SDK 2's documentation of source_dir asks.",
        )
    folder = job.source_dir or "s3://"
    if folder.startswith("s3://") or set(_OFFLINE) & set(job.environment):
        return
    file = subject.folder / folder / "requirements.txt"
    if file.is_file():
        lacks = _lacks(file, subject.packages)
        what = f"{' and '.join(lacks)}, which the image lacks" if lacks else "nothing that the image does not have"
        yield ISOLATED.finding(
            f"requirements.txt: pip cannot reach an index; it {'cannot install' if lacks else 'installs'} {what}",
            path="source_dir",
            severity="error" if lacks else "warning",
            remedy="Build the image --with-requirements.",
        )


def _archive(source: str | None) -> str:
    """Return the name of the archive with the code: that of the object in S3, or the SDK's own."""
    return source.rpartition("/")[2] if source is not None and source.startswith("s3://") else ARCHIVE


def _lacks(file: Path, packages: frozenset[str] | None) -> list[str]:
    """What pip would ask an index for; nothing if the image may have it, or the file says where else it is."""
    try:
        lines = requirements_text(file, file.name).splitlines()
    except RequestError:
        return []
    if packages is None or any(line.lstrip().startswith("-") for line in lines):
        return []
    # A requirement with a marker may not be one of this image.
    asked = required_names(line.partition(" #")[0] for line in lines if ";" not in line)
    return [name for name in asked if name not in packages]
