"""Input channels: what may be written of one, and what the service takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.core.misfits import in_words
from trainwright.core.records import MisfitError, read_record
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job_parts import Channel, FileSystem

API = "CreateTrainingJob, AWS's API reference"
CHANNEL = Rule(
    code="TW270",
    severity="error",
    title="invalid input channel",
    source=f"{API}; sagemaker 2.257.7, TrainingInput; FSx: aws/amazon-sagemaker-examples #2183, "
    "aws/sagemaker-python-sdk #4257",
    remedy="Use an S3 address, or a record with s3_data.",
)
AUGMENTED = Rule(
    code="TW287",
    severity="error",
    title="a manifest that is a prefix or in fast file mode, or an augmented one without Pipe mode or names",
    source=f"{API}, S3DataSource: S3Uri names the manifest; AugmentedManifestFile can only be used in Pipe mode; "
    "AWS's developer guide, augmented manifest files: AttributeNames is what the job gets of each line; training data: "
    "fast file mode takes S3 prefixes only",
    remedy="{s3_data: s3://…, s3_data_type: AugmentedManifestFile, input_mode: Pipe, attribute_names: [source-ref, …]}",
)
CHANNEL_NAME = Rule(
    code="TW271",
    severity="error",
    title="a reserved channel name",
    source="sagemaker-train 1.27.0: channels code and sm_drivers are SDK 3's own; SDK 2 uses code under isolation",
    remedy="Give the channel another name.",
)
RULES = (CHANNEL, AUGMENTED, CHANNEL_NAME)


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _inputs(subject)


def channel(name: str, given: object) -> Channel | FileSystem:
    """Parse an input channel.

    Raises:
        RequestError: the channel is invalid.
    """
    if isinstance(given, str):
        given = {"s3_data": given}
    if not isinstance(given, Mapping):
        raise RequestError(f"{name} is neither an S3 address nor a record")
    kind: type[Channel | FileSystem]
    kind = FileSystem if any(str(key).startswith(("file_system", "directory")) for key in given) else Channel
    try:
        made = read_record(kind, given)
    except MisfitError as wrong:
        first = min(wrong.found, key=lambda each: not each.valid)
        if first.valid:
            raise RequestError(f"{name}: {in_words(first)}") from None
        raise RequestError(f"{name}.{'.'.join(map(str, first.loc))}: {first.says}") from None
    if isinstance(made, Channel) and not made.s3_data.startswith("s3://"):
        raise RequestError(f"{name}: {made.s3_data!r} is not an S3 address (s3://bucket/prefix)")
    return made


def _augmented(name: str, made: Channel) -> Iterator[str]:
    """What is wrong with a channel as a manifest, or as an augmented one, which only streams."""
    key = made.s3_data.removeprefix("s3://").partition("/")[2]
    if made.s3_data_type.endswith("ManifestFile") and (not key or key.endswith("/")):
        yield f"{name}: {made.s3_data} is a prefix; {made.s3_data_type} needs the address of the manifest"
    augmented = made.s3_data_type == "AugmentedManifestFile"
    if augmented and not made.attribute_names:
        yield f"{name}: AugmentedManifestFile needs attribute_names"
    if augmented and made.input_mode != "Pipe":
        yield f"{name}: AugmentedManifestFile needs input_mode: Pipe, not {made.input_mode or 'File, the default'}"
    if made.s3_data_type == "ManifestFile" and made.input_mode == "FastFile":
        yield f"{name}: input_mode FastFile takes prefixes alone; use File or Pipe with a manifest"
    if made.attribute_names and not augmented:
        yield f"{name}: attribute_names needs s3_data_type: AugmentedManifestFile, not {made.s3_data_type}"


def _inputs(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    for name, given in job.inputs.items():
        path = f"inputs.{name}"
        try:
            made = channel(name, given)
        except RequestError as wrong:
            yield CHANNEL.finding(wrong.message, path=path)
            continue
        for wrong_there in _augmented(name, made) if isinstance(made, Channel) else ():
            yield AUGMENTED.finding(wrong_there, path=path)
        if isinstance(made, FileSystem) and made.file_system_type == "FSxLustre" and not made.directory_path.strip("/"):
            yield CHANNEL.finding(
                f"{name}.directory_path of FSx begins with the mount name: /<mount name>/…", path=path
            )
        groups = [group.name for group in job.instance_groups]
        for group in made.instance_groups if isinstance(made, Channel) else ():
            if group not in groups:
                yield CHANNEL.finding(f"unknown instance group {group!r}. {did_you_mean(group, groups)}", path=path)
        if name in ("code", "sm_drivers") and (subject.sdk == 3 or (name == "code" and job.network_isolation)):
            yield CHANNEL_NAME.finding(f"{name} is reserved", path=path)
